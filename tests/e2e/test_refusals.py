"""The page shows a server's refusal and what to do about it."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
REFUSALS = {
    "/host": (421, "text/plain", "Invalid Host header"),
    "/key": (401, "application/json", '{"error": "Missing API key. Send it as X-Acme-Key."}'),
    "/firewall": (403, "text/html", "<title>Blocked</title><h1>Sorry \u202e\u2066, \u202dnot from here</h1>"),
}


class Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        status, kind, words = REFUSALS[self.path]
        body = words.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "title", "words", "remedy"),
    [
        pytest.param("/host", "host guard refused", "Invalid Host header", "allowed_hosts", marks=pytest.mark.long),
        ("/key", "requires an API key", "Send it as X-Acme-Key.", "named X-Acme-Key"),
        pytest.param("/firewall", "refused access", "not from here", "No credential was sent", marks=pytest.mark.long),
    ],
)
def test_a_refused_server_says_why_and_what_to_do(
    stack, walker, refusing: str, path: str, title: str, words: str, remedy: str
) -> None:
    ada = walker(stack, signed_in=True)
    slug = f"refused-{path.strip('/')}"
    ada.fill_http(slug, refusing + path)
    tested = ada.test_connection()
    expect(tested).to_contain_text(words)
    expect(tested).to_contain_text(title)
    shot(ada.page, f"test{path.replace('/', '-')}")
    ada.save()
    expect(ada.page.get_by_role("button", name="Retry now")).to_be_visible(timeout=40_000)
    asks = path == "/key"
    expect(ada.state().get_by_text("Needs authorization")).to_have_count(1 if asks else 0)
    ada.open(f"/servers/{slug}/info/")
    problem = ada.page.locator(".notice.bad").first
    expect(problem).to_contain_text(title)
    expect(problem).to_contain_text(words)
    expect(problem).to_contain_text(remedy)
    expect(problem.get_by_role("link", name="Sign in")).to_have_count(0)
    expect(problem.get_by_role("link", name="Add a credential")).to_have_count(1 if asks else 0)
    expect(ada.page.locator("#connection-timeline")).to_contain_text(words)
    shot(ada.page, f"info{path.replace('/', '-')}")


def shot(page, name: str) -> None:
    if folder := os.environ.get("LOOK"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
        page.set_viewport_size({"width": 390, "height": 844})
        page.screenshot(path=str(Path(folder) / f"{name}-m.png"), full_page=True)
        page.set_viewport_size({"width": 1440, "height": 900})
