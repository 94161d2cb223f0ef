"""Changes of a subscribed resource and their differences reach the pages, from official SDK servers in both eras."""

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
CLOCK = "peer://clock"
ARRIVES_MS = 40_000
#: the response to *Subscribe* waits until the test calls letThrough()
HELD_BACK = """
const through = window.fetch;
window.fetch = async (target, ...rest) => {
  const response = await through(target, ...rest);
  if (String(target.url ?? target).includes('/subscribe/')) await new Promise((go) => (window.letThrough = go));
  return response;
};
"""


def register(stack: Stack, name: str, peer: str, era: str) -> str:
    """Register a stdio server on the command line. Returns its slug."""
    return stack.register(name, peer_command(peer), "--era", era)


def subscribe(person: Walk, slug: str) -> str:
    """Press the button on the resource page. Returns the path of the subscription's page."""
    person.open(f"/servers/{slug}/tools/")
    person.wait_for_state("Ready")
    person.open(f"/servers/{slug}/resources/?uri={CLOCK}")
    place = person.page.locator("[data-subscribe]")
    place.get_by_role("button", name="Subscribe").click()
    expect(place).to_contain_text("Listening", timeout=ARRIVES_MS)
    path = place.get_by_role("link", name="Changes").get_attribute("href")
    assert path is not None
    return path


def touch(person: Walk, slug: str) -> None:
    """Make the server announce that its clock changed."""
    person.open_tool(slug, "touch")
    person.fill_argument("uri", CLOCK)
    person.run_tool()
    expect(person.result()).to_contain_text("Succeeded", timeout=ARRIVES_MS)


def version(page: Page, number: int) -> None:
    heading = page.locator("#subscription-version").get_by_role("heading", name=f"Version {number}", exact=True)
    expect(heading).to_be_visible(timeout=ARRIVES_MS)


@pytest.mark.parametrize(
    ("peer", "era"),
    [
        pytest.param("sdk2", "legacy", id="sdk2-legacy", marks=pytest.mark.long),  # most tests below have this one
        pytest.param("sdk2", "modern", id="sdk2-modern"),
        pytest.param("sdk1", "legacy", id="sdk1-legacy", marks=pytest.mark.long),
    ],
)
def test_a_change_arrives_on_the_page_of_its_subscription_with_its_difference(
    peer: str, era: str, stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, f"Watched {peer} {era}", peer, era)
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.open(subscribe(ada, slug))
    version(ada.page, 1)
    expect(ada.page.get_by_text("Subscribed; listening for updates")).to_be_visible()

    touch(bob, slug)
    version(ada.page, 2)
    shown = ada.page.locator("#subscription-version")
    expect(shown).to_contain_text("1 line added, 1 removed")
    expect(shown.locator("tr.removed")).to_have_count(1)
    expect(shown.locator("tr.added mark")).not_to_be_empty()
    expect(ada.page.locator("#v-1")).to_contain_text("First read")
    expect(ada.page.locator("#v-2")).to_contain_text("Update")


def test_a_pinned_version_stays_and_two_others_are_compared_by_their_links(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, "Pinned", "sdk2", "modern")
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.open(subscribe(ada, slug))
    version(ada.page, 1)
    ada.page.locator("#v-1 a").first.click()
    ada.page.wait_for_url("**/?version=1*")
    touch(bob, slug)
    expect(ada.page.locator("#v-2")).to_be_visible(timeout=ARRIVES_MS)
    version(ada.page, 1)
    ada.page.get_by_role("link", name="Compare version 1 with version 2").click()
    expect(ada.page.locator("#subscription-version")).to_contain_text("Compared with version 2")
    ada.page.get_by_role("link", name="Follow newest").click()
    version(ada.page, 2)


