"""What a reader would stumble over on a page: faults of accessibility, and contents wider than the screen."""

from collections.abc import Callable
from typing import Any

from tests.kit.test_pages import faults
from tests.screenshots.judge import overflow

WINDOWS = [(width, theme) for width in (1440, 390) for theme in ("light", "dark")]


def problems(walker: Callable[..., Any], stack: Any, *paths: str) -> list[str]:
    """Of each page, at both widths and in both themes."""
    found = []
    for width, theme in WINDOWS:
        window = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
        person = walker(stack, signed_in=True, **window)
        for path in paths:
            person.page.goto(path, wait_until="load")
            found += [f"{path} {width} {theme}: {fault}" for fault in faults(person.page)]
            found += [f"{path} {width} {theme}: {fault}" for fault in overflow(person.page)]
    return found
