"""Real Chromium through Playwright. A test fails at its end if its page complained.

A failed test with the fixture `page` leaves a picture and the HTML of its page in tests/e2e/out/, and with --record
also a trace (open it with `playwright show-trace`). `make test` runs failed tests again with --record; recording each
test would take a third of its time.

Sync Playwright keeps an event loop running in the main thread, so `make test` runs browser tests in a separate process.
In a shared process, tests with `asyncio` would find a running loop.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, expect, sync_playwright

from tests.tools.deadline import within
from tests.tools.stack import ADMIN, Stack

OUT = Path(__file__).resolve().parents[1] / "e2e" / "out"
#: Nothing is drawn on a GPU, so that its process would only be one more between a page and its picture.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--in-process-gpu", "--font-render-hinting=none"]
PATIENCE_MS = 20_000
CLOSING_SECONDS = 10
#: The headless shell is the same engine without windows: a page costs a third of the CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="save a trace of each failed browser test in tests/e2e/out/")


def executable() -> str | None:
    chosen = os.environ.get("CHROMIUM")
    return chosen or next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Complaints:
    """What a page reported: console errors (including CSP refusals), exceptions, requests to other hosts."""

    own_host: str
    found: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    ended: bool = False

    def allow(self, words: str) -> None:
        """Expect complaints that contain these words, for the rest of the test."""
        self.allowed.append(words)

    def watch(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._add(f"exception: {error}"))
        page.on("request", self._on_request)

    def _add(self, complaint: str) -> None:
        if not self.ended:
            self.found.append(complaint)

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self._add(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.netloc != self.own_host:
            self._add(f"request to another host: {request.url}")

    def unexpected(self) -> list[str]:
        return [line for line in self.found if not any(words in line for words in self.allowed)]


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    # The ORM refuses to run in a thread with a running event loop, and browser tests may read rows in this thread.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    # Calls go through a worker, and only the hub's slow timer finds a lost hint.
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.skip(
            "Chromium is not installed (Debian: apt install chromium-headless-shell; elsewhere: CHROMIUM=/path/to/it)"
        )
    started = playwright.chromium.launch(executable_path=path, args=FLAGS)
    yield started
    started.close()


#: Contexts that a test has left, by their options. A new context has an empty cache, and each first page then costs the
#: web process and Chromium some sixty static files.
_left: dict[str, list[BrowserContext]] = {}


@contextmanager
def watched_context(
    browser: Browser, base_url: str, *, cookies: Sequence[Any] = (), **options: Any
) -> Iterator[tuple[BrowserContext, Complaints]]:
    """A browser context that collects the complaints of every page opened in it. It may have cached static files of
    `base_url`, and has nothing else of earlier tests."""
    options = {"reduced_motion": "reduce"} | options  # the live dot of an idle page would be drawn 60 times a second
    left = _left.setdefault(repr((id(browser), base_url, sorted(options.items()))), [])
    context = left.pop() if left else browser.new_context(base_url=base_url, **options)
    context.set_default_timeout(PATIENCE_MS)
    complaints = Complaints(urlsplit(base_url).netloc)
    context.on("page", complaints.watch)
    if cookies:
        context.add_cookies(cookies)
    try:
        yield context, complaints
    finally:
        context.remove_listener("page", complaints.watch)
        if _emptied(context, base_url, complaints):
            left.append(context)


def _emptied(context: BrowserContext, base_url: str, complaints: Complaints) -> bool:
    """Close all pages and remove what they left but cached files. False when that fails: Chromium never responds to a
    close during a page change. The test has its result by then."""
    try:
        with within(CLOSING_SECONDS):
            if context.browser is None or context.browser.browser_type.name != "chromium":
                context.close()  # what other browsers stored cannot be cleared alone
                return False
            for other in context.pages[1:]:
                other.close()
            context.clear_permissions()  # by its answer, all earlier complaints have come too
            complaints.ended = True  # requests aborted because their page closed are not errors
            page = _blank_page(context)
            context.unroute_all()
            context.set_offline(False)
            context.clear_cookies()
            everything = {"origin": base_url.rstrip("/"), "storageTypes": "all"}
            context.new_cdp_session(page).send("Storage.clearDataForOrigin", everything)
            own_clock = page.evaluate("!Date.now.toString().includes('[native code]')")
            page.close()
            if own_clock:  # a clock that a test has moved stays moved in every later page of the context
                context.close()
            return not own_clock
    except (TimeoutError, Error) as exc:
        warnings.warn(f"A window was left open: {exc}.", stacklevel=3)
        return False


def _blank_page(context: BrowserContext) -> Page:
    """The context's only page, blank. A new one takes a new process of Chromium."""
    if context.pages:
        page = context.pages[0]
        page.on("dialog", lambda dialog: dialog.accept())  # "Leave site?" of a page with unsaved changes
        try:
            page.goto("about:blank")
            return page
        except Error:  # it has crashed, or its test answers dialogs
            page.close()
    return context.new_page()


