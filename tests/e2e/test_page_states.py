"""Each page in each of its states: its main path, empty, loading, an error, without the permission, and offline.

The pages come from the URLconf (tests/e2e/every_page.py), so that a new one cannot be forgotten.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.urls import Resolver404
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.e2e.conftest import cookies_of
from tests.e2e.every_page import MORE, NOT_PAGES, Every, fill, pages, route_of
from tests.e2e.sockets import Visitor
from tests.e2e.walk import Walk
from tests.screenshots.judge import accessibility, load_axe_with_each_page, overflow
from tests.screenshots.pages import SIZES, THEMES
from tests.screenshots.shot import Shot
from tests.test_routes import CALLS_TOO, LOOKS, SAMPLES
from tests.tools.browser import watched_context
from tests.tools.stack import ADMIN, Stack
from tests.tools.url_routes import written_routes

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
GUEST = ("vera", ADMIN[1])
GUEST_ROW = f"""
from django.contrib.auth.models import Permission, User
user = User.objects.create_user({GUEST[0]!r}, password={GUEST[1]!r})
user.user_permissions.add(Permission.objects.get(codename="view_server"))
"""
WINDOWS = [(size, theme) for theme in THEMES for size in SIZES]


# --- empty -----------------------------------------------------------------------------------------------------------
#: Of a product without servers (the tests of this part come before the fixture `world`): path, words, next step.
EMPTY = {
    "overview": ("/", "No servers yet", "Add server"),
    "servers:list": ("/servers/", "No servers yet", "Add server"),
    "sessions": ("/sessions/", "No sessions", "Go to servers"),
    "credentials:list": ("/credentials/", "No credentials yet", "Add credential"),
    "credentials:references": ("/credentials/references/", "No grants", "Grant"),
    "jobs:list": ("/jobs/", "No jobs yet", ""),
    "privacy:index": ("/privacy/", "No rules", "Add rule"),
    "exports:list": ("/exports/", "No exports yet", "Export"),
    "browser_reports:list": ("/browser-reports/list/", "No reports", ""),
    "oauth:clients": ("/oauth/clients/", "None yet", "Add client"),
    "agents:list": ("/agents/", "No tokens yet", "New token"),
    "agents:bundles": ("/agents/bundles/", "No bundles yet", "New bundle"),
    "explorer:page": ("/explorer/?q=last:1h+in:calls", "Nothing found", ""),
    "explorer:charts": ("/explorer/charts/", "No calls in this range", ""),
    "inbox:list": ("/inbox/", "No requests waiting", ""),
    "subscriptions:list": ("/subscriptions/", "No subscriptions yet", "Go to servers"),
    "users:list": ("/users/?text=nobody-has-this-name", "No matching users", ""),
    "settings:index": ("/settings/?text=nothing-has-this-name", "No matching settings", ""),
    "servers:export": ("/servers/export/", "No servers to export", ""),
}
#: Of a server that never connected: tab, words, next step.
EMPTY_TABS = {
    "servers:tools": ("tools/", "Disabled", ""),
    "servers:resources": ("resources/", "Disabled", ""),
    "servers:prompts": ("prompts/", "Disabled", ""),
    "servers:tasks": ("tasks/", "No tasks yet", ""),
    "servers:logs": ("logs/", "Nothing logged yet", ""),
    "servers:protocol": ("protocol/", "No messages yet", ""),
    "servers:network": ("network/", "No requests yet", ""),
    "servers:history": ("history/", "No calls stored", "Run a tool"),
    "servers:saved": ("saved/", "No saved calls", "Open the tools"),
    "servers:package": ("package/", "No package", ""),
    "servers:agent_policy": ("agents/", "No rules", "Add rule"),
}
#: Other pages without a parameter, or of a server only: forms, and pages that always have contents.
NEVER_EMPTY = {
    *(
        "audit:proof",
        "storage:index",
        "users:groups",
        "own:account",
        "jobs:rotate_keys",
        "oauth:authorize",
        "servers:import",
    ),
    *("credentials:add", "privacy:add_rule", "exports:add", "exports:add_schedule", "exports:add_sink", "users:invite"),
    *("users:add_service_account", "users:add_group", "oauth:add", "servers:add", "agents:issue", "agents:add_bundle"),
    *(
        "agents:import_bundle",
        "servers:settings",
        "servers:info",
        "servers:clone",
        "servers:identity",
        "servers:sign_in",
    ),
    *("servers:own_credential", "servers:give_up_identity", "servers:legacy", "servers:disable", "servers:archive"),
    "servers:delete",
}


def emptiness(page: Page, path: str, words: str, step: str) -> list[str]:
    """What the page lacks that has nothing to show."""
    page.goto(path)
    main = page.locator("#main")
    said = main.get_by_text(words).first
    found = [] if said.is_visible() else [f"does not say {words!r}: {main.inner_text()[:600]!r}"]
    if step and not main.get_by_role("link", name=step).or_(main.get_by_role("button", name=step)).first.is_visible():
        found.append(f"has no step {step!r}")
    return found + overflow(page)


@pytest.mark.long
def test_a_page_without_contents_says_what_will_be_there_and_what_to_do_next(
    own_stack: Stack, walker: Callable[..., Walk]
) -> None:
    assert own_stack.rows("SELECT 1 FROM servers_server") == [], "this test comes first in its file"
    own_stack.write("DELETE FROM servers_backgroundjob")
    ada, found = walker(own_stack, signed_in=True), []
    for number, (path, words, step) in enumerate(EMPTY.values()):
        set_window(ada.page, *WINDOWS[number % len(WINDOWS)])
        found += [f"{path}: {fault}" for fault in emptiness(ada.page, path, words, step) + accessibility(ada.page)]
    own_stack.manage(
        "register_server", "--user", ADMIN[0], "--disabled", "--name", "Bare", "--url", "https://bare.example/mcp"
    )
    for number, (tab, words, step) in enumerate(EMPTY_TABS.values()):
        set_window(ada.page, *WINDOWS[number % len(WINDOWS)])
        faults = emptiness(ada.page, f"/servers/bare/{tab}", words, step) + accessibility(ada.page)
        found += [f"{tab}: {fault}" for fault in faults]
    own_stack.shell("from servers.models import Server; Server.objects.all().delete()")
    assert found == [], "\n".join(found)


@pytest.fixture(scope="module")
def world(own_stack: Stack) -> Every:
    own_stack.shell(GUEST_ROW)
    return fill(own_stack)


# --- main path -------------------------------------------------------------------------------------------------------
def visit(page: Page, shot: Shot, world: Every) -> list[str]:
    """Open a page at the width of a phone: what is wrong with it."""
    page.set_viewport_size(_window("phone"))
    answer = page.goto(shot.path(world))
    assert answer is not None
    found = overflow(page)
    if answer.status != 200:
        found.append(f"answered {answer.status}")
    if (headings := page.locator("h1").count()) != 1:
        found.append(f"{headings} headings of the first level")
    shell = page.locator("[data-live-pill]").count()
    if shell and not page.locator("[data-offline]").count():
        found.append("no place that says that the page is offline")
    return found


def _window(size: str) -> Any:
    return dict(zip(("width", "height"), SIZES[size], strict=True))


#: Colours change in transitions, however short: until the last has ended, a text may have those of neither theme.
SETTLED = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  .then(() => Promise.allSettled(document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished)))
  .then(() => true)"""


