"""What a person can see and press on a phone, with long names, and below the notice of a lost connection."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import Walk
from tests.screenshots.judge import overflow
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]
FORMS = str(Path(__file__).with_name("form_server.py"))
LONG = "Warehouse and fulfilment of the eastern region, staging environment for integration tests of partners"


@pytest.fixture
def on_phone(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    return _at(stack, walker, 390, 844)


@pytest.fixture
def at_desk(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    return _at(stack, walker, 1440, 900)


def _at(stack: Stack, walker: Callable[..., Walk], width: int, height: int) -> Walk:
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'long'"):
        stack.manage(
            "register_server", "--user", ADMIN[0], "--name", LONG, "--slug", "long", "--", sys.executable, FORMS
        )
    person = walker(stack, signed_in=True, viewport={"width": width, "height": height})
    person.open("/servers/long/logs/")
    person.wait_for_state("Ready")
    return person


def lines(place: Locator) -> int:
    """Of text."""
    return int(
        place.evaluate(
            "element => { const range = document.createRange(); range.selectNodeContents(element);"
            " return new Set([...range.getClientRects()].map((box) => Math.round(box.top / 4))).size; }"
        )
    )


@pytest.mark.long
def test_a_call_in_the_history_is_chosen_for_comparing_by_a_tap(on_phone: Walk) -> None:
    on_phone.open_tool("long", "shout")
    on_phone.fill_argument("text", "hello")
    on_phone.run_tool()
    expect(on_phone.result()).to_contain_text("HELLO")
    on_phone.open("/servers/long/history/")
    box = on_phone.page.get_by_role("checkbox", name="Compare call").first
    place = box.bounding_box()
    assert place is not None
    on_phone.page.mouse.click(place["x"] - 6, place["y"] + place["height"] / 2)  # as inexact as a finger
    expect(box).to_be_checked()
    assert "/history/" in on_phone.page.url


@pytest.mark.long
def test_the_words_of_the_breadcrumb_and_the_type_of_a_parameter_stay_whole(on_phone: Walk) -> None:
    on_phone.open("/servers/long/delete/")
    assert lines(on_phone.page.get_by_label("Breadcrumb").get_by_role("link", name="Servers")) == 1
    on_phone.open_tool("long", "shout")
    on_phone.fill_argument("text", "hello")
    on_phone.run_tool()
    on_phone.result().get_by_role("heading", name="Call").get_by_role("link").click()
    for part in on_phone.page.get_by_label("Breadcrumb").locator("> [aria-current], > a:first-child").all():
        assert lines(part) == 1, part.inner_text()
    on_phone.open_tool("long", "order")
    on_phone.page.locator("#tool-form .sf-more summary").click()
    for kind in on_phone.page.locator("#tool-form .ty").all():
        if kind.is_visible():
            assert lines(kind) == 1, kind.inner_text()


def test_arrow_keys_move_through_the_list_of_tools_and_enter_opens_one(on_phone: Walk) -> None:
    on_phone.open_tool("long", "shout")
    address, chosen = on_phone.page.url, on_phone.page.get_by_label("Tool", exact=True)
    chosen.focus()
    before = chosen.input_value()
    for _ in range(2):
        on_phone.page.keyboard.press("ArrowDown")
    on_phone.page.wait_for_timeout(300)
    assert on_phone.page.url == address
    tool = chosen.input_value()
    assert tool != before
    on_phone.page.keyboard.press("Enter")
    on_phone.page.wait_for_url(f"**/tools/?tool={tool}")


def test_no_page_is_wider_than_a_window_at_four_times_its_size(on_phone: Walk) -> None:
    on_phone.page.set_viewport_size({"width": 320, "height": 256})
    tabs = ("info", "tools", "settings", "protocol", "history")
    for path in ("/", "/servers/", "/explorer/", "/account/", *(f"/servers/long/{tab}/" for tab in tabs)):
        on_phone.open(path)
        assert overflow(on_phone.page) == [], path


def test_the_icon_of_a_server_is_beside_its_long_name(at_desk: Walk, on_phone: Walk) -> None:
    for person in (at_desk, on_phone):
        icon = person.page.locator(".title .srv-ic").bounding_box()
        name = person.page.locator(".title h1").bounding_box()
        assert icon is not None
        assert name is not None
        assert icon["x"] + icon["width"] <= name["x"]
        assert name["y"] < icon["y"] + icon["height"]


def test_the_run_button_stays_in_the_window_below_the_notice_of_a_lost_connection(at_desk: Walk) -> None:
    at_desk.complaints.allow("ERR_INTERNET_DISCONNECTED")
    at_desk.open_tool("long", "order")
    at_desk.page.context.set_offline(True)
    expect(at_desk.page.get_by_text("You are offline")).to_be_visible()
    button = at_desk.page.get_by_role("button", name="Run tool")
    expect(button).to_be_in_viewport(ratio=1)
    assert at_desk.page.evaluate("document.documentElement.scrollHeight <= innerHeight")


def test_a_token_says_whose_it_is_and_when_it_ends_and_a_bundle_what_it_offers(on_phone: Walk) -> None:
    on_phone.open("/agents/tokens/new/")
    on_phone.page.get_by_role("textbox", name="Name", exact=True).fill("Laptop")
    on_phone.page.get_by_role("button", name="Create token").click()
    expect(on_phone.page.get_by_text("shown only once")).to_be_visible()
    on_phone.open("/agents/")
    token = on_phone.page.get_by_role("region", name="Tokens and grants").locator("tr", has_text="Laptop").first
    expect(token.get_by_text(ADMIN[0], exact=True)).to_be_visible()
    expect(token.get_by_text("Expires", exact=True)).to_be_visible()
    on_phone.open("/agents/bundles/add/")
    on_phone.page.get_by_role("textbox", name="Name", exact=True).fill("Small")
    on_phone.page.locator("#id_add").select_option(LONG)
    on_phone.page.get_by_role("button", name="Create").click()
    expect(on_phone.page.locator("td", has_text="Offered").first).to_be_visible()
    assert on_phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
