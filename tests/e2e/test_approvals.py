"""A person makes a tool ask, an agent calls it, and the person decides in the inbox: yes once, no once."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.sessions.agents.product import Agent, Product, in_background
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture
def agent(stack: Stack) -> Agent:
    product = Product(stack, Path())
    product.register("Ours", peer_command("demo"))
    made = product.agent(product.token("list", "read", "call"), "ours")
    assert made.initialize().status_code == 200
    assert made.ask("tools/list")["result"]["tools"]
    return made


def opened(page: Page, name: str) -> None:
    """The request for approval of a call with this argument, once it appears in the open inbox."""
    page.locator("#inbox-approvals [data-approval-row]").get_by_role("link").click()
    expect(page.locator("#approval-body")).to_contain_text(name)


def test_a_call_that_asks_runs_when_a_person_approves_it_and_not_when_they_refuse(
    stack: Stack, walker: Any, agent: Agent
) -> None:
    ada: Walk = walker(stack, signed_in=True)
    page = ada.page
    ada.open("/servers/ours/agents/")
    form = page.get_by_role("form", name="New rule")
    form.get_by_label("Name or URI").fill("gr*")
    form.get_by_role("button", name="Add rule").click()
    expect(page.get_by_role("row").filter(has_text="greet")).to_contain_text("Rule “Ask gr*” of the endpoint Ours.")

    def greet(name: str) -> tuple[Any, list[Any]]:
        call = {"name": "greet", "arguments": {"name": name}}
        return in_background(lambda: agent.ask("tools/call", call)["result"])

    ada.open("/inbox/")
    thread, told = greet("Olga")
    opened(page, "Olga")
    page.get_by_role("button", name="Approve this call").click()
    thread.join(30)
    assert told[0]["content"][0]["text"] == "Hello, Olga!"
    expect(page.locator("#approval-body")).to_contain_text("Approved by ada")

    ada.open("/inbox/")
    thread, told = greet("Bea")
    opened(page, "Bea")
    page.get_by_label("Reason for refusing").fill("Not today.")
    page.get_by_role("button", name="Refuse").click()
    thread.join(30)
    assert told[0]["isError"] is True
    assert "Not today." in told[0]["content"][0]["text"]
    expect(page.locator("#approval-body")).to_contain_text("Refused by ada")
    page.get_by_role("link", name="View call").click()
    expect(page.get_by_text("Not today.").first).to_be_visible()