@pytest.mark.long
def test_a_change_is_reported_on_every_page_and_the_board_shows_it(stack: Stack, walker: Callable[..., Walk]) -> None:
    slug = register(stack, "Told", "sdk2", "legacy")
    ada, bob, carl = (walker(stack, signed_in=True) for _ in range(3))
    path = subscribe(ada, slug)
    ada.open(path)
    version(ada.page, 1)
    ada.open("/audit/")
    carl.open("/subscriptions/")
    row = carl.page.locator(f"[data-subscription-row='{path.split('/')[2]}']")
    expect(row).to_contain_text("Listening")
    for person in (ada, carl):
        expect(person.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()

    touch(bob, slug)
    toast = ada.page.locator(".toast").filter(has_text="A subscribed resource changed")
    expect(toast).to_contain_text("Told · version 2", timeout=ARRIVES_MS)
    toast.get_by_role("link", name="Show the change").click()
    version(ada.page, 2)
    expect(row.locator("td").nth(5)).to_have_text("2", timeout=ARRIVES_MS)
    expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile("1 update in the last 24 hours"))


def reading(person: Walk) -> Locator:
    """The content area of a resource's page."""
    return person.page.locator("#resource-content")


def test_the_first_subscription_of_a_resource_is_live_from_the_click_on_for_everybody_who_looks(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, "Fresh", "sdk2", "legacy")
    ada, bob, carl = (walker(stack, signed_in=True) for _ in range(3))
    carl.open(f"/servers/{slug}/tools/")
    carl.wait_for_state("Ready")
    carl.open(f"/servers/{slug}/resources/?uri={CLOCK}")
    expect(carl.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    subscribe(ada, slug)
    for person in (ada, carl):
        expect(reading(person)).to_contain_text("version 1", timeout=ARRIVES_MS)
        listed = person.page.locator("#resource-subscriptions")
        expect(listed.locator(".n")).to_have_text("1", timeout=ARRIVES_MS)
        expect(listed.locator("li")).to_contain_text("Listening")
        expect(person.page.get_by_role("button", name="Unsubscribe")).to_be_visible()

    touch(bob, slug)
    for person in (ada, carl):
        expect(reading(person)).to_contain_text("version 2", timeout=ARRIVES_MS)
        expect(reading(person)).not_to_contain_text("version 1")
        expect(person.page.locator(".toast")).to_have_count(0)

    carl.page.get_by_role("button", name="Unsubscribe").click()
    for person in (ada, carl):
        expect(person.page.get_by_role("button", name="Subscribe", exact=True)).to_be_visible()
        expect(person.page.locator("#resource-subscriptions .n")).to_have_text("0", timeout=ARRIVES_MS)
    ada.page.get_by_role("button", name="Subscribe", exact=True).click()
    for person in (ada, carl):
        expect(person.page.get_by_role("button", name="Unsubscribe")).to_be_visible(timeout=ARRIVES_MS)
        expect(person.page.locator("[data-subscribe]")).to_contain_text("Listening", timeout=ARRIVES_MS)
    touch(bob, slug)
    for person in (ada, carl):
        expect(reading(person)).to_contain_text(re.compile("version [34]"), timeout=ARRIVES_MS)


@pytest.mark.long
def test_what_an_update_brought_replaces_what_was_read_before(stack: Stack, walker: Callable[..., Walk]) -> None:
    slug = register(stack, "Replaced", "sdk2", "legacy")
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    subscribe(ada, slug)
    expect(reading(ada)).to_contain_text("version 1", timeout=ARRIVES_MS)
    ada.page.get_by_role("button", name="Read now").click()
    expect(reading(ada)).to_contain_text("by ada", timeout=ARRIVES_MS)
    touch(bob, slug)
    for _ in range(2):
        expect(reading(ada)).to_contain_text("version 2", timeout=ARRIVES_MS)
        expect(reading(ada).locator(".card")).to_have_count(1)
        ada.page.reload()


@pytest.mark.long
def test_what_a_template_makes_can_be_subscribed_to_as_soon_as_its_fields_are_filled_in(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, "Templated", "everything", "legacy")
    ada = walker(stack, signed_in=True)
    ada.open(f"/servers/{slug}/tools/")
    ada.wait_for_state("Ready")
    template = "demo://resource/dynamic/text/{resourceId}"
    ada.open(f"/servers/{slug}/resources/?template={quote(template, safe='')}")
    place = ada.page.locator("#resource-subscribe")
    expect(ada.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    expect(place.get_by_role("button")).to_have_count(0)
    ada.page.locator("[data-argument=resourceId] textarea").fill("7")
    place.get_by_role("button", name="Subscribe", exact=True).click()
    expect(place).to_contain_text("Listening", timeout=ARRIVES_MS)
    expect(ada.page.locator("#resource-subscriptions li")).to_contain_text("demo://resource/dynamic/text/7")
    expect(reading(ada)).to_contain_text("version 1", timeout=ARRIVES_MS)
    ada.page.locator("[data-argument=resourceId] textarea").fill("8")
    expect(place.get_by_role("button", name="Subscribe", exact=True)).to_be_visible()


def test_a_late_page_does_not_bring_back_the_button_of_what_the_fields_made_before(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, "Retyped", "everything", "legacy")
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.open(f"/servers/{slug}/tools/")
    ada.wait_for_state("Ready")
    ada.open(f"/servers/{slug}/resources/?template={quote('demo://resource/dynamic/text/{resourceId}', safe='')}")
    place, field = ada.page.locator("#resource-subscribe"), ada.page.locator("[data-argument=resourceId] textarea")
    field.fill("7")
    place.get_by_role("button", name="Subscribe", exact=True).click()
    expect(place).to_contain_text("Listening", timeout=ARRIVES_MS)
    bob.open(place.get_by_role("link", name="Changes").get_attribute("href") or "")
    late: list[Route] = []
    page_of_seven = re.compile(r"/resources/\?.*=7$")
    ada.page.route(page_of_seven, lambda route: late.append(route))
    bob.page.get_by_role("button", name="Unsubscribe").click()
    ada.until(lambda: late)
    field.fill("8")
    subscribes_to = place.locator("input[name=uri]")
    expect(subscribes_to).to_have_value("demo://resource/dynamic/text/8")
    with ada.page.expect_response(page_of_seven):
        for route in late:
            route.continue_()
    expect(ada.page.locator("#resource-subscriptions li")).to_have_count(0)
    expect(subscribes_to).to_have_value("demo://resource/dynamic/text/8")


def test_an_answer_that_is_older_than_what_was_reported_meanwhile_does_not_stay_on_the_page(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = register(stack, "Overtaken", "sdk2", "legacy")
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    bob.open("/subscriptions/")
    ada.page.add_init_script(HELD_BACK)
    ada.open(f"/servers/{slug}/tools/")
    ada.wait_for_state("Ready")
    ada.open(f"/servers/{slug}/resources/?uri={CLOCK}")
    place = ada.page.locator("[data-subscribe]")
    place.get_by_role("button", name="Subscribe").click()
    row = bob.page.locator("[data-subscription-row]").filter(has_text="Overtaken")
    expect(row).to_contain_text("Listening", timeout=ARRIVES_MS)
    ada.page.evaluate("letThrough()")
    expect(place).to_contain_text("Listening")


def test_unsubscribing_keeps_the_history_and_can_be_taken_back(stack: Stack, walker: Callable[..., Walk]) -> None:
    slug = register(stack, "Ended", "sdk2", "legacy")
    ada = walker(stack, signed_in=True)
    ada.open(subscribe(ada, slug))
    version(ada.page, 1)
    ada.page.get_by_role("button", name="Unsubscribe").click()
    expect(ada.page.locator("#subscription-head")).to_contain_text("Unsubscribed. The history is kept")
    version(ada.page, 1)
    ada.page.get_by_role("button", name="Subscribe again").click()
    expect(ada.page.locator("#subscription-head")).to_contain_text("Listening", timeout=ARRIVES_MS)
    gap = ada.page.locator("#subscription-history .gap")
    expect(gap).to_contain_text(re.compile("The content (changed in that time|did not change)"), timeout=ARRIVES_MS)
