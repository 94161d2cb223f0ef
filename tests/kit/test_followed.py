"""A part that reloads every second keeps the scroll position, and continues after an error."""

from collections.abc import Callable
from typing import Any

from django.template.loader import render_to_string
from playwright.sync_api import Page, Route, expect

Opener = Callable[..., tuple[Page, Any, Any]]


def part(host: str, *, waits: bool = True) -> str:
    return render_to_string("oauth/_document.html", {"waits": waits, "address": "/part/", "client": {"host": host}})


def test_it_keeps_the_focus_outlives_errors_in_silence_and_ends_with_its_work(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    for words in ("500", "ERR_FAILED", "htmx:"):
        complaints.allow(words)
    asked: list[str] = []
    works = True

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=500, body="")
        elif len(asked) == 2:
            route.abort()
        else:
            route.fulfill(content_type="text/html", body=part("b.example", waits=works))

    page.route("**/part/", answer)
    page.goto("pages/followed/")
    refresh = page.get_by_role("link", name="Refresh")
    refresh.focus()
    shown = page.locator("#client-document")
    expect(shown).to_contain_text("b.example")
    expect(refresh).to_be_focused()
    assert not page.locator("[data-toasts-assertive] > *").count()
    works = False
    expect(shown).to_contain_text("could not be read")
    count = len(asked)
    page.wait_for_timeout(2_500)
    assert len(asked) == count


def test_it_ends_with_an_error_that_stays_and_the_page_remains_its_own(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    complaints.allow("404")
    page.goto("pages/kit/")
    gone = page.content().replace("Kit</h1>", "Page not found</h1>")  # whole, with scripts
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=404, content_type="text/html", body=gone)

    page.route("**/part/", answer)
    page.goto("pages/followed/")
    title = page.title()
    expect(page.get_by_text("mcpadmin answered with HTTP 404")).to_be_visible()
    page.wait_for_timeout(2_500)
    assert len(asked) == 1
    expect(page.locator("main")).to_have_count(1)
    expect(page.get_by_role("link", name="Refresh")).to_be_visible()
    expect(page).to_have_title(title)
