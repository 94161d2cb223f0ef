"""Resources and prompts work in real Chromium on the demo server: reading, watching another reader, completion,
prompts.
"""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from mcpadmin.settings import DEMO_COMMAND
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser]
READY_MS = 40_000
NewPage = Callable[..., Page]


@pytest.fixture
def demo(page: Page, stack: Stack) -> str:
    """The URL path of the demo server, once it is ready."""
    found = stack.rows("SELECT slug FROM servers_server WHERE name = 'Demo server'")
    if not found:
        command = tuple(DEMO_COMMAND)
        stack.manage("register_server", "--user", ADMIN[0], "--name", "Demo server", "--", *command)
        found = stack.rows("SELECT slug FROM servers_server WHERE name = 'Demo server'")
    address = f"/servers/{found[0]['slug']}"
    page.goto(f"{address}/tools/")
    expect(page.locator(".title .tag").first).to_contain_text("Ready", timeout=READY_MS)
    # An empty page reloads when the first list arrives. Wait for that, so that it does not happen during the test.
    expect(page.locator("#tool-list")).to_be_visible()
    return address


def open_live(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.get_by_role("status").filter(has_text="Live").first).to_be_visible()


def argument(page: Page, name: str) -> Locator:
    return page.locator(f"[data-argument={name}] textarea")


def targets(stack: Stack, method: str) -> list[str]:
    rows = stack.rows("SELECT method, target FROM mcp_sessions_call ORDER BY id")
    return [row["target"] for row in rows if row["method"] == method]


def test_a_reading_appears_in_its_place_for_the_reader_and_for_anyone_who_looks_on(
    page: Page, new_page: NewPage, demo: str, stack: Stack
) -> None:
    watcher = new_page()
    for one in (page, watcher):
        open_live(one, f"{demo}/resources/?uri=demo://readme")
        expect(one.get_by_text("Not read yet")).to_be_visible()
    page.get_by_role("button", name="Read now").click()
    for one in (page, watcher):
        content = one.locator("#resource-content")
        expect(content.locator("#kept-h")).to_contain_text("Read")
        expect(content).to_contain_text("# The demo server")
        expect(content).to_contain_text("by ada")
    assert targets(stack, "resources/read").count("demo://readme") == 1


def test_a_resource_that_is_chosen_from_the_list_is_read_and_a_link_to_it_only_opens_it(
    page: Page, new_page: NewPage, stack: Stack
) -> None:
    stack.manage("register_server", "--user", ADMIN[0], "--name", "Chosen demo", "--", *DEMO_COMMAND)
    open_live(page, "/servers/chosen-demo/resources/")
    readme = page.locator("#resource-list a[href^='?uri=']").filter(has_text="demo://readme")
    expect(readme).to_be_visible(timeout=READY_MS)
    other = new_page()
    open_live(other, "/servers/chosen-demo/resources/?uri=demo://clock")
    made = targets(stack, "resources/read")
    readme.click()
    expect(page.locator("#resource-content #kept-h")).to_contain_text("Read")
    expect(other.get_by_text("Not read yet")).to_be_visible()
    assert targets(stack, "resources/read") == [*made, "demo://readme"]


@pytest.mark.long
def test_a_call_that_runs_counts_its_seconds_on_its_card_and_in_the_history(
    page: Page, new_page: NewPage, demo: str
) -> None:
    open_live(page, f"{demo}/tools/?tool=countdown")
    page.locator("#arg-start").fill("40")
    page.get_by_role("button", name="Run tool").click()
    card = page.locator("#results .call-slot").first
    expect(card).to_contain_text(re.compile("running for [3-9] s"))
    history = new_page()
    open_live(history, f"{demo}/history/")
    shown = history.locator("tr[data-call-row]").first.locator("time[data-elapsed]")
    before = shown.inner_text()
    expect(shown).not_to_have_text(before)
    card.get_by_role("button", name="Cancel").click()
    expect(card.locator("time[data-elapsed]")).to_have_count(0)


