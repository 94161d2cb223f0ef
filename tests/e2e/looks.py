"""What a reader would stumble over on a page: faults of accessibility, and contents wider than the screen."""

from collections.abc import Callable
from typing import Any

from tests.e2e.walk import Walk
from tests.kit.test_pages import WINDOWS, faults
from tests.screenshots.judge import overflow

__all__ = ["WINDOWS", "faults", "problems", "resized"]


def resized(person: Walk, width: int, theme: Any) -> Walk:
    """The user's next page has this width and theme. A separate browser context for each would load and compile
    all scripts again."""
    person.page.set_viewport_size({"width": width, "height": 900})
    person.page.emulate_media(color_scheme=theme)
    return person


def problems(walker: Callable[..., Walk], stack: Any, *paths: str, width: int, theme: str) -> list[str]:
    """Of each page, in one window."""
    page, found = resized(walker(stack, signed_in=True), width, theme).page, []
    for path in paths:
        page.goto(path, wait_until="load")
        found += [f"{path} {width} {theme}: {fault}" for fault in faults(page) + overflow(page)]
    return found
