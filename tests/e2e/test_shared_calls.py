"""Two administrators see the same running call, and either can cancel it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import SECONDS, Walk
from tests.tools.browser import sign_in
from tests.tools.stack import Stack

pytestmark = pytest.mark.browser
SERVER = Path(__file__).parents[1] / "sessions" / "host" / "shelf_server.py"


@pytest.fixture(scope="module")
def cleo(stack: Stack) -> str:
    stack.shell(
        "from django.contrib.auth.models import User\nUser.objects.create_superuser('cleo', password='cleo is here')"
    )
    return "cleo is here"


@pytest.fixture
def two(stack: Stack, cleo: str, walker: Callable[..., Walk]) -> tuple[Walk, Walk]:
    ada, other = walker(stack, signed_in=True), walker(stack)
    sign_in(other.page, "cleo", cleo)
    if not stack.rows("SELECT 1 FROM servers_server WHERE slug = 'shared'"):
        ada.register_stdio("Shared", sys.executable, [str(SERVER)])
        ada.wait_for_state("Ready")
    for person in (ada, other):
        person.open_tool("shared", "count")
    return ada, other


def start(person: Walk, steps: int) -> None:
    person.fill_argument("to", str(steps))
    person.run_tool()


def card(person: Walk, number: str = "") -> Locator:
    cards = person.page.locator("#results article[data-call]")
    return cards.filter(has_text=number).first if number else cards.first


def number_of(person: Walk) -> str:
    running = card(person)
    expect(running.locator("[data-call-progress]")).to_be_visible()
    return running.locator("h2 a").inner_text()


def test_both_see_who_started_it_its_progress_its_lines_and_its_result(two: tuple[Walk, Walk]) -> None:
    ada, cleo = two
    start(ada, 12)
    number = number_of(ada)
    for person in (ada, cleo):
        seen = card(person, number)
        expect(seen.locator(".who")).to_contain_text("by ada")
        expect(seen.locator("[data-progress-text]")).to_contain_text("step")
        expect(seen.get_by_role("log")).to_contain_text("did step 2")
    for person in (ada, cleo):
        seen = card(person, number)
        expect(seen).to_contain_text("counted to", timeout=30 * SECONDS)
        expect(seen.locator(".tag").first).to_contain_text("Succeeded")
    texts = [card(person, number).locator("pre.jv").last.text_content() for person in (ada, cleo)]
    assert texts[0] == texts[1]


def test_whoever_has_the_permission_may_stop_it_and_all_see_who_did(two: tuple[Walk, Walk]) -> None:
    ada, cleo = two
    start(ada, 100)
    number = number_of(ada)
    stop = card(cleo, number).get_by_role("button", name="Cancel")
    stop.click()
    for person in (ada, cleo):
        expect(card(person, number)).to_contain_text("Cancelled by cleo", timeout=30 * SECONDS)
        expect(card(person, number).locator(".who")).to_contain_text("by ada")


@pytest.mark.long
def test_a_line_of_the_log_leads_to_its_call(two: tuple[Walk, Walk]) -> None:
    ada, cleo = two
    cleo.open("/servers/shared/logs/")
    start(ada, 8)
    number = number_of(ada)
    line = cleo.page.locator("[data-console-rows] li").filter(has_text="did step").last
    expect(line.get_by_role("link", name="View call")).to_be_visible()
    expect(card(ada, number)).to_contain_text("counted to", timeout=30 * SECONDS)
    line.get_by_role("link", name="View call").click()
    expect(cleo.page.get_by_role("heading", name="count", exact=True)).to_be_visible()