def set_window(page: Page, size: str, theme: Any) -> None:
    """For the page that is opened next."""
    page.set_viewport_size(_window(size))
    page.emulate_media(color_scheme=theme)


def dress(page: Page, size: str, theme: Any) -> None:
    """Also for the page that is open: returns when it looks like that."""
    set_window(page, size, theme)
    if page.url.startswith("http"):  # the page follows its browser a moment later
        expect(page.locator(f"html[data-bs-theme={theme}]")).to_be_attached()
        page.evaluate(SETTLED)


def named(shot: Shot, world: Every, found: list[str]) -> list[str]:
    return [f"{shot.name} ({shot.path(world)[:60]}): {problem}" for problem in found]


@contextmanager
def two_visitors(browser: Browser, stack: Stack) -> Iterator[Callable[[Shot], Page]]:
    """The page of the administrator, and that of a visitor who is not signed in. Fails at the end if one complained."""
    cookies = cookies_of(stack, ADMIN)
    with (
        watched_context(browser, stack.base_url, cookies=cookies) as (inside, first),
        watched_context(browser, stack.base_url) as (outside, second),
    ):
        signed_in, visitor = inside.new_page(), outside.new_page()
        for page in (signed_in, visitor):
            load_axe_with_each_page(page)
        yield lambda shot: signed_in if shot.signed_in else visitor
        assert first.unexpected() + second.unexpected() == []


