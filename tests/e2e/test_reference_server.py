"""The reference server and a FastMCP server work for a new user: every kind of request, tasks, the log level."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.test_inbox import press, register, start
from tests.e2e.walk import Walk
from tests.peers.peers import HERE, peer_python
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
ELICITING = HERE / "eliciting_server.py"


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    return walker(stack, signed_in=True)


@pytest.fixture(scope="module")
def everything(stack: Stack) -> str:
    return register(stack, "Everything", "everything", "auto")


def answered(ada: Walk, card: Locator, fill: Callable[[], None]) -> None:
    """Go from the call's card to its request, answer it, and return to the call."""
    address = card.locator("header a.mono").get_attribute("href")
    card.get_by_role("link", name="Open the request").click()
    fill()
    expect(ada.page.locator("[data-question-over]")).to_contain_text("Delivered to the server")
    assert address is not None
    ada.open(address)


def test_the_form_of_the_reference_server_is_answered_without_a_false_alarm(
    stack: Stack, ada: Walk, everything: str
) -> None:
    card = start(stack, ada, everything, "trigger-elicitation-request")

    def fill() -> None:
        expect(ada.page.locator("#question-body")).to_contain_text("Please provide inputs")
        expect(ada.page.locator("#question-body")).not_to_contain_text("for a secret")
        ada.page.locator("[name='arg:/name']").fill("Ada Lovelace")
        press(ada, "Send")

    answered(ada, card, fill)
    expect(ada.page.locator("article").first).to_contain_text("User provided the requested information!")


@pytest.mark.long
def test_what_the_reference_server_asks_as_a_task_is_answered_and_its_call_goes_on(
    stack: Stack, ada: Walk, everything: str
) -> None:
    card = start(stack, ada, everything, "trigger-elicitation-request-async")

    def fill() -> None:
        ada.page.locator("[name='arg:/name']").fill("Ada")
        press(ada, "Send")

    answered(ada, card, fill)
    expect(ada.page.locator("article").first).to_contain_text("[COMPLETED] User provided", timeout=30_000)


def test_a_tool_that_runs_as_a_task_says_so_and_brings_its_result(stack: Stack, ada: Walk, everything: str) -> None:
    ada.open_tool(everything, "simulate-research-query")
    expect(ada.page.locator(".tool-h")).to_contain_text("Runs as a task")
    ada.fill_argument("topic", "tasks")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Runs as a task.")
    expect(ada.result()).to_contain_text("Research Report: tasks", timeout=60_000)


def test_an_unsafe_address_is_declined_without_a_person_and_the_inbox_says_why(
    stack: Stack, ada: Walk, everything: str
) -> None:
    ada.open_tool(everything, "trigger-url-elicitation")
    ada.fill_argument("url", "javascript:alert(document.domain)")
    ada.run_tool()
    expect(ada.result()).to_contain_text("User declined to open the URL")
    ada.open("/inbox/")
    row = ada.page.locator("tr[data-question-row]").filter(has_text="trigger-url-elicitation").first
    expect(row).to_contain_text("mcpadmin")
    row.get_by_role("link").first.click()
    over = ada.page.locator("[data-question-over]")
    expect(over).to_contain_text("Declined by mcpadmin")
    expect(over).to_contain_text("It is a javascript: address.")


def test_the_level_of_the_log_is_chosen_on_its_tab(stack: Stack, ada: Walk, everything: str) -> None:
    ada.open(f"/servers/{everything}/logs/")
    ada.page.get_by_label("Log level for Everything").select_option("error")
    ada.page.get_by_role("button", name="Set level").click()
    expect(ada.page.get_by_label("Log level for Everything")).to_have_value("error")
    expect(ada.page.locator("#console")).to_contain_text("asked for log messages at level error and above")


def test_the_tabs_of_a_server_with_every_capability_fit_into_the_window(ada: Walk, everything: str) -> None:
    ada.open_tool(everything, "echo")
    expect(ada.page.get_by_role("navigation", name="Server sections")).to_contain_text(re.compile(r"Prompts\s*4"))
    for width in (1440, 1280):
        ada.page.set_viewport_size({"width": width, "height": 900})
        assert ada.page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
        tabs = ada.page.get_by_role("navigation", name="Server sections")
        assert tabs.evaluate("row => row.scrollWidth - row.clientWidth") <= 0, f"tabs are cut off at {width}"


@pytest.mark.long
def test_a_fastmcp_tool_that_lost_its_way_to_ask_is_reconnected_as_legacy(stack: Stack, ada: Walk) -> None:
    command = [str(peer_python("fastmcp")), str(ELICITING)]
    stack.manage("register_server", "--user", ADMIN[0], "--name", "Eliciting", "--", *command)
    offered = (
        "SELECT 1 FROM servers_definition d JOIN servers_server s ON s.id = d.server_id WHERE s.slug = ? AND d.key = ?"
    )
    ada.until(lambda: bool(stack.rows(offered, "eliciting", "ask")), 60)
    ada.open_tool("eliciting", "ask")
    ada.run_tool()
    ada.result().get_by_role("link", name="Reconnect as legacy").click()
    ada.page.get_by_role("button", name="Reconnect as legacy").click()
    ada.wait_for_state("Ready")
    ada.until(lambda: stack.rows("SELECT era FROM mcp_sessions_mcpsession WHERE era = ?", "legacy") != [], 60)
    card = start(stack, ada, "eliciting", "ask")

    def fill() -> None:
        ada.page.locator("[name='arg:/city']").fill("Oslo")
        press(ada, "Send")

    answered(ada, card, fill)
    expect(ada.page.locator("article").first).to_contain_text("Oslo")
