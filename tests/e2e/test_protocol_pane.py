"""The protocol pane stays open beside any tab of a server, and shows what is sent and answered at once. The Network tab
shows the HTTP requests that carried it. The server is one of the official SDK, over HTTP."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import APIResponse, Locator, Route, expect

from tests.e2e.looks import WINDOWS, faults
from tests.e2e.walk import Walk
from tests.peers.peers import run_peer
from tests.tools.stack import Stack

pytestmark = pytest.mark.browser


TOO_WIDE = """document.documentElement.scrollWidth > innerWidth
    && [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => `${one.localName}.${one.className}`).slice(0, 5)"""


#: before their peer ends: the product is that of other tests too
DISABLE = "from servers.models import Server; Server.objects.filter(slug__startswith='docked').update(enabled=False)"


@pytest.fixture(scope="module")
def url(stack: Stack) -> Iterator[str]:
    with run_peer("sdk2", "http") as address:
        yield address
        stack.shell(DISABLE)


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk], url: str) -> Walk:
    person = walker(stack, signed_in=True)
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'docked'"):
        person.register_http("Docked", url)
        person.wait_for_state("Ready")
    person.open_tool("docked", "echo")
    return person


def pane(person: Walk) -> Locator:
    return person.page.locator(".wire-pane")


def rows(person: Walk, words: str) -> Locator:
    return pane(person).locator("[data-console-rows] > ol > li").filter(has_text=words)


def run_echo(person: Walk, text: str) -> None:
    person.fill_argument("text", text)
    person.run_tool()
    expect(person.result()).to_contain_text(text)


def test_a_call_appears_in_the_open_pane_with_its_answer_and_without_a_reload(ada: Walk) -> None:
    asked: list[str] = []
    ada.page.on("request", lambda request: asked.append(request.url))
    ada.page.wait_for_load_state("networkidle")
    assert not [address for address in asked if "protocol" in address], "nothing is loaded before it opens"
    ada.page.get_by_role("button", name="Protocol pane").click()
    expect(rows(ada, "tools/list").first).to_be_visible()
    ada.page.evaluate("window.stayed = true")
    for number in range(1, 4):
        before = rows(ada, "tools/call").count()
        run_echo(ada, f"call number {number}")
        expect(rows(ada, "tools/call")).to_have_count(before + 1)
        expect(rows(ada, "tools/call").last).to_contain_text("Result")
    rows(ada, "tools/call").last.locator("summary").first.click()
    expect(rows(ada, "tools/call").last.locator(".wire-details")).to_contain_text("call number 3")
    assert ada.page.evaluate("window.stayed")
    assert "open=" not in ada.page.url, "the address stays that of the tab"


def test_a_call_made_while_the_pane_loads_appears_in_it(ada: Walk) -> None:
    held: list[tuple[Route, APIResponse]] = []
    ada.page.route("**/servers/docked/protocol/", lambda route: held.append((route, route.fetch())))
    ada.page.get_by_role("button", name="Protocol pane").click()
    ada.until(lambda: bool(held))
    run_echo(ada, "while it loads")
    route, response = held[0]
    before = response.text().count('data-of-call="')
    route.fulfill(response=response)
    expect(rows(ada, "tools/call")).to_have_count(before + 1)
    expect(rows(ada, "tools/call").last).to_contain_text("Result")
    ada.page.unroute_all()


def test_a_pane_whose_script_is_gone_says_so_and_is_not_pressed(ada: Walk) -> None:
    ada.complaints.allow("404")
    ada.page.route("**/js/wire-pane*.js", lambda route: route.fulfill(status=404))
    button = ada.page.get_by_role("button", name="Protocol pane")
    button.click()
    expect(ada.page.get_by_text("The protocol could not be loaded")).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "false")


def test_the_pane_stays_open_on_the_other_tabs_and_closes_by_esc(ada: Walk) -> None:
    button = ada.page.get_by_role("button", name="Protocol pane", exact=True)
    ada.page.locator("#main").focus()
    ada.page.keyboard.press("p")
    expect(pane(ada).locator("[data-console-box]")).to_be_focused()
    for tab in ("Logs", "Network", "History"):
        ada.page.locator(".tabs").get_by_role("link", name=tab).click()
        expect(rows(ada, "initialize").or_(rows(ada, "tools/list")).first).to_be_visible()
    pane(ada).get_by_label("Filter by method or name").fill("tools/list")
    expect(rows(ada, "resources/list")).to_have_count(0)
    assert "text=" not in ada.page.url
    pane(ada).get_by_label("Filter by method or name").press("Escape")
    expect(pane(ada)).to_have_count(0)
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-pressed", "false")
    ada.page.reload()
    expect(button).to_be_visible()
    ada.page.wait_for_load_state("networkidle")
    expect(pane(ada)).to_have_count(0)
    button.click()
    expect(rows(ada, "tools/list").first).to_be_visible()
    pane(ada).get_by_role("button", name="Close the protocol pane").click()
    expect(button).to_be_focused()


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_the_pane_has_no_accessibility_fault_and_fits_the_window(ada: Walk, width: int, theme: str) -> None:
    ada.page.set_viewport_size({"width": width, "height": 844})
    ada.page.evaluate("(theme) => document.documentElement.setAttribute('data-bs-theme', theme)", theme)
    ada.page.get_by_role("button", name="Protocol pane").click()
    expect(rows(ada, "tools/list").first).to_be_visible()
    rows(ada, "tools/list").first.locator("summary").first.click()
    expect(pane(ada).locator(".wire-facts")).to_be_visible()
    ada.page.evaluate("scrollTo(0, 0)")  # elsewhere the page's header may cover half of a button
    assert faults(ada.page) == []
    wide = ada.page.evaluate(TOO_WIDE)
    assert not wide, wide
    pane(ada).get_by_role("button", name="Close the protocol pane").click()


@pytest.mark.long
def test_the_network_tab_shows_the_http_request_of_a_call_while_it_happens(ada: Walk) -> None:
    ada.page.locator(".tabs").get_by_role("link", name="Network").click()
    requests = ada.page.locator(".network > li")
    expect(requests.filter(has_text="POST").first).to_be_visible()
    before = requests.filter(has_text="POST").count()
    other = ada.page.context.new_page()
    other.goto(ada.base_url + "/servers/docked/tools/?tool=echo")
    caller = Walk(other, ada.base_url, ada.complaints)
    expect(other.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    run_echo(caller, "over the network")

    def the_call_is_there() -> bool:
        """The session may measure its latency beside it."""
        for row in requests.filter(has_text="POST").all()[before:]:
            if row.locator("details[open]").count() == 0:
                row.locator("summary").first.click()
        return requests.filter(has_text="tools/call").count() == 1

    ada.until(the_call_is_there)
    newest = requests.filter(has_text="tools/call")
    expect(newest).to_contain_text("200")
    expect(newest.get_by_text("Request headers")).to_be_visible()
    expect(newest.locator(".wire-carried")).to_contain_text("tools/call")
    expect(newest.locator(".wire-heads")).to_contain_text(re.compile("content-type", re.IGNORECASE))
    ada.page.get_by_label("Outcome").select_option("failed")
    expect(ada.page.get_by_role("heading", name="No matching requests")).to_be_visible()


@pytest.mark.long
def test_two_calls_of_two_servers_are_compared_from_their_histories(ada: Walk, stack: Stack, url: str) -> None:
    run_echo(ada, "from the first")
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'docked-too'"):
        ada.register_http("Docked too", url)
        ada.wait_for_state("Ready")
    ada.open_tool("docked-too", "echo")
    run_echo(ada, "from the second")
    for slug in ("docked", "docked-too"):
        ada.open(f"/servers/{slug}/history/")
        ada.page.get_by_role("checkbox", name=re.compile("Compare call #")).first.check()
    bar = ada.page.locator("[data-compare-bar]")
    expect(bar).to_contain_text("Docked: echo")
    expect(bar).to_contain_text("Docked too: echo")
    bar.get_by_role("link", name="Compare").click()
    expect(ada.page.get_by_text("from the first").first).to_be_visible()
    expect(ada.page.get_by_text("from the second").first).to_be_visible()
    ada.page.go_back()
    ada.page.get_by_role("button", name="Clear").click()
    expect(bar).to_be_hidden()
