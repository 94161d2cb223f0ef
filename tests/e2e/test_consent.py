"""Consent for a web client that opens it in a window, and whose callback redirects to another origin."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import Walk
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
ROWS = """
from servers.models import OAuthClient, Server
Server.objects.create(slug="files", name="Files", transport="streamable_http", url="https://a.example/", enabled=False)
OAuthClient.objects.create(kind="added", client_id="web", name="Web client", redirect_uris=[{back!r}])
"""
OPENER = """<p>waiting</p><button>Connect</button><script>
addEventListener("message", (event) => { document.querySelector("p").textContent = event.data; });
document.querySelector("button").onclick = () => open(%r, "consent", "width=600,height=700");
</script>"""
DONE = """<script>opener.postMessage("connected " + location.search, "*"); close();</script>"""


@contextmanager
def serving(answer: Callable[[str], tuple[int, str]]) -> Iterator[str]:
    """An origin: `answer` gets a path, and returns a status and the page or where to go."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path)
            self.send_response(status)
            if status == 307:
                self.send_header("Location", text)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_web_client_learns_of_the_consent_given_in_the_window_that_it_opened(
    own_stack: Stack, walker: Callable[..., Walk]
) -> None:
    pages: dict[str, str] = {"/done": DONE}
    with ExitStack() as closing:
        client = closing.enter_context(serving(lambda path: (200, pages.get(urlsplit(path).path, ""))))
        back = closing.enter_context(serving(lambda path: (307, f"{client}/done?{urlsplit(path).query}")))
        query = {
            "response_type": "code",
            "client_id": "web",
            "redirect_uri": f"{back}/callback",
            "resource": f"{own_stack.base_url}/mcp/files",
            "code_challenge": "c" * 43,
            "code_challenge_method": "S256",
        }
        pages["/"] = OPENER % f"{own_stack.base_url}/oauth/authorize?{urlencode(query)}"
        own_stack.shell(ROWS.format(back=query["redirect_uri"]))
        ada = walker(own_stack)
        for origin in (client, back):
            ada.complaints.allow(f"request to another host: {origin}")
        ada.page.goto(f"{client}/")
        with ada.page.expect_popup() as opened:
            ada.page.get_by_role("button", name="Connect").click()
        window = opened.value
        window.locator("input[name=login]").fill(ADMIN[0])
        window.locator("input[name=password]").fill(ADMIN[1])
        window.locator("input[name=password]").press("Enter")
        window.get_by_role("button", name="Allow").click()
        expect(ada.page.locator("p")).to_contain_text("connected")
        found = parse_qs(ada.page.locator("p").inner_text().partition("?")[2])
        assert (set(found), found["iss"]) == ({"code", "iss"}, [own_stack.base_url])
