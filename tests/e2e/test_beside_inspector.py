"""What takes how many clicks in mcpadmin and in MCP Inspector, counted in one run, with the same server."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e import beside_inspector as beside
from tests.e2e.conftest import cookies_of
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inspector.md"


def test_no_task_takes_more_clicks_than_in_inspector_and_most_take_fewer(own_stack: Stack, browser: Browser) -> None:
    ours = beside.Person(browser, own_stack.base_url)
    ours.context.add_cookies(cookies_of(own_stack, ADMIN))
    beside.run_mcpadmin(ours)
    with beside.started_inspector() as url:
        theirs = beside.Person(browser, url)
        theirs.page.goto(url)
        beside.run_inspector(theirs)
    lines = beside.table(ours.efforts, theirs.efforts)
    print("\n" + "\n".join(lines))
    saved = [theirs.efforts[task].clicks - ours.efforts[task].clicks for task in beside.TASKS]
    assert min(saved) >= 0
    assert sum(one > 0 for one in saved) >= 8
    assert "\n".join(lines) in PAGE.read_text(), "docs/inspector.md shows another table"
