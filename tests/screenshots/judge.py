"""Faults that no page may have: the reasons for which `make screenshots` fails."""

import json
from collections.abc import Sequence
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const clipped = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || clipped(e.parentElement));
  const wide = [...document.body.querySelectorAll('*')]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !(getComputedStyle(e).position === 'static' && clipped(e.parentElement)));
  return ['the page is ' + document.documentElement.scrollWidth + ' px wide in a window of ' + width]
    .concat(wide.slice(0, 5).map(e => 'too wide: ' + e.tagName.toLowerCase() + '.' + e.className));
}"""
_VIOLATIONS = "(options) => axe.run(document, options).then((report) => JSON.stringify(report.violations))"


def overflow(page: Page) -> list[str]:
    return page.evaluate(_OVERFLOW)


def load_axe_with_each_page(page: Page) -> None:
    """For a page that is opened many times: its source, half a megabyte, is sent to the browser once."""
    page.add_init_script(Axe().axe_script)


def violations(page: Page, tags: Sequence[str] = (), *, contrast: bool = True) -> list[dict[str, Any]]:
    """What axe finds, by the rules with these tags, or by those that axe runs by default. `contrast`: also of colours,
    which takes four times as long as all other rules together. What passed, which is most of a report, stays in the
    browser: Playwright would take it apart value by value."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    rules = {} if contrast else {"rules": {"color-contrast": {"enabled": False}}}
    options = {"resultTypes": ["violations"]} | rules | ({"runOnly": list(tags)} if tags else {})
    found: list[dict[str, Any]] = json.loads(page.evaluate(_VIOLATIONS, options))
    return found


def accessibility(page: Page, *, contrast: bool = True) -> list[str]:
    return [
        f"axe {v['id']}: {node['html'][:160]}: {node['failureSummary'].splitlines()[-1].strip()}"
        for v in violations(page, contrast=contrast)
        for node in v["nodes"][:3]
    ]


def problems(page: Page, complaints: list[str]) -> list[str]:
    """`complaints`: console errors (including CSP reports), exceptions and requests to other hosts."""
    return [*complaints, *overflow(page), *accessibility(page)]
