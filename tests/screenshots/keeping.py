"""What is done on the pages about privacy and storage before their picture is taken."""

from playwright.sync_api import Page


def try_path(page: Page) -> None:
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("masked.").wait_for()


def add_bad_rule(page: Page) -> None:
    page.get_by_label("Path").fill("$..[")
    page.get_by_role("button", name="Add rule").click()
    page.get_by_text("Correct the marked fields.").wait_for()


def keep_nothing(page: Page) -> None:
    page.get_by_label("Calls: days").fill("0")
    page.get_by_role("button", name="Save limits").click()
    page.get_by_text("Correct the marked fields.").wait_for()


def open_erasing(page: Page) -> None:
    page.get_by_role("link", name="Erase result").click()
    page.get_by_role("heading", name="Erase result of").wait_for()
