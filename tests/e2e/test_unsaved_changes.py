"""A form with unsaved changes warns before it is left, also after a test of its connection or a refused save; saving it
warns of nothing."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]


def asked_to_stay(page: Page) -> list[str]:
    """The person stays each time; the list grows with each question."""
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    return asked


def test_a_tested_form_still_warns_of_what_was_not_saved_and_a_saved_one_does_not(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = stack.register("Unsaved", peer_command("demo"))
    ada = walker(stack, signed_in=True)
    page = ada.page
    warned = asked_to_stay(page)
    ada.open(f"/servers/{slug}/settings/")
    page.locator("#id_name").fill("Unsaved, renamed")
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#test-result")).to_contain_text("Works", timeout=60_000)
    page.get_by_role("navigation", name="Server sections").get_by_role("link", name="Prompts").click(no_wait_after=True)
    expect(page).to_have_url(f"{stack.base_url}/servers/{slug}/settings/")
    assert warned == ["beforeunload"]
    page.get_by_role("button", name="Save", exact=False).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Unsaved, renamed")
    assert warned == ["beforeunload"]


def test_a_form_that_was_refused_still_warns(stack: Stack, walker: Callable[..., Walk]) -> None:
    slug = stack.register("Refused", peer_command("demo"))
    ada = walker(stack, signed_in=True)
    ada.complaints.allow("422")
    page = ada.page
    warned = asked_to_stay(page)
    ada.open(f"/servers/{slug}/settings/")
    page.get_by_label("Notes").fill("Typed before it was refused")
    page.locator("#id_name").fill("")
    page.get_by_role("button", name="Save", exact=False).first.click()
    expect(page.locator(".err").first).to_be_visible()
    page.get_by_role("navigation", name="Server sections").get_by_role("link", name="Prompts").click(no_wait_after=True)
    expect(page.get_by_label("Notes")).to_have_value("Typed before it was refused")
    assert warned == ["beforeunload"]


def test_sending_one_form_asks_about_what_was_typed_into_the_other(stack: Stack, walker: Callable[..., Walk]) -> None:
    ada = walker(stack, signed_in=True)
    page = ada.page
    warned = asked_to_stay(page)
    ada.open("/account/")
    page.get_by_label("Name", exact=True).fill("Ada, renamed")
    page.get_by_label("Theme", exact=True).select_option("dark")
    page.get_by_role("button", name="Save display settings").click(no_wait_after=True)
    ada.until(lambda: bool(warned))
    expect(page.get_by_label("Name", exact=True)).to_have_value("Ada, renamed")
    assert warned == ["beforeunload"]
    page.get_by_role("button", name="Save profile").click(no_wait_after=True)  # the other form was not sent
    ada.until(lambda: len(warned) == 2)
