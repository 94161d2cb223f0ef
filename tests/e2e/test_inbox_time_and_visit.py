"""A request gets more time while its reader has it open, and a click opens the URL that a server requested."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.test_inbox import answer_the_toast, press, register, start
from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture
def two(stack: Stack, walker: Callable[..., Walk]) -> tuple[Walk, Walk]:
    """The same administrator in two browsers. The second one looks at the overview."""
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    bob.open("/")
    return ada, bob


@pytest.mark.long
def test_more_time_keeps_what_is_typed_and_reaches_every_page(stack: Stack, two: tuple[Walk, Walk]) -> None:
    ada, bob = two
    slug = register(stack, "Patient", "asking", "legacy")
    start(stack, ada, slug, "pizza")
    answer_the_toast(bob, "Input request from “Patient”")
    bob.page.locator("[name='arg:/name']").fill("half typed")
    ada.open("/inbox/")
    row = ada.page.locator("#inbox-open tr").filter(has_text="Patient")
    ends = row.locator("time[data-countdown]").get_attribute("datetime")
    bob.page.get_by_role("button", name="Extend deadline").click()
    expect(bob.page.locator("[data-toasts-polite]")).to_contain_text("Deadline extended")
    expect(bob.page.locator("#question-head time[data-countdown]")).not_to_have_attribute("datetime", ends or "")
    expect(bob.page.locator("[name='arg:/name']")).to_have_value("half typed")
    expect(row.locator("time[data-countdown]")).not_to_have_attribute("datetime", ends or "", timeout=20_000)
    press(bob, "Send")
    expect(bob.page.locator("[data-question-over]")).to_contain_text("Answered by ada")


@contextmanager
def shop() -> Iterator[tuple[str, list[Any]]]:
    """A third-party page on this machine under another host name. Yields its URL and the visits."""
    visits: list[Any] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append((self.path, dict(self.headers)))
            body = b"<!doctype html><title>Shop</title><link rel=icon href=data:,><h1>Paid</h1>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep stderr quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/pay?order=7", visits
    finally:
        server.shutdown()
        server.server_close()


def test_a_click_opens_the_address_in_a_tab_that_knows_nothing_of_mcpadmin(
    stack: Stack, two: tuple[Walk, Walk]
) -> None:
    ada, bob = two
    command, arguments = peer_command("asking")
    with shop() as (address, visits):
        bob.complaints.allow(address)
        stack.manage(
            *("register_server", "--user", ADMIN[0], "--name", "Till", "--era", "legacy"),
            *("--env", f"VISIT_URL={address}", "--", command, *arguments),
        )
        card = start(stack, ada, "till", "visit")
        answer_the_toast(bob, "“Till” wants you to open a link")
        expect(bob.page.locator("[data-address] mark")).to_have_text("localhost")
        expect(bob.page.locator("#question-body")).to_contain_text("It points to the computer you open it on")
        assert visits == [], "nobody clicked yet"
        with bob.page.context.expect_page() as opened:
            bob.page.locator("a[data-visit]").click()
        tab = opened.value
        expect(tab.get_by_role("heading", name="Paid")).to_be_visible()
        assert tab.evaluate("[window.opener, document.referrer]") == [None, ""]
        [(path, headers)] = visits
        assert path == "/pay?order=7"
        assert not {"Referer", "Cookie"} & headers.keys()
        tab.close()
        press(bob, "Done")
        expect(card).to_contain_text("accept")
        expect(card).to_contain_text("Succeeded")
