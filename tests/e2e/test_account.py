"""The account page in a browser: its settings apply to every page and in all of the user's browsers."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.looks import WINDOWS, problems, resized

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
PASSWORD = "purple monkey dishwasher"
SINCE = "document.querySelector('main time[data-time]').title"


def test_zone_utc_switch_and_theme_hold_on_every_page_and_in_another_browser(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True, timezone_id="Europe/Berlin")
    ada.open("/account/")
    assert "Europe/Berlin" in ada.page.evaluate(SINCE)
    ada.page.get_by_label("Time zone").select_option("Asia/Tehran")
    ada.page.get_by_role("combobox", name="Theme").select_option("dark")
    ada.page.get_by_role("button", name="Save display settings").click()
    expect(ada.page.get_by_text("Saved.")).to_be_visible()
    assert "Asia/Tehran" in ada.page.evaluate(SINCE)

    elsewhere = walker(own_stack, signed_in=True, timezone_id="America/New_York")
    elsewhere.open("/explorer/?q=last:24h")
    expect(elsewhere.page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    assert "Asia/Tehran" in elsewhere.page.evaluate(SINCE)
    local = elsewhere.page.locator("[data-range-since]").input_value()
    elsewhere.page.get_by_role("button", name="Account menu").click()
    with elsewhere.page.expect_response("**/account/preferences/") as kept:
        elsewhere.page.get_by_role("button", name="Times in UTC").click()
    assert kept.value.status == 204
    assert " UTC · " in elsewhere.page.evaluate(SINCE)
    assert minutes(local) - minutes(elsewhere.page.locator("[data-range-since]").input_value()) in (210, 210 - 1440)
    ada.open("/account/")
    assert " UTC · " in ada.page.evaluate(SINCE)
    expect(ada.page.get_by_label("Show times in UTC")).to_be_checked()

    ada.page.get_by_label("Time zone").select_option("")
    ada.page.get_by_label("Show times in UTC").uncheck()
    ada.page.get_by_role("combobox", name="Theme").select_option("system")
    ada.page.get_by_role("button", name="Save display settings").click()
    expect(ada.page.get_by_text("Saved.")).to_be_visible()
    assert "Europe/Berlin" in ada.page.evaluate(SINCE)
    expect(ada.page.locator("html")).to_have_attribute("data-bs-theme", "light")


def minutes(moment: str) -> int:
    hours, rest = re.search(r"T(\d\d):(\d\d)", moment).groups()
    return int(hours) * 60 + int(rest)


def test_a_wrong_password_keeps_the_address_and_says_so(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.complaints.allow("422")
    ada.open("/account/")
    ada.page.get_by_label("Email").fill("ada@example.org")
    ada.page.get_by_role("textbox", name="Current password").fill("guessed")
    ada.page.get_by_role("button", name="Save profile").click()
    expect(ada.page.get_by_text("Enter your current password").first).to_be_visible()
    expect(ada.page.get_by_label("Email")).to_have_value("ada@example.org")
    assert own_stack.rows("SELECT email FROM auth_user WHERE username = 'ada'")[0]["email"] == ""


def test_a_person_without_permissions_has_a_page_of_their_own(own_stack, walker) -> None:
    own_stack.shell(
        f"from django.contrib.auth.models import User\nUser.objects.create_user('vera', password={PASSWORD!r})"
    )
    vera = walker(own_stack, signed_in=True, account=("vera", PASSWORD))
    vera.open("/account/")
    expect(vera.page.get_by_text("None yet. Ask an administrator for access.")).to_be_visible()
    expect(vera.page.get_by_role("link", name="New token")).to_have_count(0)


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_the_page_is_accessible_and_fits(own_stack, walker, width: int, theme: str) -> None:
    assert problems(walker, own_stack, "/account/", width=width, theme=theme) == []
    if folder := os.environ.get("KIT_SCREENSHOTS"):
        person = resized(walker(own_stack, signed_in=True), width, theme)
        person.open("/account/")
        person.page.screenshot(path=Path(folder) / f"account-{width}-{theme}.png", full_page=True)
