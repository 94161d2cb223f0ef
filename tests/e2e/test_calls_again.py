"""One walk over calls that a person makes again: at once, edited, against the schema, saved, as a checklist, compared."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]
FORMS = str(Path(__file__).with_name("form_server.py"))


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    person = walker(stack, signed_in=True)
    if not stack.rows("SELECT slug FROM servers_server WHERE slug = 'again'"):
        stack.manage("register_server", "--user", ADMIN[0], "--name", "Again", "--", sys.executable, FORMS)
    person.open("/servers/again/tools/")
    person.wait_for_state("Ready")
    return person


def test_a_call_is_run_again_edited_sent_anyway_saved_and_checked(stack: Stack, ada: Walk) -> None:
    page, words = ada.page, f"words {uuid4().hex[:8]}"
    cards = page.locator("#results .call-slot")
    ada.open_tool("again", "shout")
    before = cards.count()
    ada.fill_argument("text", words)
    ada.run_tool()
    expect(ada.result()).to_contain_text(words.upper())
    first = ada.result().get_attribute("id")

    page.locator(f"#{first}").get_by_role("button", name="Run again").dblclick()
    expect(cards).to_have_count(before + 2)
    expect(ada.result()).to_contain_text(words.upper())
    second = str(ada.result().get_attribute("id"))
    assert second != first

    ada.result().get_by_role("link", name="Edit and run").click()
    expect(page).to_have_url(re.compile("call="))
    expect(page.get_by_text("Nothing was sent.")).to_be_visible()
    expect(page.locator("[name='arg:/text']")).to_have_value(words)
    expect(cards).to_have_count(before + 2)

    ada.open(f"/calls/{second.removeprefix('call-')}/")
    page.get_by_role("link", name="Compare with…").click()
    page.get_by_role("button", name="Compare").first.click()
    expect(page.get_by_text("No differences.")).to_have_count(2)

    ada.open_tool("again", "shout")
    page.get_by_role("button", name="JSON", exact=True).click()
    page.locator("[name=_json]").fill('{"text": 7}')
    ada.run_tool()
    page.get_by_role("button", name="Send anyway").click()
    expect(ada.result()).to_contain_text("Sent with invalid arguments")
    expect(ada.result()).to_contain_text("Succeeded")

    name = f"Saved {words}"
    page.locator("#tool-form summary", has_text="Save…").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Name", exact=True).press("Enter")
    expect(page.get_by_text(f"Saved as “{name}”")).to_be_visible()
    ada.open_tool("again", "shout")
    page.locator("[name=_json]").fill(f'{{"text": "other {words}"}}')  # the draft is still JSON
    page.locator("#tool-form summary", has_text="Save…").click()
    page.get_by_label("Name", exact=True).fill(f"Other {words}")
    page.get_by_role("button", name="Save", exact=True).click()
    entry = page.locator("#saved-calls li", has_text=f"Other {words}")
    entry.get_by_role("button", name="Run").click()
    expect(ada.result()).to_contain_text(f"OTHER {words.upper()}")

    ada.open("/servers/again/saved/")
    page.get_by_label("Select all saved calls").check()
    page.get_by_role("button", name="Run selected").click()
    expect(page.get_by_role("status").filter(has_text="1 of 2 succeeded")).to_be_visible()
    row = page.get_by_role("row").filter(has_text=f"Other {words}")
    expect(row.locator("[data-outcome]")).to_contain_text("Succeeded")
    wrong = page.get_by_role("row").filter(has_text=name)
    expect(wrong.locator("[data-outcome]").get_by_role("link", name="Needs confirmation")).to_be_visible()

    ada.complaints.allow("ERR_FAILED")
    page.route("**/saved-calls/*/run/", lambda route: route.abort())
    page.get_by_role("button", name="Run selected").click()
    expect(page.locator("[data-outcome]")).to_have_text(["Outcome unknown", "Not run"])


def saved(ada: Walk, name: str, text: str) -> None:
    page = ada.page
    ada.open_tool("again", "shout")
    if page.get_by_role("button", name="JSON", exact=True).is_visible():
        page.get_by_role("button", name="JSON", exact=True).click()
    page.locator("[name=_json]").fill(json.dumps({"text": text}))
    page.locator("#tool-form summary", has_text="Save…").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text(f"Saved as “{name}”")).to_be_visible()


def test_a_checklist_that_is_stopped_still_shows_how_its_running_call_ends(ada: Walk) -> None:
    page, name = ada.page, f"Nap {uuid4().hex[:8]}"
    saved(ada, name, "nap")
    ada.open("/servers/again/saved/")
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Run selected").click()
    cell = page.get_by_role("row").filter(has_text=name).locator("[data-outcome]")
    expect(cell).to_contain_text("#")
    page.get_by_role("button", name="Stop").click()
    total = page.locator("[data-checklist-sum]")
    expect(total).to_have_text("0 of 1 succeeded, 1 still running")
    expect(cell).to_contain_text("Succeeded", timeout=20_000)
    expect(total).to_have_text("1 of 1 succeeded")


@pytest.mark.parametrize("unknown", ["a proxy's page", "our own words"])
def test_what_may_have_been_placed_is_not_called_not_run(ada: Walk, unknown: str) -> None:
    page, name, ours = ada.page, f"Kept {uuid4().hex[:8]}", "Check whether the change was made before trying again."

    def answer(route: Route) -> None:
        if unknown == "our own words":
            route.fulfill(status=422, json={"message": ours, "unconfirmed": True})
        else:
            route.fulfill(status=503, content_type="text/html", body="<p>Bad day</p>")

    saved(ada, name, "any")
    ada.run_tool()
    expect(ada.result()).to_contain_text("ANY")
    ada.complaints.allow("503" if unknown == "a proxy's page" else "422")
    page.route("**/calls/*/repeat/", answer)
    page.route("**/saved-calls/*/run/", answer)
    ada.result().get_by_role("button", name="Run again").click()
    expect(page.get_by_text("No confirmation received")).to_be_visible()
    expect(page.get_by_text("Not run again")).to_have_count(0)
    ada.open("/servers/again/saved/")
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Run selected").click()
    cell = page.get_by_role("row").filter(has_text=name).locator("[data-outcome]")
    expect(cell).to_have_text("Outcome unknown")


def test_a_saved_call_has_every_value_of_its_form(stack: Stack, ada: Walk) -> None:
    """Fields that may be left out and lists have several values of one name."""
    command, arguments = peer_command("demo")
    stack.manage("register_server", "--user", ADMIN[0], "--name", "Kept", "--", command, *arguments)
    page = ada.page
    ada.open("/servers/kept/tools/")
    ada.wait_for_state("Ready")
    ada.open_tool("kept", "search_notes")
    page.get_by_role("button", name="JSON", exact=True).click()
    given = {"words": "a", "tags": ["work", "garden"], "with_text": True, "limit": 7}
    page.locator("[name=_json]").fill(json.dumps(given))
    page.get_by_role("button", name="Form", exact=True).click()
    page.locator("#tool-form summary", has_text="Save…").click()
    page.get_by_label("Name", exact=True).fill("All of it")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved as “All of it”")).to_be_visible()
    ada.open("/servers/kept/saved/")
    page.get_by_role("link", name="Edit and run: All of it").click()
    page.get_by_role("button", name="JSON", exact=True).click()
    kept = json.loads(page.locator("[name=_json]").input_value())
    assert {name: kept[name] for name in given} == given


def test_a_configuration_is_copied_from_the_head_of_a_server(ada: Walk) -> None:
    ada.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ada.page.get_by_role("button", name="Copy configuration").click()
    expect(ada.page.get_by_role("status").filter(has_text="Copied")).to_be_attached()
    document = json.loads(ada.page.evaluate("navigator.clipboard.readText()"))
    assert document["mcpServers"]["Again"]["command"] == sys.executable