def test_every_route_is_a_page_of_this_walk_or_named_as_none(world: Every, own_stack: Stack) -> None:
    walked = {route_of(shot.path(world)) for shot in pages(world)}
    visitor = Visitor(own_stack, ADMIN)
    forgotten = []
    for route in written_routes():
        if route.name in walked or route.name in NOT_PAGES:
            continue
        path = re.sub("<[^>]+>", lambda found: SAMPLES[found[0]], route.written)
        if visitor.get(path).status_code != 405:  # not an action
            forgotten.append(route.name)
    visitor.close()
    assert forgotten == []
    assert walked.isdisjoint(NOT_PAGES)


def test_every_list_has_words_for_its_emptiness(world: Every) -> None:
    walked = {route_of(shot.path(world)) for shot in pages(world)}
    lists = {
        route.name for route in written_routes() if route.written.replace("/servers/<slug:slug>/", "/").count("<") == 0
    }
    assert sorted(lists & walked - EMPTY.keys() - EMPTY_TABS.keys() - NEVER_EMPTY) == []


def test_every_page_opens_without_a_fault_and_is_accessible_in_one_window(
    world: Every, own_stack: Stack, browser: Browser
) -> None:
    """One page of each route, at the width of a phone and in one of the four windows in turn, every third with its
    contrasts."""
    found = []
    one_of_each = {route_of(shot.path(world)): shot for shot in reversed(pages(world))}
    with two_visitors(browser, own_stack) as page_of:
        for number, shot in enumerate(one_of_each.values()):
            page, window = page_of(shot), WINDOWS[number % len(WINDOWS)]
            page.emulate_media(color_scheme=window[1])
            faults = visit(page, shot, world)
            dress(page, *window)
            judged = overflow(page) + accessibility(page, contrast=number % 3 == 0)
            found += named(shot, world, faults + [f"{window}: {fault}" for fault in judged])
    assert found == [], "\n".join(found)
    assert own_stack.rows("SELECT * FROM servers_browserreport") == []


@pytest.mark.long
def test_every_page_and_each_view_of_it_is_accessible_at_both_widths_in_both_themes(
    world: Every, own_stack: Stack, browser: Browser
) -> None:
    found = []
    with two_visitors(browser, own_stack) as page_of:
        for shot in pages(world):
            page = page_of(shot)
            faults = visit(page, shot, world)
            for window in WINDOWS:
                dress(page, *window)
                faults += [f"{window}: {fault}" for fault in overflow(page) + accessibility(page)]
            found += named(shot, world, faults)
    assert found == [], "\n".join(found)
    assert own_stack.rows("SELECT * FROM servers_browserreport") == []