@pytest.mark.long
def test_reading_again_replaces_what_was_kept(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/resources/?uri=demo://clock")
    number = page.locator("#resource-content [aria-labelledby=kept-h] header a.mono")
    page.get_by_role("button", name="Read now").click()
    expect(number).to_have_text(re.compile(r"#\d+"))
    before = number.inner_text()
    page.get_by_role("button", name="Read now").click()
    expect(number).not_to_have_text(before)


@pytest.mark.long
def test_a_template_is_filled_in_with_the_keyboard_alone_and_its_address_can_be_shared(
    page: Page, new_page: NewPage, demo: str, stack: Stack
) -> None:
    open_live(page, f"{demo}/resources/?template=demo://notes/%7Bname%7D")
    field = argument(page, "name")
    field.press_sequentially("sta")
    expect(page.get_by_role("option", name="standup")).to_be_visible()
    expect(page.locator("#resource-uri")).to_have_text("demo://notes/sta")
    field.press("ArrowDown")
    active = field.get_attribute("aria-activedescendant") or ""
    expect(page.locator(f"#{active}")).to_have_attribute("aria-selected", "true")
    field.press("Enter")
    expect(field).to_have_value("standup")
    expect(page.locator("#resource-uri")).to_have_text("demo://notes/standup")
    field.press("Enter")
    expect(page.locator("#resource-content")).to_contain_text("Stand-up")
    other = new_page()
    open_live(other, page.url)
    expect(argument(other, "name")).to_have_value("standup")
    expect(other.locator("#resource-content")).to_contain_text("Stand-up")
    assert targets(stack, "resources/read").count("demo://notes/standup") == 1


def test_a_missing_value_is_said_at_its_field_and_nothing_is_read(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/resources/?template=demo://notes/%7Bname%7D")
    page.get_by_role("button", name="Read now").click()
    expect(page.locator("[data-error]:visible")).to_have_text("Enter a value.")
    expect(argument(page, "name")).to_be_focused()
    expect(page.locator("#read-slot .card")).to_have_count(0)
    argument(page, "name").fill("half a na")
    page.reload()
    expect(argument(page, "name")).to_have_value("half a na")
    expect(page.locator("#resource-uri")).to_have_text("demo://notes/half%20a%20na")
    page.get_by_role("button", name="Clear").click()
    expect(argument(page, "name")).to_have_value("")


def test_a_page_that_is_opened_without_a_choice_keeps_the_resource_that_it_shows(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/resources/?find=read")
    expect(page.locator("#resource-content")).to_have_attribute("data-uri", "demo://readme")
    assert page.url.endswith(f"{demo}/resources/?find=read&uri=demo%3A%2F%2Freadme")
    open_live(page, f"{demo}/resources/?find=note")
    expect(page.locator("#resource-uri")).to_be_attached()
    assert page.url.endswith(f"{demo}/resources/?find=note&template=demo%3A%2F%2Fnotes%2F%7Bname%7D")


def test_a_resource_that_is_not_there_shows_the_servers_error(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/resources/?uri=demo://nothing")
    expect(page.get_by_text("The server does not list this URI")).to_be_visible()
    page.get_by_role("button", name="Read now").click()
    expect(page.locator("#resource-content")).to_contain_text("Resource not found")
    expect(page.get_by_text("Not read yet")).to_have_count(0)


def test_after_a_refused_read_the_content_of_another_uri_is_not_under_the_new_one(
    page: Page, new_page: NewPage, stack: Stack
) -> None:
    stack.manage("register_server", "--user", ADMIN[0], "--name", "Refusing demo", "--", *DEMO_COMMAND)
    page.goto("/servers/refusing-demo/tools/")
    expect(page.locator(".title .tag").first).to_contain_text("Ready", timeout=READY_MS)
    expect(page.locator("#tool-list")).to_be_visible()
    open_live(page, "/servers/refusing-demo/resources/?template=demo://notes/%7Bname%7D&arg.name=standup")
    page.get_by_role("button", name="Read now").click()
    content = page.locator("#resource-content")
    expect(content).to_contain_text("Nothing else.")
    other = new_page()
    other.goto("/servers/refusing-demo/disable/")
    other.get_by_role("button", name="Disable").click()
    expect(page.locator(".title .tag").first).to_contain_text("Disabled", timeout=READY_MS)
    argument(page, "name").fill("lisbon")
    page.get_by_role("button", name="Read now").click()
    expect(page.locator("[data-call-refused]")).to_contain_text("disabled")
    expect(content).to_contain_text("Not read yet")
    expect(content).not_to_contain_text("Nothing else.")


def test_a_prompt_is_completed_got_and_shown_message_by_message(page: Page, demo: str, stack: Stack) -> None:
    open_live(page, f"{demo}/prompts/?prompt=summarise")
    page.get_by_role("button", name="Get prompt").click()
    expect(page.locator("[data-error]:visible")).to_have_text("Enter a value.")
    field = argument(page, "note")
    field.press_sequentially("comp")
    page.get_by_role("option", name="compost").click()
    expect(field).to_have_value("compost")
    field.press("Control+Enter")
    card = page.locator("#results .call-slot").first
    expect(card).to_contain_text("Messages 2")
    expect(card.locator(".tag", has_text="user")).to_have_count(2)
    expect(card).to_contain_text("Summarise the note “Compost” (short).")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.get_by_role("button", name="Copy as messages").click()
    expect(card.locator("[data-copied=Copied]")).to_be_attached()
    messages = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert [message["role"] for message in messages] == ["user", "user"]
    assert "ref/prompt:summarise" in targets(stack, "completion/complete")


def test_a_link_in_a_result_is_read_in_its_place_once(page: Page, demo: str, stack: Stack) -> None:
    open_live(page, f"{demo}/tools/?tool=search_notes")
    page.locator("form [data-run]").first.click()
    card = page.locator("#results .call-slot").first
    card.get_by_role("tab", name="Content").click()
    before = len(targets(stack, "resources/read"))
    card.get_by_role("button", name="Read here").first.click()
    expect(card.locator("[data-read-link] + div .card")).to_contain_text("Contents 1")
    expect(card.locator("[data-read-link] + div .card")).to_have_count(1)
    assert len(targets(stack, "resources/read")) == before + 1


def test_what_is_typed_in_a_breath_is_completed_once(page: Page, demo: str, stack: Stack) -> None:
    open_live(page, f"{demo}/prompts/?prompt=explain")
    before = len(targets(stack, "completion/complete"))
    argument(page, "topic").press_sequentially("subs", delay=20)
    expect(page.get_by_role("option", name="subscriptions")).to_be_visible()
    assert len(targets(stack, "completion/complete")) == before + 1


def test_escape_closes_the_suggestions_and_keeps_what_is_typed(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/prompts/?prompt=explain")
    field = argument(page, "topic")
    field.press_sequentially("to")
    expect(page.get_by_role("listbox")).to_be_visible()
    field.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(field).to_have_value("to")


@pytest.mark.long
def test_a_prompt_that_someone_else_gets_appears_too_and_a_tool_of_the_same_page_does_not(
    page: Page, new_page: NewPage, demo: str
) -> None:
    other = new_page()
    open_live(page, f"{demo}/prompts/?prompt=explain")
    open_live(other, f"{demo}/prompts/?prompt=explain&arg.topic=sampling")
    other.get_by_role("button", name="Get prompt").click()
    expect(page.locator("#results")).to_contain_text("Explain sampling of the Model Context Protocol")


@pytest.mark.long
def test_a_reading_is_made_again_from_its_own_page(page: Page, demo: str) -> None:
    open_live(page, f"{demo}/history/?method=resources/read")
    page.locator("#history-calls tbody a").first.click()
    page.get_by_role("button", name="Read again").click()
    expect(page.get_by_text("Repeats")).to_be_visible()
    expect(page.get_by_role("link", name="Open the resource")).to_be_visible()
