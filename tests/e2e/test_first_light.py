"""A new user completes the whole journey: set-up link, register, call, watch, audit. Two browsers, real servers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command, run_peer

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
PASSWORD = "a long passphrase 42"


@contextmanager
def everything_over_stdio() -> Iterator[Callable[[Walk], None]]:
    command, arguments = peer_command("everything", "stdio")
    yield lambda person: person.fill_stdio("Everything", command, arguments)


@contextmanager
def official_sdk_over_http() -> Iterator[Callable[[Walk], None]]:
    with run_peer("sdk2", "http") as url:
        yield lambda person: person.fill_http("Official SDK", url)


@pytest.mark.parametrize(
    ("peer", "slug", "argument"),
    [
        (everything_over_stdio, "everything", "message"),
        # the next test registers one over HTTP too
        pytest.param(official_sdk_over_http, "official-sdk", "text", marks=pytest.mark.long),
    ],
)
def test_a_stranger_goes_from_the_setup_link_to_the_audit_row(fresh_stack, walker, peer, slug, argument) -> None:
    ada, bob = walker(fresh_stack), walker(fresh_stack)
    ada.use_setup_link(fresh_stack.setup_link, "ada", PASSWORD)
    ada.open("/servers/")
    expect(ada.page.get_by_text("No servers yet")).to_be_visible()
    bob.sign_in("ada", PASSWORD)

    with peer() as fill:
        fill(ada)
        expect(ada.test_connection()).to_contain_text("Works", timeout=30_000)
        ada.save()
        ada.wait_for_state("Ready")
        bob.open_tool(slug, "echo")
        bob.wait_for_state("Ready")

        ada.open_tool(slug, "echo")
        ada.fill_argument(argument, "hello from ada")
        ada.page.keyboard.press("Control+Enter")
        for person in (ada, bob):
            expect(person.result()).to_contain_text("Succeeded")
            expect(person.result()).to_contain_text("hello from ada")
        assert "/tools/" in bob.page.url, "the second browser saw it without leaving its page"

        ada.open("/explorer/?q=last:1h+in:calls")
        row = ada.page.get_by_role("row").filter(has_text="Succeeded").filter(has_text="echo").first
        row.get_by_role("link").first.click()
        expect(ada.page.get_by_text("hello from ada").first).to_be_visible()


@pytest.mark.long
def test_a_second_admin_sees_session_state_and_progress_of_an_http_server_live(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    with run_peer("sdk2", "http") as url:
        ada.register_http("SDK two", url)
        ada.wait_for_state("Ready")
        bob.open_tool("sdk-two", "slow")
        ada.open_tool("sdk-two", "slow")
        ada.run_tool()
        expect(bob.result().get_by_role("progressbar")).to_be_visible()
        expect(ada.result()).to_contain_text("Succeeded", timeout=30_000)
        expect(bob.result()).to_contain_text("Succeeded")
        ada.page.get_by_role("button", name="Disconnect").click()
        bob.wait_for_state("Disconnected")
        ada.page.get_by_role("button", name="Connect", exact=True).click()
        bob.wait_for_state("Ready")


@pytest.mark.long
def test_a_call_is_cancelled_by_the_other_admin(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    command, arguments = peer_command("sdk1", "stdio")
    ada.register_stdio("Cancel me", command, arguments)
    ada.wait_for_state("Ready")
    bob.open_tool("cancel-me", "slow")
    ada.open_tool("cancel-me", "slow")
    ada.fill_argument("steps", "200")
    ada.run_tool()
    expect(bob.result()).to_contain_text("Running")
    bob.result().get_by_role("button", name="Cancel").click()
    expect(ada.result()).to_contain_text("Cancelled")
    expect(bob.result()).to_contain_text("Cancelled")


def test_the_demo_server_is_one_click_away_from_the_empty_page(fresh_stack, walker) -> None:
    ada = walker(fresh_stack)
    ada.use_setup_link(fresh_stack.setup_link, "ada", PASSWORD)
    ada.open("/servers/")
    ada.page.get_by_role("button", name="Add demo server").click()
    ada.wait_for_state("Ready")
    expect(ada.page.locator("#tool-list")).to_contain_text("countdown")