# --- no permission ---------------------------------------------------------------------------------------------------
class Offers(HTMLParser):
    """What a page offers to do: (address, method) of links, and of forms that have a button to send them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self._form = ("", "")
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in have:
            self.found.add((have["href"], "get"))
        if tag == "form":
            self._form = (have.get("action", ""), have.get("method", "get").lower())
        if tag == "button" and have.get("type") != "button" and "disabled" not in have and self._form[0]:
            self.found.add((have["formaction"], "post") if "formaction" in have else self._form)
        self.found |= {(have[f"hx-{method}"], method) for method in ("get", "post") if f"hx-{method}" in have}

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = ("", "")


def offers(text: str, at: str) -> Iterator[tuple[str, str, str]]:
    """(address, route, method) of those that stay in this product."""
    for address, method in Offers(text).found:
        whole = urlsplit(urljoin(f"http://here{at}", address))
        if whole.netloc != "here":
            continue
        try:
            yield whole.path, route_of(whole.path), method
        except Resolver404:
            continue


def test_who_lacks_a_permission_reads_why_and_is_offered_nothing_that_would_be_refused(
    world: Every, own_stack: Stack
) -> None:
    visitor = Visitor(own_stack, GUEST)
    lacking, found = LOOKS | CALLS_TOO, []
    for shot in pages(world):
        if not shot.signed_in:
            continue
        path = shot.path(world)
        answer = visitor.get(path)
        refused = (route_of(path), "get") in lacking
        if answer.status_code == 403:
            words = unescape(answer.text)
            found += [] if "You don't have permission" in words else [f"{path}: no reason"]
            found += [] if "Ask an administrator" in words else [f"{path}: no next step"]
        elif refused:
            found.append(f"{path}: answered {answer.status_code}")
        if answer.status_code == 200:
            offered = {(route, method) for _, route, method in offers(answer.text, path)}
            found += [f"{path[:60]} offers {offer}" for offer in sorted(offered & lacking.keys())]
    visitor.close()
    assert found == [], "\n".join(found)


# --- loading, and an error -------------------------------------------------------------------------------------------
def nothing(ada: Walk) -> None:
    """The page asks by itself."""


@dataclass(frozen=True)
class Part:
    """A region that is fetched after its page."""

    name: str
    path: Callable[[Every], str]
    asked: str  # the addresses
    region: str
    done: str  # what is there in the end
    act: Callable[[Walk], None] = nothing
    words: str = ""  # said when it could not be fetched; empty where the page does without
    kept: tuple[str, str] = ("", "")  # a field, and what was typed into it


def click(selector: str) -> Callable[[Walk], None]:
    return lambda ada: ada.page.locator(selector).first.click()


def type_into(selector: str, words: str) -> Callable[[Walk], None]:
    """Key by key, in the place of what is there."""

    def act(ada: Walk) -> None:
        ada.page.locator(selector).fill("")
        ada.page.locator(selector).press_sequentially(words)

    return act


def open_pane(ada: Walk) -> None:
    if not ada.page.locator(".wire-pane").count():  # a page remembers that it was open
        ada.page.locator("button[data-wire-pane]").click()


def choose_value(ada: Walk) -> None:
    ada.page.locator("#use-part").select_option(index=1)


def search_everything(ada: Walk) -> None:
    ada.page.keyboard.press("Control+k")
    ada.page.locator("#palette input").fill("long")


def write_json(ada: Walk) -> None:
    ada.page.locator(f"[name='arg:/{'n' * 128}']").fill("typed")
    ada.page.locator("[name=_switch][value=json]").click()


def fill_by_hand_and_test(ada: Walk) -> None:
    ada.page.locator("[data-kept-open=by-hand] > summary").click()
    ada.page.get_by_label("Transport").select_option("stdio")
    ada.page.get_by_label("Command", exact=True).fill("/opt/no-such-program")
    ada.page.get_by_role("button", name="Test connection").click()


PARTS = [
    Part("chart", lambda world: "/explorer/?q=last:24h", "**/explorer/histogram/*", "#histogram", "#histogram [data-chart]",
         words="The chart could not be loaded"),
    Part("facets", lambda world: "/explorer/?q=last:24h", "**/explorer/facets/*", "#facets", "#facets details",
         words="The filters could not be loaded"),
    Part("row", lambda world: "/explorer/?q=last:24h", "**/explorer/rows/*/*/*", "#explorer-list", "#detail",
         click("tr[data-sel] a"), "The row could not be loaded"),
    Part("query suggestions", lambda world: "/explorer/", "**/explorer/complete/*", ":has(> #query)", "#query-suggestions li",
         type_into("#query", "se"), kept=("#query", "se")),
    Part("form", MORE["tool"], re.compile(r"/tools/form/").pattern, "#tool-form", "#tool-form [name=_json]", write_json,
         "The form could not be loaded", (f"[name='arg:/{'n' * 128}']", "typed")),
    Part("URI of a template", MORE["template"], "**/resources/uri/*", ".uri-row", "[data-expanded]",
         type_into("[data-argument] textarea", "w"), "The URI could not be built"),
    Part("message", lambda world: f"/servers/{world.server}/protocol/", re.compile(r"/protocol/\d+/").pattern,
         "[data-wire-message][open] [data-part=details]", "[data-wire-message][open] .jv",
         click("[data-wire-message] > summary"), "The message could not be loaded"),
    Part("protocol pane", lambda world: f"/servers/{world.server}/settings/", re.compile(r"/protocol/$").pattern, ".wire-pane",
         ".wire-pane [data-console-page]", open_pane, "The protocol could not be loaded"),
    Part("filter", lambda world: f"/servers/{world.server}/logs/", re.compile(r"/logs/\?").pattern, "[data-console-list]",
         "[data-console-list]", type_into("[data-console-filter] [name=text]", "u"), "The filter could not be applied",
         ("[data-console-filter] [name=text]", "u")),
    Part("palette", lambda world: "/", "**/palette/*", "#palette-list", "#palette-list li", search_everything,
         "Server search is not available", ("#palette input", "long")),
    Part("source", lambda world: "/servers/add/", "**/servers/add/read/", ":has(> #source)", "#understood .understood",
         type_into("#source", "npx -y x"), "Your input could not be read", ("#source", "npx -y x")),
    Part("test", lambda world: "/servers/add/", "**/servers/test/", "#test-result", "#test-result *", fill_by_hand_and_test,
         "The connection was not tested", ("[name=command]", "/opt/no-such-program")),
    Part("value", lambda world: f"/calls/{world.succeeded}/use/", re.compile(r"/use/\?").pattern, "#use-form", "#use-form .use-preview",
         choose_value, "mcpadmin answered with HTTP 500"),
]  # fmt: skip


def marked(page: Page, region: str) -> bool:
    """Whether the region visibly shows that it is loading."""
    seen = page.locator(region).first.evaluate("(e) => Number(getComputedStyle(e, '::after').opacity)")
    return bool(seen > 0.2)


def asked_for(part: Part) -> Any:
    return part.asked if part.asked.startswith("*") else re.compile(part.asked)


def begin(ada: Walk, part: Part, world: Every, answer: Callable[[Route], Any]) -> Locator:
    ada.page.unroute_all()
    if ada.page.url.startswith("http"):
        ada.page.evaluate("sessionStorage.clear()")  # a draft of the time before
    ada.page.route(asked_for(part), answer)
    ada.open(part.path(world))
    if ada.page.locator("[data-live-pill]").count():
        expect(ada.page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    part.act(ada)
    return ada.page.locator(part.region).first


#: one of each kind; the others are long
SHORT = ("chart", "source", "value")


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, id=part.name, marks=[] if part.name in SHORT else pytest.mark.long) for part in PARTS],
)
def test_a_part_that_is_slow_says_so_and_one_that_fails_says_what_to_do(
    part: Part, world: Every, own_stack: Stack, walker: Callable[..., Walk]
) -> None:
    ada = walker(own_stack, signed_in=True)
    for words in ("Failed to load resource", "Failed to fetch"):
        ada.complaints.allow(words)
    held: list[Route] = []
    region = begin(ada, part, world, lambda route: held.append(route))
    expect(region).to_have_attribute("aria-busy", "true")
    ada.until(lambda: marked(ada.page, part.region))
    assert held
    for route in held:
        route.continue_()
    ada.page.unroute_all()
    expect(ada.page.locator(part.done).first).to_be_visible()
    expect(ada.page.locator(part.region).first).not_to_have_attribute("aria-busy", "true")
    for fail in (lambda route: route.fulfill(status=500, body="gone"), lambda route: route.abort()):
        region = begin(ada, part, world, fail)
        if part.words:
            words = re.compile(f"{re.escape(part.words)}|No response from")
            expect(ada.page.get_by_text(words).first).to_be_visible()
        expect(region).not_to_have_attribute("aria-busy", "true")
        if part.kept[0]:
            expect(ada.page.locator(part.kept[0]).first).to_have_value(part.kept[1])


def test_an_error_page_does_not_get_into_the_page_that_asked_for_a_part(
    world: Every, own_stack: Stack, walker: Callable[..., Walk]
) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.complaints.allow("404")
    page = ada.page
    ada.open("/nowhere/")
    gone = page.context.request.get(f"{ada.base_url}/nowhere/").text()
    ada.open(f"/calls/{world.succeeded}/use/")
    title = page.title()
    page.route(re.compile(r"/use/\?"), lambda route: route.fulfill(status=404, content_type="text/html", body=gone))
    choose_value(ada)
    expect(page.get_by_text("mcpadmin answered with HTTP 404")).to_be_visible()
    expect(page.locator("main")).to_have_count(1)
    assert page.title() == title
    page.get_by_role("button", name="Account menu").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


# --- offline ---------------------------------------------------------------------------------------------------------
#: keeps the sockets of the page, so that a test can break one: Chromium leaves them open when it is put offline
KEEP_SOCKETS = """
window.socketsOfThePage = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.socketsOfThePage.push(this); }
};
"""
OFFLINE = {
    "overview": lambda world: "/",
    "servers": lambda world: "/servers/",
    "add": lambda world: "/servers/add/",
    "tool": MORE["tool"],
    "protocol": lambda world: f"/servers/{world.server}/protocol/",
    "explorer": lambda world: "/explorer/",
    "inbox": lambda world: "/inbox/",
}


def break_connection(page: Page) -> None:
    page.context.set_offline(True)
    page.evaluate("for (const socket of window.socketsOfThePage) socket.close()")


@pytest.mark.parametrize(
    "name", [name if name == "overview" else pytest.param(name, marks=pytest.mark.long) for name in OFFLINE]
)
def test_a_page_that_lost_its_connection_says_so_keeps_what_was_typed_and_comes_back_by_itself(
    name: str, world: Every, own_stack: Stack, walker: Callable[..., Walk]
) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.complaints.allow("net::ERR_INTERNET_DISCONNECTED")
    ada.page.add_init_script(KEEP_SOCKETS)
    ada.open(OFFLINE[name](world))
    pill, notice = ada.page.locator("[data-live-pill]"), ada.page.locator("[data-offline] .notice")
    expect(pill).to_have_attribute("data-state", "live")
    expect(notice).to_be_hidden()
    typed = ada.page.locator("main").get_by_role("textbox").first
    if typed.count():
        typed.fill("typed before")
    break_connection(ada.page)
    expect(notice).to_be_visible()
    expect(notice).to_contain_text("You are offline")
    expect(notice.locator("time")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    for window in WINDOWS if name == "overview" else WINDOWS[:1]:
        dress(ada.page, *window)
        assert accessibility(ada.page) + overflow(ada.page) == []
    ada.page.context.set_offline(False)
    expect(notice).to_be_hidden()
    expect(pill).to_have_attribute("data-state", "live")
    if typed.count():
        expect(typed).to_have_value("typed before")
