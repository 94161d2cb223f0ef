"""A URL alone is enough to register a server of any transport. Roots and limits are edited on its page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.peers.peers import peer_command, start_peer
from tests.screenshots.judge import violations

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture(scope="module")
def faces() -> Iterator[str]:
    """One SDK 1.x server with all its transports: /mcp, /sse and /ws."""
    peer = start_peer("sdk1", "all")
    yield peer.url.removesuffix("/mcp")
    peer.stop()


def call_echo(walk, slug: str, words: str) -> None:
    walk.open_tool(slug, "echo")
    walk.fill_argument("text", words)
    walk.run_tool()
    expect(walk.result()).to_contain_text("Succeeded")
    expect(walk.result()).to_contain_text(words)


def test_a_server_of_2024_is_registered_by_its_url_alone_and_takes_a_call(stack, walker, faces) -> None:
    ada = walker(stack, signed_in=True)
    ada.fill_url("Old friend", faces + "/sse")
    expect(ada.page.get_by_label("Command", exact=True)).to_be_hidden()
    ada.save()
    ada.wait_for_state("Ready")
    call_echo(ada, "old-friend", "over two channels")
    expect(ada.page.locator(".meta")).to_contain_text("HTTP+SSE")
    ada.open("/servers/old-friend/info/")
    main = ada.page.locator("main")
    expect(main).to_contain_text("Detected by")
    expect(main).to_contain_text("Unavailable features")


@pytest.mark.long
def test_a_websocket_is_chosen_by_its_scheme_and_marked_as_outside_of_the_specification(stack, walker, faces) -> None:
    ada = walker(stack, signed_in=True)
    ada.fill_url("Sockets", faces.replace("http://", "ws://") + "/ws")
    tested = ada.test_connection()
    expect(tested).to_contain_text("over WebSocket")
    ada.save()
    ada.wait_for_state("Ready")
    expect(ada.page.locator(".meta")).to_contain_text("Not in the specification")
    call_echo(ada, "sockets", "over a socket")
    ada.open("/servers/sockets/settings/")
    expect(ada.page.locator("[data-use-of=websocket]")).to_contain_text("not in the specification")


def test_a_new_server_is_offered_the_credentials_of_its_own_address_only(stack, walker, faces) -> None:
    ada = walker(stack, signed_in=True)
    ada.open("/credentials/add/")
    page = ada.page
    page.get_by_label("Name").fill("Token of the faces")
    page.get_by_label("For").fill(f"{faces}/mcp")
    page.locator("#id_token").fill("canary-of-a-browser-77")
    page.locator("main").get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Token of the faces")).to_be_visible()
    ada.fill_url("With a token", "http://127.0.0.1:9/mcp")
    offered = page.get_by_role("checkbox", name="Token of the faces")
    expect(offered).to_be_hidden()
    expect(page.get_by_text("No credentials for the address above.")).to_be_visible()
    page.get_by_label("URL", exact=True).fill(f"{faces}/mcp")
    offered.check()
    expect(ada.test_connection()).to_contain_text("Works")
    ada.save()
    ada.wait_for_state("Ready")
    ada.open("/servers/with-a-token/settings/")
    expect(page.locator("#credentials")).to_contain_text("Token of the faces")


def test_roots_and_limits_are_edited_and_a_wrong_one_is_refused_where_it_stands(stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    ada.complaints.allow("422")
    ada.register_stdio("Bounded", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.open("/servers/bounded/settings/")
    page = ada.page
    page.get_by_label("Folder").fill("/srv/my data")
    page.get_by_role("button", name="Add root").click()
    page.get_by_label("Folder").nth(1).fill("https://elsewhere.example/")
    page.locator("[data-limits] summary").click()
    page.get_by_label("Entries of a list").fill("5")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator(".err", has_text="A root must be a file URI")).to_be_visible()
    expect(page.get_by_role("link", name="Root 2, folder: A root must be a file URI")).to_be_visible()
    expect(page.get_by_text("Enter a number between 10 and 100,000.", exact=True)).to_be_visible()

    page.get_by_label("Folder").nth(1).fill("file:///srv/more")
    page.get_by_label("Entries of a list").fill("50")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("notified of the new roots")).to_be_visible()
    row = stack.rows("SELECT roots, limits FROM servers_server WHERE name = 'Bounded'")[0]
    assert "file:///srv/my%20data" in row["roots"]
    assert "file:///srv/more" in row["roots"]
    assert row["limits"] == '{"list_items": 50}'
    expect(page.locator("[data-limits] summary")).to_contain_text("1 set for this server")
    ada.open("/explorer/?q=last:1h+in:events+kind:servers+server:bounded")
    page.get_by_role("link", name="Server changed").first.click()
    expect(page.locator("#detail")).to_contain_text("file:///srv/more")


@pytest.mark.long
def test_a_root_is_added_and_removed_without_script(stack, walker) -> None:
    ada = walker(stack, signed_in=True)
    ada.register_stdio("Plain roots", *peer_command("demo"))
    plain = walker(stack, signed_in=True, java_script_enabled=False)
    plain.open("/servers/plain-roots/settings/")
    page = plain.page
    page.locator("[name='roots-0-uri']").fill("/srv/one")
    page.get_by_role("button", name="Add root").click()
    page.locator("[name='roots-1-uri']").fill("/srv/two")
    page.locator("[name='roots-0-DELETE']").check()
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("Saved. The server is notified of the new roots.")).to_be_visible()
    assert page.locator("[name='roots-0-uri']").input_value() == "file:///srv/two"


def test_a_variable_of_several_lines_is_pasted_and_outlasts_a_change_of_something_else(stack, walker) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    ada = walker(stack, signed_in=True)
    page = ada.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    command, arguments = peer_command("demo")
    ada.fill_stdio("Certified", command, arguments, CA_PEM="")
    page.evaluate("(text) => navigator.clipboard.writeText(text)", pem)
    rows = page.locator("[data-value-row]:visible")
    rows.nth(0).get_by_label("Secret").uncheck()
    page.get_by_role("button", name="Add row").click()
    rows.nth(1).get_by_label("Name").fill("CA_KEY")
    for row in rows.all()[:2]:
        row.get_by_label("Value").focus()
        page.keyboard.press("Control+V")
        expect(row.get_by_label("Value")).to_have_value(pem)
        expect(row.get_by_label("Value")).to_be_focused()
    ada.save()
    ada.wait_for_state("Ready")
    ada.open("/servers/certified/settings/")
    page.get_by_label("Description").fill("Changed")
    plain, sealed = (rows.nth(at).get_by_label("Value") for at in range(2))
    expect(plain).to_have_value(pem)
    expect(sealed).to_have_attribute("type", "password")
    sealed.focus()
    page.keyboard.press("Control+V")
    expect(sealed).to_have_css("-webkit-text-security", "disc")
    assert violations(page) == []
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("Saved.", exact=True)).to_be_visible()
    values = (
        "SELECT value.plain FROM servers_servervalue value JOIN servers_server server ON server.id = value.server_id"
    )
    found = [row["plain"] for row in stack.rows(f"{values} WHERE server.slug = 'certified'")]
    assert sorted(found) == ["", pem]
