"""The settings of the instance in a browser: found by words, changed in place, refused to others."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.looks import WINDOWS, problems, resized

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
PASSWORD = "purple monkey dishwasher"


def test_a_setting_is_found_by_words_and_changed_in_place(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.complaints.allow("422")
    ada.open("/")
    ada.page.get_by_role("navigation", name="Main").get_by_role("link", name="Settings").click()
    row = ada.page.get_by_role("listitem").filter(has_text="MCPADMIN_WORKERS")
    expect(row).to_contain_text("manage.py up")
    ada.page.get_by_role("searchbox").fill("storage server logs")
    ada.page.get_by_role("button", name="Filter").click()
    expect(ada.page.locator(".settings-list > li")).to_have_count(1)
    ada.page.get_by_label("Days: Server logs").fill("0")
    ada.page.get_by_role("button", name="Save Storage: server logs").click()
    expect(ada.page.get_by_text("Enter a whole number of 1 or more")).to_be_visible()
    expect(ada.page.get_by_label("Days: Server logs")).to_have_value("0")
    expect(ada.page.get_by_label("Days: Server logs")).to_be_focused()
    ada.page.get_by_label("Days: Server logs").fill("45")
    ada.page.get_by_role("button", name="Save Storage: server logs").click()
    expect(ada.page.get_by_text("Saved.")).to_be_visible()
    expect(ada.page.get_by_role("listitem").filter(has_text="Storage: server logs")).to_contain_text("45 days")
    ada.open("/settings/")
    ada.page.get_by_role("button", name="Turn off: Privacy: Mask detected secrets").click()
    expect(ada.page.get_by_role("button", name="Turn on: Privacy: Mask detected secrets")).to_be_visible()
    ada.open("/settings/?text=nothing-has-this-name")
    expect(ada.page.get_by_role("heading", name="No matching settings")).to_be_visible()


@pytest.mark.long
def test_only_administrators_see_the_settings(own_stack, walker) -> None:
    own_stack.shell(
        f"from django.contrib.auth.models import User\nUser.objects.create_user('vera', password={PASSWORD!r})"
    )
    vera = walker(own_stack, signed_in=True, account=("vera", PASSWORD))
    vera.complaints.allow("403")
    vera.open("/")
    expect(vera.page.get_by_role("link", name="Settings")).to_have_count(0)
    vera.open("/settings/")
    expect(vera.page.get_by_role("heading", name="You don't have permission")).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_the_settings_are_accessible_and_fit(own_stack, walker, width: int, theme: str) -> None:
    assert (
        problems(walker, own_stack, "/settings/", "/settings/?text=nothing-has-this-name", width=width, theme=theme)
        == []
    )
    if folder := os.environ.get("KIT_SCREENSHOTS"):
        person = resized(walker(own_stack, signed_in=True), width, theme)
        person.open("/settings/")
        person.page.screenshot(path=Path(folder) / f"settings-{width}-{theme}.png")
