"""Captures the pictures of the README and of docs/ into docs/img/:
`.venv/bin/python -m pytest -q tests/screenshots/run_picture.py`.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.screenshots.pages import SHOTS
from tests.screenshots.product import Product, opened

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURES = CHECKOUT / "docs" / "img"
# Names from pages.py, in the order of the document.
DOCUMENTED = (
    "overview",
    "explorer-drawer",
    "bundle",
    "user-permissions",
    "storage",
    "protocol-open",
    "import-preview",
    "subscription-compared",
)
#: the demo server's command as a reader would write it, not where this checkout is
_SHORTEN = """(checkout) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (node.data.includes(checkout))
      node.data = node.data.replaceAll(`${checkout}/.venv/bin/`, '').replaceAll(`${checkout}/mcpadmin/`, '-m mcpadmin.');
  }
}"""
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def take(page: Page, name: str) -> None:
    page.evaluate(_SHORTEN, str(CHECKOUT))
    expect(page.locator("body")).not_to_contain_text(str(CHECKOUT))
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


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
    ada.page.get_by_role("heading", name="Search notes").scroll_into_view_if_needed()
    take(ada.page, "server")


@pytest.mark.parametrize("shot", [shot for shot in SHOTS if shot.name in DOCUMENTED], ids=lambda shot: shot.name)
def test_a_picture_of_the_documents_is_taken(product: Product, browser: Browser, shot) -> None:
    with opened(browser, product, shot, (1280, 800), "light") as (page, complaints):
        page.mouse.move(0, 0)
        take(page, shot.name)
        assert complaints.unexpected() == []
