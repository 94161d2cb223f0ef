"""The fixtures that start the whole product work."""

import re
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page

from tests.tools import browser as browsers
from tests.tools.browser import Complaints, sign_in, watched_context
from tests.tools.prepared import prepare
from tests.tools.stack import Stack

pytestmark = pytest.mark.up


@pytest.mark.browser  # it opens none, but where browsers are the product runs anyway
def test_the_stack_is_the_real_product_with_all_its_parts(stack: Stack) -> None:
    assert len(stack.worker_pids()) == 1
    assert [len(stack.part(word)) for word in ("daphne", "--beat-thread")] == [1, 1]
    assert stack.rows("SELECT username FROM auth_user")[0]["username"] == "ada"
    assert stack.setup_link.startswith(stack.base_url)


def test_a_page_of_the_signed_in_administrator_opens_without_complaint(stack: Stack, page: Page) -> None:
    page.goto("/")
    assert page.locator("h1").first.inner_text() == "Overview"


def test_what_a_page_complains_about_is_collected(stack: Stack, page: Page, complaints: Complaints) -> None:
    page.goto("/")
    page.evaluate("console.error('planted')")
    page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://other.invalid/x.png'}))")
    page.wait_for_timeout(300)
    text = "\n".join(complaints.found)
    assert all(words in text for words in ("planted", "thrown", "Content Security Policy"))
    complaints.allow("")  # this test planted all of them


def test_a_window_that_does_not_close_is_left_behind_and_the_next_one_opens(
    stack: Stack, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsers, "CLOSING_SECONDS", 1)
    context, _ = (leaving := watched_context(browser, stack.base_url)).__enter__()
    context.new_page().goto("/")
    with monkeypatch.context() as patch:
        patch.setattr(Page, "close", lambda page: page.wait_for_timeout(50_000))
        with pytest.warns(UserWarning, match="not done within 1 s"):
            leaving.__exit__(None, None, None)
    with watched_context(browser, stack.base_url) as (second, complaints):
        assert second is not context
        second.new_page().goto("/accounts/login/")
        assert complaints.unexpected() == []
    context.close()


def test_a_window_that_is_used_again_has_nothing_of_the_test_before(stack: Stack, browser: Browser) -> None:
    with watched_context(browser, stack.base_url) as (context, before):
        page = context.new_page()
        sign_in(page)
        page.evaluate("localStorage.setItem('kept', 1); indexedDB.open('kept')")
        page.route("**/healthz", lambda route: route.abort())
        context.route("**/healthz", lambda route: route.abort())
    with watched_context(browser, stack.base_url) as (again, after):
        assert again is context
        assert (again.pages, again.cookies()) == ([], [])
        page = again.new_page()
        page.goto("/healthz")
        page.goto("/")
        assert "/accounts/login/" in page.url
        kept = "(async () => [localStorage.length, sessionStorage.length, (await indexedDB.databases()).length])()"
        assert page.evaluate(kept) == [0, 0, 0]
        page.evaluate("console.error('planted')")
        after.allow("planted")
    assert (len(before.found), len(after.found)) == (0, 1)


def test_a_window_that_asks_before_it_is_left_is_used_again(stack: Stack, browser: Browser) -> None:
    with watched_context(browser, stack.base_url) as (context, _):
        page = context.new_page()
        page.goto("/accounts/login/")
        page.locator("h1").first.click()  # without a gesture, browsers skip the prompt
        page.evaluate("addEventListener('beforeunload', (event) => event.preventDefault())")
    with watched_context(browser, stack.base_url) as (again, _):
        assert (again is context, again.pages) == (True, [])


def test_a_window_whose_clock_was_moved_is_not_used_again(stack: Stack, browser: Browser) -> None:
    with watched_context(browser, stack.base_url) as (context, _):
        page = context.new_page()
        page.clock.install()
        page.goto("/accounts/login/")
        page.clock.run_for(21_000)
    with watched_context(browser, stack.base_url) as (second, complaints):
        assert second is not context
        assert complaints.unexpected() == []


@pytest.mark.long
def test_a_product_of_a_tests_own_restarts_a_killed_worker_and_is_gone_with_the_test(tmp_path: Path) -> None:
    own = Stack(prepare(tmp_path / "data")).start()
    seen = len(own.lines)
    pid = own.kill_worker()
    own.wait_for(re.compile(r"worker ready"), since=seen)
    assert own.worker_pids() != [pid]
    assert not psutil.pid_exists(pid)
    family = own.family()
    assert len(family) >= 5
    assert own.stop() == 0
    assert [process for process in family if process.is_running()] == []
