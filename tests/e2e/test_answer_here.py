"""A request of a server is answered on the page of the tool, below the call that waits for it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.test_inbox import register, start
from tests.e2e.walk import Walk
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    return walker(stack, signed_in=True)


@pytest.fixture(scope="module")
def asking(stack: Stack) -> str:
    return register(stack, "Asking here", "asking", "legacy")


def test_a_request_is_answered_below_its_call_after_its_errors_are_mended(stack: Stack, ada: Walk, asking: str) -> None:
    page = ada.page
    ada.complaints.allow("422")
    card = start(stack, ada, asking, "pizza")
    form = page.locator("#results #answer-form")
    form.get_by_label("Name").fill("A")
    form.get_by_role("button", name="Send").click()
    expect(form.locator("[data-sf-errors]")).to_be_focused()
    form.get_by_label("Name").fill("Ada")
    form.get_by_label("Name").press("Enter")
    expect(form).to_have_count(0)
    expect(page.locator(".toast", has_text="Answer sent to Asking here.")).to_be_visible()
    expect(card.locator("h2 a")).to_be_focused()
    expect(card).to_contain_text("accept: count=2, name='Ada'")


def test_the_form_leaves_when_the_request_was_answered_elsewhere(stack: Stack, ada: Walk, asking: str) -> None:
    card = start(stack, ada, asking, "pizza")
    form = ada.page.locator("#results #answer-form")
    expect(form).to_be_visible()
    other = ada.page.context.new_page()
    other.goto(ada.base_url + str(card.get_by_role("link", name="Open the request").get_attribute("href")))
    other.get_by_role("button", name="Decline").click()
    expect(form).to_have_count(0)
    expect(card).to_contain_text("decline")


def test_an_answer_that_comes_too_late_is_not_called_sent(stack: Stack, ada: Walk, asking: str) -> None:
    page = ada.page
    card = start(stack, ada, asking, "pizza")
    form = page.locator("#results #answer-form")
    form.get_by_label("Name").fill("Ada")
    ada.complaints.allow("409")
    held: list[Route] = []
    page.route("**/answer/", lambda route: held.append(route))
    form.get_by_role("button", name="Send").click()
    ada.until(lambda: bool(held))
    other = page.context.new_page()
    other.goto(ada.base_url + str(card.get_by_role("link", name="Open the request").get_attribute("href")))
    other.get_by_role("button", name="Decline").click()
    expect(card).to_contain_text("decline")
    held[0].continue_()
    expect(page.locator(".toast", has_text="Your answer was not sent.")).to_be_visible()
    expect(page.get_by_role("article", name="Your answer")).to_contain_text("Ada")


def test_a_form_that_could_not_be_loaded_is_tried_again(stack: Stack, ada: Walk, asking: str) -> None:
    page = ada.page
    ada.complaints.allow("503")
    page.route("**/inbox/*-*/", lambda route: route.fulfill(status=503), times=1)
    start(stack, ada, asking, "pizza")
    form = page.locator("#results #answer-form")
    expect(form).to_be_visible(timeout=20_000)
    form.get_by_role("button", name="Decline").click()
    expect(form).to_have_count(0)
