"""Two people work at once: neither loses work, and each sees what the other did."""

import pytest
from playwright.sync_api import expect

from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


def test_the_second_of_two_admins_who_save_sees_the_difference_and_loses_nothing(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    bob.complaints.allow("409")
    ada.register_stdio("Edited by two", *peer_command("demo"))
    ada.wait_for_state("Ready")
    for person in (ada, bob):
        person.open("/servers/edited-by-two/settings/")
    ada.page.get_by_label("Description").fill("what ada wrote")
    ada.page.get_by_role("button", name="Save changes").click()
    expect(ada.page.get_by_text("Saved.", exact=True)).to_be_visible()

    bob.page.get_by_label("Description").fill("what bob wrote")
    bob.page.get_by_role("button", name="Save changes").click()
    conflict = bob.page.locator("#conflict")
    expect(conflict).to_contain_text("what ada wrote")
    expect(conflict).to_contain_text("what bob wrote")
    expect(bob.page.get_by_label("Description")).to_have_value("what bob wrote")
    bob.page.get_by_role("button", name="Save changes").click()
    expect(bob.page.get_by_text("Saved.", exact=True)).to_be_visible()
    row = stack.rows("SELECT description, version FROM servers_server WHERE name = 'Edited by two'")[0]
    assert (row["description"], row["version"]) == ("what bob wrote", 3)


def test_enter_in_a_field_of_the_settings_saves_them_and_adds_no_row(stack, walker) -> None:
    stack.manage("register_server", "--user", ADMIN[0], "--name", "By enter", "--url", "http://127.0.0.1:9/mcp")
    ada = walker(stack, signed_in=True)
    ada.open("/servers/by-enter/settings/")
    ada.page.locator("#server-form input[name=name]").fill("Saved by enter")
    ada.page.keyboard.press("Enter")
    expect(ada.page.get_by_text("Saved.")).to_be_visible()
    expect(ada.page.get_by_role("heading", name="Saved by enter")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["script", "no-script"])
def test_a_page_of_a_deleted_server_does_not_touch_the_one_that_has_its_short_name(scripts, stack, walker) -> None:
    name, slug = f"Replaced {scripts}", f"replaced-{scripts}".lower()
    ada = walker(stack, signed_in=True)
    bob, carl = (walker(stack, signed_in=True, java_script_enabled=scripts) for _ in range(2))
    for person in (bob, carl):
        person.complaints.allow("409")
    ada.register_http(name, "http://127.0.0.1:9/first")
    bob.open(f"/servers/{slug}/settings/")
    carl.open(f"/servers/{slug}/delete/")
    ada.open(f"/servers/{slug}/delete/")
    ada.page.get_by_label("Type").fill(name)
    ada.page.get_by_role("button", name="Delete for good").click()
    expect(ada.page.get_by_text(f"{name} was deleted")).to_be_visible()
    ada.register_http(name, "http://127.0.0.1:9/second")

    gone = "another server now has its short name. Nothing was changed."
    for written in ("what bob wrote", "what bob wrote again"):
        bob.page.get_by_label("Description").fill(written)
        bob.page.get_by_role("button", name="Save changes").click()
        expect(bob.page.get_by_label("Description")).to_have_attribute("value", written)  # as the new page has it
        expect(bob.page.get_by_role("alert")).to_contain_text(gone)
    bob.page.get_by_role("button", name="Test connection").click()
    expect(bob.page.get_by_text("Not tested")).to_be_visible()
    carl.page.get_by_label("Type").fill(name)
    carl.page.get_by_role("button", name="Delete for good").click()
    expect(carl.page.get_by_role("alert")).to_contain_text(gone)
    row = stack.rows("SELECT url, description, version FROM servers_server WHERE slug = ?", slug)[0]
    assert (row["url"], row["description"], row["version"]) == ("http://127.0.0.1:9/second", "", 1)


def test_a_disabled_server_tells_everybody_and_refuses_calls(stack, walker) -> None:
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    ada.register_stdio("Switched off", *peer_command("demo"))
    ada.wait_for_state("Ready")
    bob.open_tool("switched-off", "greet")
    ada.open("/servers/switched-off/disable/")
    expect(ada.page.get_by_text("Impact")).to_be_visible()
    ada.page.get_by_role("button", name="Disable").click()
    bob.wait_for_state("Disabled")
    bob.fill_argument("name", "bob")
    bob.run_tool()
    expect(bob.page.locator("[data-call-refused]")).to_contain_text("disabled")


@pytest.mark.long
def test_a_deleted_server_leaves_its_calls_and_audit_rows_with_its_name(stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    ada.complaints.allow("422")
    ada.register_stdio("Short lived", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.open_tool("short-lived", "greet")
    ada.fill_argument("name", "ada")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    ada.open("/servers/short-lived/delete/")
    ada.page.get_by_label("Type").fill("something else")
    ada.page.get_by_role("button", name="Delete for good").click()
    expect(ada.page.get_by_text("Does not match. Type it exactly as shown.")).to_be_visible()
    ada.page.get_by_label("Type").fill("Short lived")
    ada.page.get_by_role("button", name="Delete for good").click()
    expect(ada.page.get_by_text("Short lived was deleted")).to_be_visible()
    assert stack.rows("SELECT 1 FROM servers_server WHERE name = 'Short lived'") == []
    assert stack.rows("SELECT 1 FROM mcp_sessions_call WHERE server_name = 'Short lived'")
    ada.open("/audit/")
    expect(ada.page.get_by_role("row").filter(has_text="Server deleted").filter(has_text="Short lived")).to_be_visible()


def test_a_call_can_be_placed_without_script(stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    ada.register_stdio("No script", *peer_command("demo"))
    ada.wait_for_state("Ready")
    plain = walker(stack, signed_in=True, java_script_enabled=False)
    plain.open("/servers/no-script/tools/?tool=greet")
    plain.page.locator("[name='arg:/name']").fill("nobody's script")
    plain.page.get_by_role("button", name="Run tool").click()
    plain.page.wait_for_url("**/calls/*/")
    plain.until(lambda: (plain.page.reload(), "Succeeded" in plain.page.content())[1])
    expect(plain.page.get_by_text("nobody's script").first).to_be_visible()


def test_a_secret_header_never_comes_back_to_a_page(stack, walker) -> None:
    canary = "canary-4711-secret-value"
    ada = walker(stack, signed_in=True)
    ada.fill_http("Sealed", "http://127.0.0.1:9/mcp", Authorization=f"Bearer {canary}")
    ada.save()
    expect(ada.page.get_by_role("heading", name="Sealed", exact=True)).to_be_visible()
    for path in ("settings/", "info/", "logs/", "history/", "tools/"):
        ada.open(f"/servers/sealed/{path}")
        assert canary not in ada.page.content()
    ada.open("/explorer/")
    assert canary not in ada.page.content()
    assert canary not in stack.output
    # What was written last is in the file beside it.
    stored = b"".join(file.read_bytes() for file in stack.data_dir.glob("mcpadmin.sqlite3*"))
    assert b"Sealed" in stored
    assert canary.encode() not in stored


def test_an_open_history_does_not_show_the_calls_of_a_server_that_got_its_short_name(stack, walker) -> None:
    ada, bob = (walker(stack, signed_in=True) for _ in range(2))
    for name in ("Renamed", "Successor"):
        stack.register(name, peer_command("demo"))
    ada.open_tool("renamed", "greet")
    ada.fill_argument("name", "ada")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
    bob.open("/servers/renamed/history/")
    calls = bob.page.locator("#history-calls [data-call-row]")
    expect(calls).to_have_count(1)
    stack.write("UPDATE servers_server SET slug = 'renamed-before' WHERE slug = 'renamed'")
    stack.write("UPDATE servers_server SET slug = 'renamed' WHERE slug = 'successor'")
    ada.run_tool()
    expect(bob.page.locator("[data-toasts-assertive]")).to_contain_text("another one now has its short name")
    expect(calls).to_have_count(1)
