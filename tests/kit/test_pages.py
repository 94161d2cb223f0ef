"""The sample pages have no accessibility, policy or layout fault in real Chromium: both widths, both themes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.screenshots.judge import violations

PAGES = ["pages/states/", "pages/kit/", "pages/results/"]
BARE = ["accounts/login/", "accounts/password/reset/", "accounts/signup/", "nowhere/"]
SIGNED_IN = ["accounts/password/change/", "accounts/logout/", "messages/"]
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
Opener = Callable[..., tuple[Page, Any, Any]]


#: a screen reader says a live region again whenever its words change
TICKING = """() => [...document.querySelectorAll(
  ':is([role=status], [role=alert], [role=log], [aria-live=polite], [aria-live=assertive]) time:is([data-time=relative], [data-elapsed], [data-countdown])',
)].map((time) => `a clock in a live region: ${time.parentElement.outerHTML.slice(0, 160)}`)"""


def faults(page: Page) -> list[str]:
    found = [f"{v['id']}: {node['html'][:160]}" for v in violations(page, AXE_TAGS) for node in v["nodes"]]
    return found + page.evaluate(TICKING)


def _keep(page: Page, path: str, width: int, theme: str) -> None:
    """With KIT_SCREENSHOTS=<folder>, save a screenshot of each page to compare with the mock-ups."""
    if folder := os.environ.get("KIT_SCREENSHOTS"):
        name = path.strip("/").replace("/", "-") or "root"
        page.screenshot(path=Path(folder) / f"{name}-{width}-{theme}.png")


#: The narrow window in the theme that fewer people see; the other three are long.
WINDOWS = [
    pytest.param(1440, "light", marks=pytest.mark.long),
    (390, "dark"),
    pytest.param(1440, "dark", marks=pytest.mark.long),
    pytest.param(390, "light", marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_every_page_of_the_kit_is_accessible_and_fits(open_page: Opener, width: int, theme: str) -> None:
    problems = []
    for path in [*PAGES, *SIGNED_IN, *BARE]:
        page, complaints, _ = open_page(width, theme, signed_in=path not in BARE)
        if path == "nowhere/":
            complaints.allow("404")
        page.goto(path, wait_until="load")
        page.wait_for_timeout(150)
        problems += [f"{path}: {fault}" for fault in faults(page)]
        problems += [f"{path}: {line}" for line in complaints.unexpected()]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems += [f"{path}: {overflow} px wider than the screen"] if overflow > 0 else []
        _keep(page, path, width, theme)
        page.close()
    assert problems == []


@pytest.mark.parametrize("tags", [(), AXE_TAGS])
def test_faults_of_a_bad_page_are_found(browser: Browser, tags: list[str]) -> None:
    page = browser.new_page()
    page.set_content("<title>t</title><main><h1>h</h1><img src=x><p style='color:#ccc;background:#fff'>pale</p></main>")
    found = {one["id"]: [node["html"] for node in one["nodes"]] for one in violations(page, tags)}
    page.close()
    assert {"image-alt", "color-contrast", "html-has-lang"} <= found.keys()
    assert found["image-alt"] == ['<img src="x">']


def test_a_clock_in_a_live_region_is_a_fault(browser: Browser) -> None:
    page = browser.new_page()
    clocks = "<time data-elapsed>5 s</time><time data-time='exact'>12:00</time>"
    page.set_content(f"<div>{clocks}</div><div role='status'><p>Starting for {clocks}</p></div>")
    assert len(page.evaluate(TICKING)) == 1
    page.close()