def sign_in(page: Page, username: str = ADMIN[0], password: str = ADMIN[1]) -> None:
    """Sign in through the form, as a person does."""
    page.goto("/accounts/login/")
    page.locator("input[name=login]").fill(username)
    page.locator("input[name=password]").fill(password)
    page.locator("input[name=password]").press("Enter")
    page.wait_for_url(lambda url: "/accounts/login" not in url)


@pytest.fixture(scope="session")
def signed_in_cookies(browser: Browser, stack: Stack) -> list[Any]:
    """The cookies of the signed-in administrator. The session signs in only once, because sign-ins are throttled."""
    with watched_context(browser, stack.base_url) as (context, _):
        page = context.new_page()
        sign_in(page)
        return context.cookies()


@pytest.fixture
def complaints() -> Complaints:
    """The complaints of the test's page: `complaints.allow("401")` expects one."""
    return Complaints("")


@pytest.fixture
def page(
    browser: Browser,
    stack: Stack,
    signed_in_cookies: list[Any],
    complaints: Complaints,
    request: pytest.FixtureRequest,
) -> Iterator[Page]:
    """A signed-in administrator's page at 1440x900. The test fails when the page complained."""
    options = {"viewport": {"width": 1440, "height": 900}, "cookies": signed_in_cookies}
    with watched_context(browser, stack.base_url, **options) as (context, collected):
        complaints.own_host, complaints.found = collected.own_host, collected.found
        if recorded := request.config.getoption("--record"):
            context.tracing.start(screenshots=True, snapshots=True)
        opened = context.new_page()
        yield opened
        report = getattr(request.node, "report_of_call", None)
        failed = report is not None and report.failed
        if failed:
            OUT.mkdir(parents=True, exist_ok=True)
            with suppress(Error):  # a page that is gone has neither
                opened.screenshot(path=OUT / f"{request.node.name}.png")
                (OUT / f"{request.node.name}.html").write_text(opened.content())
        if recorded:
            context.tracing.stop(path=OUT / f"{request.node.name}.zip" if failed else None)
        assert complaints.unexpected() == []


@pytest.fixture
def new_page(browser: Browser, stack: Stack, signed_in_cookies: list[Any]) -> Iterator[Callable[..., Page]]:
    """`new_page(signed_in=True, **context_options)`: more contexts; the test fails if any of their pages complained."""
    opened: list[tuple[Any, Complaints]] = []

    def make(signed_in: bool = True, **options: Any) -> Page:
        state = {"cookies": signed_in_cookies} if signed_in else {}
        manager = watched_context(
            browser, stack.base_url, **{"viewport": {"width": 1440, "height": 900}} | state | options
        )
        context, collected = manager.__enter__()
        opened.append((manager, collected))
        return context.new_page()

    yield make
    for manager, _ in opened:
        manager.__exit__(None, None, None)
    assert [line for _, collected in opened for line in collected.unexpected()] == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.report_of_call = report
    return report
