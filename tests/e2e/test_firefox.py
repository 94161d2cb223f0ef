"""Real Firefox walks the main path and shows the pages: nothing refused, nothing wider than the window."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Playwright, expect

from tests.e2e import every_page
from tests.e2e.every_page import Every
from tests.e2e.test_subscriptions import CLOCK, subscribe, touch, version
from tests.e2e.walk import Walk
from tests.peers.peers import run_peer
from tests.screenshots.judge import overflow
from tests.screenshots.pages import SIZES
from tests.tools import firefox
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
PASSWORD = "a long passphrase 42"
SLUG = "official-sdk"
#: until a new size of the window has been drawn
DRAWN = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
PAGES = ("/", "/servers/", "/servers/add/", "/inbox/", "/subscriptions/", "/audit/", "/explorer/?q=last:1h+in:calls")


@pytest.fixture(scope="module")
def browser(playwright: Playwright, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with firefox.started(playwright, tmp_path_factory.mktemp("firefox")) as started:
        yield started


def reports(stack: Stack) -> list[dict]:
    return [dict(row) for row in stack.rows("SELECT directive, blocked, page, count FROM servers_browserreport")]


def too_wide(person: Walk, *paths: str) -> list[str]:
    """Of each page, in both widths. Without a path, of the page that is open."""
    found = []
    for path in paths or ("",):
        if path:
            person.open(path)
        for width, height in reversed(SIZES.values()):  # ends with the wide one, which the next steps use
            person.page.set_viewport_size({"width": width, "height": height})
            person.page.evaluate(DRAWN)
            found += [f"{person.page.url} {width}: {fault}" for fault in overflow(person.page)]
    return found


def test_firefox_goes_from_the_setup_link_to_the_audit_log_and_refuses_nothing(fresh_stack: Stack, walker) -> None:
    ada, bob = walker(fresh_stack), walker(fresh_stack)
    ada.use_setup_link(fresh_stack.setup_link, "ada", PASSWORD)
    ada.page.get_by_role("button", name="Account menu").click()
    ada.page.get_by_role("button", name="Sign out").click()
    ada.page.wait_for_url("**/accounts/login/")
    wide = too_wide(ada)
    ada.sign_in("ada", PASSWORD)
    bob.sign_in("ada", PASSWORD)

    with run_peer("sdk2", "http") as url:
        ada.fill_http("Official SDK", url)
        expect(ada.test_connection()).to_contain_text("Works", timeout=30_000)
        wide += too_wide(ada)
        ada.save()
        ada.wait_for_state("Ready")
        bob.open_tool(SLUG, "echo")
        bob.wait_for_state("Ready")
        ada.open_tool(SLUG, "echo")
        ada.fill_argument("text", "hello from Firefox")
        ada.page.keyboard.press("Control+Enter")
        for person in (ada, bob):
            expect(person.result()).to_contain_text("Succeeded")
            expect(person.result()).to_contain_text("hello from Firefox")
        wide += too_wide(ada)

        watched = subscribe(ada, SLUG)
        wide += too_wide(ada)
        ada.open(watched)
        version(ada.page, 1)
        touch(bob, SLUG)
        version(ada.page, 2)
        expect(ada.page.locator("#subscription-version")).to_contain_text("1 line added, 1 removed")
        wide += too_wide(ada)

        ada.open("/audit/")
        ada.page.get_by_role("row").filter(has_text="Server registered").get_by_role("link").first.click()
        expect(ada.page.locator("#detail")).to_contain_text("Official SDK")
        wide += too_wide(ada)
        server = [
            f"/servers/{SLUG}/{tab}/" for tab in ("tools", "resources", "prompts", "logs", "protocol", "settings")
        ]
        resource = f"/servers/{SLUG}/resources/?uri={quote(CLOCK, safe='')}"
        wide += too_wide(ada, *PAGES, *server, resource)
    assert wide == [], "\n".join(wide)
    assert reports(fresh_stack) == []


def test_what_firefox_refuses_to_run_fails_a_test_and_reaches_the_reports(stack: Stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    ada.complaints.allow("blocked an inline script")
    stack.write("DELETE FROM servers_browserreport")  # of other tests
    ada.open("/")
    ada.page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
    ada.until(lambda: reports(stack) != [])
    [report] = reports(stack)
    stack.write("DELETE FROM servers_browserreport")
    assert (report["directive"], report["blocked"]) == ("script-src-elem", "inline")
    assert ada.page.evaluate("window.ran") is None
    assert ["blocked an inline script" in line for line in ada.complaints.found] == [True]


def test_no_page_is_wider_in_firefox_than_a_phone_with_the_longest_names_and_uris(own_stack: Stack, walker) -> None:
    world: Every = every_page.fill(own_stack)
    width, height = SIZES["phone"]
    ada = walker(own_stack, signed_in=True, viewport={"width": width, "height": height})
    found = []
    for shot in every_page.pages(world):
        if shot.signed_in:
            ada.open(shot.path(world))
            found += [f"{shot.name}: {fault}" for fault in overflow(ada.page)]
    assert found == [], "\n".join(found)
