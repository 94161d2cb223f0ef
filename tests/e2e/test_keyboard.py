"""Work without a mouse: the palette finds and does, `g` and a letter reach every page."""

import sys

import pytest
from playwright.sync_api import expect

from mcpadmin.settings import DEMO_COMMAND
from tests.e2e.looks import WINDOWS, faults, resized
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
PAGES = {
    **{"s": "/servers/", "n": "/sessions/", "i": "/inbox/", "u": "/subscriptions/", "g": "/agents/"},
    **{"b": "/agents/bundles/", "c": "/credentials/", "e": "/explorer/", "a": "/explorer/", "x": "/exports/"},
    **{
        "p": "/users/",
        "j": "/jobs/",
        "t": "/storage/",
        "v": "/privacy/",
        ",": "/settings/",
        "m": "/account/",
        "o": "/",
    },
}


SAVE = """fetch('/servers/orders/saved/add/?method=tools/call&target=greet', {
  method: 'POST',
  headers: { 'X-CSRFToken': document.body.dataset.csrf, Accept: 'application/json' },
  body: new URLSearchParams({ _name: 'Say hello', _mode: 'json', _json: '{"name": "Ada"}', _filled: '1' }),
}).then((answer) => answer.status)"""


def choose(person, words: str) -> None:
    person.page.wait_for_load_state("domcontentloaded")  # the keys work from here on
    person.page.keyboard.press("Control+k")
    person.page.keyboard.type(words)
    expect(person.page.locator("#palette [role=option]").first).to_contain_text(words.split()[-1], ignore_case=True)
    person.page.keyboard.press("Enter")


@pytest.mark.long
def test_g_and_a_letter_reach_every_page_of_the_side_bar(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.open("/")
    listed = ada.page.locator(".side nav a").evaluate_all("links => links.map(link => link.pathname)")
    assert set(listed) | {"/account/"} == set(PAGES.values())
    for letter, path in PAGES.items():
        ada.page.locator("h1").first.click()
        ada.page.keyboard.press("g")
        ada.page.keyboard.press(letter)
        ada.page.wait_for_url(lambda url, path=path: url.split("?")[0].endswith(own_stack.base_url.rstrip("/") + path))


def test_the_end_of_a_call_is_announced_and_its_button_keeps_the_focus(own_stack, walker) -> None:
    slug = own_stack.register("Spoken", peer_command("demo"))
    ada = walker(own_stack, signed_in=True)
    ada.open(f"/servers/{slug}/tools/")
    ada.wait_for_state("Ready")
    ada.open_tool(slug, "greet")
    expect(ada.page.locator("[data-announced]")).to_be_empty()
    ada.fill_argument("name", "Ada")
    button = ada.page.get_by_role("button", name="Run tool")
    button.press("Enter")
    expect(ada.result()).to_contain_text("Succeeded")
    expect(button).to_be_focused()
    number = own_stack.rows("SELECT max(id) AS id FROM mcp_sessions_call")[0]["id"]
    expect(ada.page.locator("[data-announced]")).to_have_text(f"Call #{number}: Succeeded")


def test_the_palette_does_things(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.register_stdio("Orders", sys.executable, DEMO_COMMAND[1:])
    ada.wait_for_state("Ready")
    ada.open_tool("orders", "greet")
    ada.page.keyboard.press("f")
    expect(ada.page.get_by_role("button", name="JSON", exact=True)).to_have_attribute("aria-pressed", "true")
    ada.page.locator("h2", has_text="Greet").first.click()
    ada.page.keyboard.press("f")
    expect(ada.page.get_by_role("button", name="Form", exact=True)).to_have_attribute("aria-pressed", "true")
    ada.fill_argument("name", "Ada")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    number = own_stack.rows("SELECT max(id) AS id FROM mcp_sessions_call")[0]["id"]
    choose(ada, f"#{number}")
    expect(ada.page.get_by_text(f"Call #{number}").first).to_be_visible()
    assert ada.page.evaluate(SAVE) == 200
    choose(ada, "say hello")
    expect(ada.page.get_by_text(f"Call #{number + 1}").first).to_be_visible()
    choose(ada, "reconnect orders")
    expect(ada.page.get_by_text("Reconnecting Orders")).to_be_visible()
    choose(ada, "add server")
    expect(ada.page.get_by_role("heading", name="Add server")).to_be_visible()
    choose(ada, "dark")
    expect(ada.page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    choose(ada, "light")
    ada.complaints.allow("401")  # the page asks for its live connection while it is signed out
    choose(ada, "sign out")
    expect(ada.page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_palette_and_help_are_accessible(own_stack, walker, width: int, theme: str) -> None:
    """Signs in: a test before this one signs out the browser that others share."""
    ada = resized(walker(own_stack), width, theme)
    ada.open("/")
    ada.sign_in(*ADMIN)
    ada.page.keyboard.press("?")
    expect(ada.page.locator("#shortcuts")).to_be_visible()
    found = faults(ada.page)
    ada.page.keyboard.press("Escape")
    ada.page.keyboard.press("Control+k")
    expect(ada.page.locator("#palette [role=option]").first).to_be_visible()
    pages = ada.page.locator("#palette [role=option]").filter(has=ada.page.get_by_text("Page", exact=True))
    icons = pages.locator("svg").evaluate_all("found => found.map(one => one.innerHTML)")
    assert len(set(icons)) == len(icons) > 15, "each page has its own icon"
    ada.page.keyboard.type("theme")
    expect(ada.page.locator("#palette [role=option]")).to_have_count(3)
    assert found + faults(ada.page) == []
    ada.page.keyboard.press("Escape")
    expect(ada.page.locator("#palette")).not_to_be_visible()
