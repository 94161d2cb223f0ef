"""`make screenshots`: captures every page of pages.py at two widths in two themes, into tests/screenshots/out/.

One page only: make screenshots ARGS="-k audit"
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.screenshots.judge import problems
from tests.screenshots.pages import SHOTS, SIZES, THEMES
from tests.screenshots.product import Product, opened
from tests.screenshots.shot import Shot, Stage

OUT = Path(__file__).resolve().parent / "out"
pytestmark = [pytest.mark.browser, pytest.mark.slow]
MATRIX = [
    pytest.param(shot, size, theme, id=f"{shot.name}-{size}-{theme}")
    for stage in Stage
    for shot in SHOTS
    if shot.stage is stage
    for size in SIZES
    for theme in THEMES
]


@pytest.mark.parametrize(("shot", "size", "theme"), MATRIX)
def test_a_page_has_nothing_a_reader_would_stumble_over(
    product: Product, browser: Browser, shot: Shot, size: str, theme: str
) -> None:
    OUT.mkdir(exist_ok=True)
    with opened(browser, product, shot, SIZES[size], theme) as (page, complaints):
        page.screenshot(path=OUT / f"{shot.name}-{size}-{theme}.png", animations="disabled", full_page=True)
        assert problems(page, complaints.unexpected()) == []
