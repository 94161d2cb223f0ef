"""A form with unsaved changes warns before it is left, also after a test of its connection; saving it warns of nothing."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Dialog, expect

from tests.e2e.walk import Walk
from tests.peers.peers import peer_command
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]


def test_a_tested_form_still_warns_of_what_was_not_saved_and_a_saved_one_does_not(
    stack: Stack, walker: Callable[..., Walk]
) -> None:
    slug = stack.register("Unsaved", peer_command("demo"))
    ada = walker(stack, signed_in=True)
    page = ada.page
    warned: list[str] = []

    def stay(dialog: Dialog) -> None:
        warned.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
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
