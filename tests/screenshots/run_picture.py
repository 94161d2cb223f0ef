"""Captures the pictures of the README and of docs/ into docs/img/:
`.venv/bin/python -m pytest -q tests/screenshots/run_picture.py`.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.screenshots.pages import SHOTS
from tests.screenshots.product import Product, opened

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURES = CHECKOUT / "docs" / "img"
# Names of pages.py. What a reader of the document sees first.
DOCUMENTED = (
    "overview",
    "explorer-drawer",
    "audit-proof",
    "bundle",
    "user-rights",
    "storage",
    "protocol-open",
    "import-preview",
    "subscription-compared",
)
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_picture_of_the_readme_is_taken(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.open("/servers/")
    ada.page.get_by_role("button", name="Add demo server").click()
    ada.wait_for_state("Ready")
    ada.open(f"{ada.page.url.rstrip('/').removesuffix('/tools')}/tools/?tool=search_notes".replace(ada.base_url, ""))
    for tag in ("travel", "garden"):
        ada.page.get_by_label(tag, exact=True).first.check()
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    ada.page.mouse.move(0, 0)
    ada.page.wait_for_timeout(4_500)  # until the toasts have disappeared
    # The path of this checkout is of no use to a reader, so show the command instead.
    meta = ada.page.locator(".meta").get_by_text("mcpadmin", exact=False).first
    meta.evaluate("node => { node.textContent = 'python -m mcpadmin.demo_server' }")
    ada.page.get_by_role("heading", name="Search notes").scroll_into_view_if_needed()
    expect(ada.page.locator("body")).not_to_contain_text(str(CHECKOUT))
    ada.page.screenshot(path=PICTURES / "server.png", animations="disabled")


@pytest.mark.parametrize("shot", [shot for shot in SHOTS if shot.name in DOCUMENTED], ids=lambda shot: shot.name)
def test_a_picture_of_the_documents_is_taken(product: Product, browser: Browser, shot) -> None:
    with opened(browser, product, shot, (1280, 800), "light") as (page, complaints):
        page.mouse.move(0, 0)
        expect(page.locator("body")).not_to_contain_text(str(CHECKOUT))
        page.screenshot(path=PICTURES / f"{shot.name}.png", animations="disabled")
        assert complaints.unexpected() == []
