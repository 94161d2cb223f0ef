"""From an invitation to the first call of the invited person, and what happens to them when they are disabled."""

import re

import pytest
from playwright.sync_api import expect

from tests.peers.peers import peer_command

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
PASSWORD = "purple monkey dishwasher"


def test_an_invited_person_makes_a_call_and_is_out_at_once_when_disabled_during_one(own_stack, walker) -> None:
    ada, nina = walker(own_stack, signed_in=True), walker(own_stack)
    ada.register_stdio("Orders", *peer_command("demo"))
    ada.wait_for_state("Ready")

    ada.open("/")
    ada.page.get_by_role("link", name="Users").click()
    ada.page.get_by_role("link", name="Invite").click()
    ada.page.get_by_label("Name", exact=True).fill("Nina Novak")
    ada.page.get_by_label("Callers").check()
    ada.page.get_by_role("button", name="Create link").click()
    link = ada.page.get_by_label("Link", exact=True).input_value()
    assert re.fullmatch(re.escape(own_stack.base_url.rstrip("/")) + r"/link/[\w-]{43}/", link)
    ada.open("/users/")
    expect(ada.page.get_by_role("row").filter(has_text="Nina Novak")).to_contain_text("Invited")

    nina.use_setup_link(link, "nina", PASSWORD)
    nina.open_tool("orders", "greet")
    nina.fill_argument("name", "Nina")
    nina.run_tool()
    expect(nina.result()).to_contain_text("Succeeded")
    nina.open("/users/")
    nina.complaints.allow("403")
    expect(nina.page.get_by_text("You don't have permission to manage users")).to_be_visible()

    # a permission that is given reaches the page that is open
    ada.open("/users/")
    ada.page.get_by_role("link", name="nina", exact=True).click()
    ada.page.get_by_role("link", name="Change").click()
    ada.page.get_by_label("Read the audit log").check()
    ada.page.get_by_role("button", name="Save").click()
    expect(ada.page.get_by_text("Granted directly")).to_be_visible()
    nina.open("/audit/")
    expect(nina.page.get_by_role("row").filter(has_text="Invitation accepted")).to_be_visible()

    nina.complaints.allow("401")
    nina.complaints.allow("WebSocket")
    nina.open_tool("orders", "countdown")
    nina.fill_argument("start", "8")
    nina.run_tool()
    expect(nina.page.locator("#results .call-slot").first).to_contain_text("Running")
    ada.page.get_by_role("link", name="Disable").click()
    expect(ada.page.get_by_text("Impact")).to_be_visible()
    ada.page.get_by_role("button", name="Disable").click()
    expect(ada.page.get_by_text("nina is disabled and signed out everywhere")).to_be_visible()
    expect(ada.page.get_by_text("Not signed in anywhere")).to_be_visible()
    expect(nina.page.get_by_text("Signed out · sign in")).to_be_visible()
    nina.open("/servers/")
    expect(nina.page.get_by_role("heading", name="Sign in")).to_be_visible()

    def finished() -> bool:
        rows = own_stack.rows("SELECT state FROM mcp_sessions_call WHERE target = 'countdown' AND user_name = 'nina'")
        return [row["state"] for row in rows] == ["succeeded"]

    ada.until(finished)


def test_a_new_password_ends_the_sign_in_of_another_browser(own_stack, walker) -> None:
    ada, olga, elsewhere = walker(own_stack, signed_in=True), walker(own_stack), walker(own_stack)
    own_stack.shell(
        "from django.contrib.auth.models import Group, User\n"
        f"user = User.objects.create_user('olga', password={PASSWORD!r})\n"
        "user.groups.add(Group.objects.get(name='Callers'))"
    )
    elsewhere.complaints.allow("401")
    elsewhere.complaints.allow("WebSocket")
    elsewhere.sign_in("olga", PASSWORD)
    ada.open("/users/")
    ada.page.get_by_role("link", name="olga", exact=True).click()
    expect(ada.page.get_by_role("row").filter(has_text="Chrome on Linux")).to_be_visible()
    ada.page.get_by_role("button", name="Password link").click()
    olga.page.goto(ada.page.get_by_label("Link", exact=True).input_value())
    for field in ("new_password1", "new_password2"):
        olga.page.locator(f"input[name={field}]").fill("another fine password")
    olga.page.get_by_role("button", name="Set password and sign in").click()
    expect(olga.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(elsewhere.page.get_by_text("Signed out · sign in")).to_be_visible()
