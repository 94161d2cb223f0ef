"""A person signs in to a server behind OAuth in the browser: there and back, a renewal, a revocation, and again.

The authorization server is the official SDK's. It consents at once for every visitor.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import expect

from tests.e2e.sockets import Visitor, greeted
from tests.e2e.walk import Walk
from tests.peers.peers import free_port, start_peer
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
NAME, SLUG, AT_ONCE = "Behind a gate", "behind-a-gate", 20


class Gate:
    """The protected server, with the log of its authorization server."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.host, self._log = url, urlsplit(url).netloc, log

    def events(self, name: str) -> int:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return sum(json.loads(line)["event"] == name for line in lines)

    def details(self, name: str, detail: str) -> list[str]:
        return [line[detail] for line in map(json.loads, self._log.read_text().splitlines()) if line["event"] == name]

    def control(self, what: str) -> None:
        httpx.post(self.url.replace("/mcp", f"/control/{what}"), trust_env=False, timeout=20).raise_for_status()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    log = tmp_path / "gate.log"
    peer = start_peer("protected", port=free_port(), env={"PROTECTED_LOG": str(log)})
    yield Gate(peer.url, log)
    peer.kill()


@contextmanager
def elsewhere(work: Callable[[], Any]) -> Iterator[None]:
    """Run `work` in another thread, because this one has the browser's event loop."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as problem:  # asserted below
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(60)
    assert problems == []


async def order_at_once(stack: Stack, server: str) -> None:
    """Request twenty calls at once through one live socket."""
    visitor = await asyncio.to_thread(Visitor, stack)
    async with greeted(stack, visitor) as socket:
        for ref in range(AT_ONCE):
            order = {"op": "call", "server": server, "tool": "greet", "args": {"name": f"n{ref}"}, "ref": ref + 1}
            await socket.send(json.dumps(order | {"confirm": "greet"}))
        left = AT_ONCE
        async with asyncio.timeout(60):
            while left:
                frame = json.loads(await socket.recv())
                assert frame.get("op") != "rejected", frame
                left -= frame.get("op") == "accepted"
    visitor.close()


def session(stack: Stack) -> Any:
    [row] = stack.rows(
        "SELECT m.state, m.condition, m.next_retry_at, m.attempts, s.uid FROM mcp_sessions_mcpsession m"
        " JOIN servers_server s ON s.id = m.server_id WHERE s.slug = ?",
        SLUG,
    )
    return row


def signed_in(person: Walk, gate: Gate) -> None:
    """From the notice on the server's page to the authorization server and back to a page that says *Ready*."""
    person.page.locator("[data-live-target^='server.']").get_by_role("link", name="Sign in").click()
    consented(person, gate)


def consented(person: Walk, gate: Gate) -> None:
    page = person.page
    expect(page.get_by_role("heading", name=f"Sign in for {NAME}")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    there = page.get_by_role("link", name=f"Continue to {gate.host}")
    expect(page.locator("#journey")).to_contain_text(f"uses the authorization server {gate.host}", timeout=60_000)
    assert "code_challenge" not in page.content(), "the page does not hold the address with its state"
    there.click()
    page.wait_for_url(f"**/servers/{SLUG}/tools/", timeout=60_000)
    expect(page.get_by_text(f"Signed in at {gate.host}")).to_be_visible()
    person.wait_for_state("Ready", 60)


def greet_by_hand(person: Walk, name: str) -> None:
    person.open_tool(SLUG, "greet")
    person.fill_argument("name", name)
    person.run_tool()


def greeted_by_hand(person: Walk, name: str) -> None:
    greet_by_hand(person, name)
    expect(person.result()).to_contain_text(f"Hello {name}", timeout=30_000)


def succeeded(stack: Stack) -> int:
    sql = "SELECT count(*) AS n FROM mcp_sessions_call WHERE state = 'succeeded' AND server_name = ?"
    return int(stack.rows(sql, NAME)[0]["n"])


def test_a_person_signs_in_stays_connected_is_signed_out_and_signs_in_again(
    stack: Stack, walker: Callable[..., Walk], gate: Gate
) -> None:
    ada, watcher = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.complaints.allow(f"request to another host: {gate.url.removesuffix('/mcp')}/authorize?")
    ada.register_http(NAME, gate.url)
    ada.wait_for_state("Sign in", 60)
    watcher.open("/servers/")
    card = watcher.page.get_by_role("row").filter(has_text=NAME).locator("[data-server-state]")
    expect(card).to_have_text("Sign in")
    assert gate.events("register") == 0, "nobody asked for it yet"

    signed_in(ada, gate)
    expect(card).to_have_text("Ready")
    greeted_by_hand(ada, "Ada")

    gate.control("expire")
    with elsewhere(lambda: asyncio.run(order_at_once(stack, str(UUID(session(stack)["uid"]))))):
        ada.until(lambda: succeeded(stack) == 1 + AT_ONCE, 60)
    assert gate.events("refresh") == 1
    assert gate.events("call") == 1 + AT_ONCE, "what was refused was not executed, and was sent once more"

    gate.control("revoke")
    greet_by_hand(ada, "Bea")
    ada.wait_for_state("Sign in again", 60)
    expect(card).to_have_text("Sign in again")
    told = watcher.page.locator(".toast").filter(has_text=f"{NAME} requires a new sign-in")
    expect(told.get_by_role("link", name="Sign in again")).to_have_attribute("href", f"/servers/{SLUG}/sign-in/")
    waits = session(stack)
    assert (waits["state"], waits["condition"], waits["next_retry_at"]) == ("disconnected", "needs_auth", None)
    watcher.open("/")
    attention = watcher.page.locator("#overview-attention li").filter(has_text=NAME)
    expect(attention.get_by_role("link", name="Sign in again")).to_be_visible()
    expect(told).to_have_count(0)  # shown once per failed sign-in, on whatever page is open
    late = walker(stack, signed_in=True)
    late.open("/")
    expect(late.page.locator("#overview-attention li").filter(has_text=NAME)).to_be_visible()
    expect(late.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    expect(late.page.locator(".toast")).to_have_count(0)
    assert gate.events("refresh_refused") == 1, "it is not tried again before a person signs in"

    signed_in(ada, gate)
    expect(attention).to_have_count(0)
    greeted_by_hand(ada, "Cleo")
    assert (gate.events("register"), gate.events("code")) == (1, 2), "the client registered once is used again"
