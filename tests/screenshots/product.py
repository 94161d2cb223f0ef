"""Runs the product for screenshots, and brings a page into the state that a row of pages.py describes."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.screenshots.shot import Shot, Stage, World
from tests.screenshots.world import fill, guest
from tests.tools.browser import Complaints, sign_in, watched_context
from tests.tools.stack import Stack


class Product:
    """A product that advances to the stage that a page needs, and never goes back."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.stack = Stack(Path(tempfile.mkdtemp(prefix="mcpadmin-shots-"))).start()
        self.world = World(setup_link=self.stack.setup_link)
        self.cookies: list[Any] = []
        self.guest_cookies: list[Any] = []
        self._reached = Stage.FRESH
        self._stuck = ""

    def reach(self, stage: Stage) -> None:
        """Reach a stage. After a failure there is no second attempt: every page that needs the stage fails at once."""
        stages = list(Stage)
        while stages.index(self._reached) < stages.index(stage):
            if self._stuck:
                pytest.fail(self._stuck)
            following = stages[stages.index(self._reached) + 1]
            self._stuck = f"the product never came to the stage of {following.value}; see the first failure"
            try:
                self._steps[following](self)
            except Exception as problem:  # whatever the cause, the product's output explains it
                problem.add_note(f"the product said:\n{self.stack.output[-6000:]}")
                raise
            self._reached, self._stuck = following, ""

    def _create_admin(self) -> None:
        self.stack.create_admin()
        with watched_context(self._browser, self.stack.base_url) as (context, _):
            sign_in(context.new_page())
            self.cookies = context.cookies()

    def _fill(self) -> None:
        fill(self._browser, self.stack, self.world)
        self.guest_cookies = guest(self._browser, self.stack)

    def _alarm(self) -> None:
        self.stack.shell(
            "from servers.audit.proof import alarms\nfrom servers.enums import AlarmKind\n"
            "words = 'The log ends at event 812. The checkpoint signed at 2026-11-23 08:14:02 UTC says that it had 1,409 events.'\n"
            "alarms.sound(AlarmKind.BEHIND, 813, words)"
        )

    _steps: dict[Stage, Callable[["Product"], None]] = {
        Stage.EMPTY: _create_admin,
        Stage.FILLED: _fill,
        Stage.ALARMED: _alarm,
    }


@contextmanager
def opened(
    browser: Browser, product: Product, shot: Shot, size: tuple[int, int], theme: str
) -> Iterator[tuple[Page, Complaints]]:
    """The page in a window of this size, with what the browser complained about."""
    product.reach(shot.stage)
    width, height = size
    options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": theme}
    if shot.signed_in:
        options["cookies"] = product.guest_cookies if shot.guest else product.cookies
    with watched_context(browser, product.stack.base_url, **options) as (context, complaints):
        complaints.allowed.extend(shot.allow)
        page = context.new_page()
        page.goto(shot.path(product.world))
        page.evaluate("document.fonts.ready.then(() => true)")
        page.wait_for_timeout(400)  # for the live connection
        if shot.prepare is not None:
            shot.prepare(page)
        yield page, complaints
