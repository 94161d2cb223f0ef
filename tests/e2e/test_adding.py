"""*Add server* in the browser: one field, its connection test, a sign-in if required, and the clicks it takes."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.looks import WINDOWS, resized
from tests.e2e.walk import Walk
from tests.peers.peers import free_port, peer_command, start_peer
from tests.screenshots.judge import violations
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.deadline(300)]
MOST_CLICKS = 4
COUNTER = """if (!window.countsClicks) addEventListener('click', (event) => {
  if (event.isTrusted) sessionStorage.setItem('clicks', Number(sessionStorage.getItem('clicks') ?? 0) + 1);
}, true);
window.countsClicks = true;"""


@pytest.fixture(scope="module")
def faces() -> Iterator[str]:
    peer = start_peer("sdk1", "all")
    yield peer.url.removesuffix("/mcp")
    peer.stop()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[str]:
    """A server behind the SDK's authorization server, which consents at once."""
    peer = start_peer("protected", port=free_port(), env={"PROTECTED_LOG": str(tmp_path / "gate.log")})
    yield peer.url
    peer.kill()


@pytest.fixture
def ada(stack: Stack, walker: Callable[..., Walk]) -> Walk:
    person = walker(stack, signed_in=True)
    person.page.add_init_script(COUNTER)  # a context goes to later tests, with its scripts
    return person


def from_the_list(person: Walk) -> Page:
    """Where a person starts: nothing is clicked yet."""
    person.open("/servers/")
    person.page.evaluate("sessionStorage.setItem('clicks', '0')")
    person.page.get_by_role("link", name="Add server").first.click()
    expect(person.page.get_by_label("URL, command or configuration")).to_be_focused()
    return person.page


def clicks(page: Page) -> int:
    page.wait_for_load_state()
    return int(page.evaluate("sessionStorage.getItem('clicks')"))


def box(page: Page, text: str) -> None:
    page.get_by_label("URL, command or configuration").fill(text)


def test_what_is_pasted_before_the_scripts_have_loaded_is_read_too(ada: Walk, faces: str) -> None:
    held: list[Route] = []
    ada.page.route(re.compile("/js/add-server[^/]*[.]js"), lambda route: held.append(route))
    ada.page.goto("/servers/add/", wait_until="commit")
    box(ada.page, f"{faces}/mcp")
    ada.until(lambda: held)
    for route in held:
        route.continue_()
    expect(ada.page.locator("#test-result")).to_contain_text("Works")


def test_from_the_list_to_a_connected_server_takes_at_most_four_clicks(ada: Walk, faces: str) -> None:
    taken = {}
    page = from_the_list(ada)
    box(page, f"{faces}/mcp")
    expect(page.locator("#test-result")).to_contain_text("Works")
    ada.save()
    ada.wait_for_state("Ready")
    taken["a URL"] = clicks(page)

    page = from_the_list(ada)
    command, arguments = peer_command("demo")
    box(page, json.dumps({"mcpServers": {"Pasted": {"command": command, "args": arguments}}}))
    expect(page.locator("#understood")).to_contain_text("Pasted")
    ada.save()
    ada.wait_for_state("Ready")
    taken["pasted JSON"] = clicks(page)

    page = from_the_list(ada)
    page.get_by_role("link", name="Everything").click()
    expect(page.locator("#understood")).to_contain_text("npx -y @modelcontextprotocol/server-everything")
    ada.save()
    expect(page).to_have_url(re.compile("/servers/everything[-0-9]*/"))
    taken["a template"] = clicks(page)
    page.get_by_role("button", name="Pause").click()  # without the registry it would be tried again for hours
    ada.wait_for_state("Paused")
    print(f"clicks from the list to a connected server: {taken}")
    assert max(taken.values()) <= MOST_CLICKS


def test_a_command_is_started_by_nothing_but_a_press_of_test_connection(ada: Walk, tmp_path: Path) -> None:
    started = tmp_path / "started"
    page = from_the_list(ada)
    script = f"open({str(started)!r}, 'w')"
    box(page, f'{sys.executable} -c "{script}"')
    expect(page.locator("#understood")).to_contain_text("stdio")
    page.locator("[data-kept-open=more] > summary").click()
    page.get_by_label("Files it may read and change").fill(str(tmp_path))
    tests = []
    page.on("request", lambda request: tests.append(request.url) if request.url.endswith("/servers/test/") else None)
    page.wait_for_timeout(1500)  # longer than the pause after which a URL would be tested
    assert tests == []
    assert not started.exists()
    ada.test_connection()
    ada.until(started.exists)


def test_a_secret_is_sent_to_a_url_that_is_typed_only_by_a_press_of_test_connection(ada: Walk, faces: str) -> None:
    page = from_the_list(ada)
    tests = []
    page.on("request", lambda request: tests.append(request.url) if request.url.endswith("/servers/test/") else None)
    entry = {"url": f"{faces}/mcp", "headers": {"Authorization": "Bearer token-of-a-test"}}
    box(page, json.dumps({"mcpServers": {"Guarded": entry}}))
    url = page.get_by_label("URL", exact=True)
    expect(url).to_have_value(f"{faces}/mcp")
    url.fill(f"{faces}/mc")
    url.press("p")
    page.wait_for_timeout(1500)  # longer than the pause after which it would be tested without a secret
    assert tests == []
    expect(ada.test_connection()).to_contain_text("Works")
    assert len(tests) == 1


@pytest.mark.long
def test_what_was_understood_is_corrected_before_it_is_registered(ada: Walk, faces: str) -> None:
    page = from_the_list(ada)
    ada.complaints.allow("422")
    box(
        page,
        json.dumps({"servers": {"first": {"url": f"{faces}/mcp"}, "second": {"url": f"{faces}/sse", "type": "sse"}}}),
    )
    page.get_by_label("Server", exact=True).select_option("second")
    expect(page.get_by_label("URL", exact=True)).to_have_value(f"{faces}/sse")
    expect(page.locator("#test-result")).to_contain_text("over HTTP+SSE")
    page.locator("#server-form input[name=name]").fill("Corrected by hand")
    page.get_by_label("Server", exact=True).select_option("first")
    expect(page.get_by_label("URL", exact=True)).to_have_value(f"{faces}/mcp")
    page.locator("#server-form input[name=name]").fill("Corrected by hand")
    ada.save()
    expect(page.get_by_role("heading", name="Corrected by hand")).to_be_visible()


def test_the_access_of_a_container_is_shown_once_its_token_is_typed(ada: Walk) -> None:
    """Typing a needed value fills the fields again, with the access that the complete command gets."""
    page = from_the_list(ada)
    arguments = ["run", "-i", "--rm", "-e", "ACME_TOKEN", "acme/mcp-server"]
    entry = {"command": "docker", "args": arguments, "env": {"ACME_TOKEN": "<YOUR_TOKEN>"}}
    box(page, json.dumps({"mcpServers": {"Contained": entry}}))
    understood = page.locator("#understood")
    expect(understood).to_contain_text("Contained")
    expect(understood).not_to_contain_text("control over the whole machine")
    needed = page.locator("#need-0")
    needed.press_sequentially("token-of-a-test")
    expect(understood).to_contain_text("can read and change /var/run/docker.sock")
    expect(understood).to_contain_text("control over the whole machine")
    expect(page.locator("[name=writable_paths]")).to_have_value("/var/run/docker.sock")
    expect(needed).to_be_focused()
    expect(needed).to_have_value("token-of-a-test")


def test_rows_that_were_added_by_hand_outlast_a_needed_value(ada: Walk) -> None:
    page = from_the_list(ada)
    entry = {"command": "acme", "env": {"ACME_TOKEN": "<YOUR_TOKEN>", "LEVEL": "info", "REGION": "eu"}}
    box(page, json.dumps({"mcpServers": {"Rows": entry}}))
    rows = page.locator("[data-value-row]:visible")
    expect(rows).to_have_count(4)
    rows.nth(0).get_by_label("Save as a credential").check()
    rows.nth(1).get_by_role("button", name="Remove this row").click()
    rows.nth(1).locator("input[name$=-value]").fill("us")
    rows.nth(2).locator("input[name$=-name]").fill("EXTRA")
    rows.nth(2).locator("input[name$=-value]").fill("more")
    page.locator("[data-kept-open=more] > summary").click()
    page.locator("[name='roots-0-uri']").fill("/srv/one")
    page.locator("#server-fields").evaluate("(fields) => { fields.dataset.before = ''; }")
    page.locator("#need-0").fill("token-of-a-test")
    expect(page.locator("#server-fields[data-before]")).to_have_count(0)
    expect(rows.locator("input[name$=-name]")).to_have_count(3)
    names = [rows.nth(at).locator("input[name$=-name]").input_value() for at in range(3)]
    values = [rows.nth(at).locator("input[name$=-value]").input_value() for at in range(3)]
    assert (names, values) == (["ACME_TOKEN", "REGION", "EXTRA"], ["", "us", "more"])
    expect(rows.nth(0).get_by_label("Save as a credential")).to_be_checked()
    expect(page.locator("[name='roots-0-uri']")).to_have_value("/srv/one")


def test_corrections_of_the_command_outlast_a_needed_value_that_is_no_part_of_it(ada: Walk) -> None:
    page = from_the_list(ada)
    arguments = ["run", "-v", "/:/host", "-e", "ACME_TOKEN", "acme/mcp"]
    entry = {"command": "docker", "args": arguments, "env": {"ACME_TOKEN": "<YOUR_TOKEN>"}}
    box(page, json.dumps({"mcpServers": {"Contained": entry}}))
    field = page.get_by_label("Arguments")
    expect(field).to_have_value("\n".join(arguments))
    corrected = "\n".join([arguments[0], *arguments[3:]])
    field.fill(corrected)
    for value in ("token-of-a-test", "another-token"):
        page.locator("#server-fields").evaluate("(fields) => { fields.dataset.before = ''; }")
        page.locator("#need-0").fill(value)
        expect(page.locator("#server-fields[data-before]")).to_have_count(0)
        expect(field).to_have_value(corrected)
    expect(page.get_by_text("Your change was replaced")).to_have_count(0)


def test_a_correction_that_a_needed_value_replaces_is_said(ada: Walk) -> None:
    page = from_the_list(ada)
    box(page, json.dumps({"mcpServers": {"Placed": {"command": "acme", "args": ["--key", "<YOUR_KEY>"]}}}))
    field = page.get_by_label("Arguments")
    expect(field).not_to_have_value("")
    field.fill("--corrected")
    page.locator("#need-0").fill("key-of-a-test")
    expect(field).not_to_have_value("--corrected")
    expect(page.get_by_text("Your change was replaced: Arguments")).to_be_visible()


def test_who_goes_on_writing_while_the_fields_are_filled_again_stays_in_the_field(ada: Walk) -> None:
    page = from_the_list(ada)
    entry = {"command": "acme", "env": {"ACME_TOKEN": "<YOUR_TOKEN>"}}
    box(page, json.dumps({"mcpServers": {"Focused": entry}}))
    name = page.locator("#server-form input[name=name]")
    expect(name).to_have_value("Focused")
    page.locator("#server-fields").evaluate("(fields) => { fields.dataset.before = ''; }")
    held: list[Route] = []
    page.route("**/servers/add/read/", lambda route: held.append(route))
    page.locator("#need-0").fill("token-of-a-test")
    ada.until(lambda: bool(held))
    name.fill("")
    name.press_sequentially("gop")
    held[0].continue_()
    expect(page.locator("#server-fields[data-before]")).to_have_count(0)
    expect(name).to_be_focused()
    page.keyboard.type("her")
    expect(name).to_have_value("gopher")
    value = page.locator("[name$='-value']:visible").last
    value.focus()
    page.unroute_all()
    with page.expect_response("**/servers/add/read/"):
        page.locator("#need-0").evaluate(
            "(field) => { field.value = 'x'; field.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
    expect(value).to_be_focused()
    assert page.url.endswith("/servers/add/")


def test_the_name_of_a_variable_ticks_secret_and_never_unticks_it(ada: Walk) -> None:
    ada.open_add_form()
    row = ada.page.locator("[data-value-row]:visible").first
    name, secret = row.locator("input[name$=-name]"), row.get_by_label("Secret")
    for text in ("OPENAI_KEY", "LANG"):
        name.fill(text)
        name.blur()
        expect(secret).to_be_checked()
    secret.uncheck()
    name.fill("LANGUAGE")
    name.blur()
    expect(secret).not_to_be_checked()
    name.fill("GITHUB_PAT")
    name.blur()
    expect(secret).to_be_checked()


def test_nonsense_is_said_beside_the_box_and_nothing_is_tested(ada: Walk) -> None:
    page = from_the_list(ada)
    box(page, '{"mcpServers": {')
    expect(page.locator("#understood")).to_contain_text("Invalid JSON at line 1")
    expect(page.locator("#test-result")).to_contain_text("A URL is tested as you type")


def test_the_sign_in_that_a_test_asks_for_starts_from_the_test(ada: Walk, gate: str) -> None:
    host = gate.removeprefix("http://").removesuffix("/mcp")
    ada.complaints.allow(f"request to another host: http://{host}/authorize?")
    page = from_the_list(ada)
    box(page, gate)
    beside = page.locator("#test-result")
    expect(beside).to_contain_text("The server requires a credential", timeout=30_000)
    beside.get_by_role("button", name="Save and sign in").click()
    page.get_by_role("link", name=f"Continue to {host}").click(timeout=60_000)
    expect(page.get_by_text(f"Signed in at {host}")).to_be_visible(timeout=60_000)
    ada.wait_for_state("Ready", 60)
    print(f"clicks with a sign-in: {clicks(page)}")
    assert clicks(page) <= MOST_CLICKS


@pytest.mark.long
def test_a_token_that_a_test_asks_for_is_entered_where_it_belongs(ada: Walk, gate: str) -> None:
    page = from_the_list(ada)
    box(page, gate)
    page.locator("#test-result").get_by_role("button", name="Enter a token").click(timeout=30_000)
    row = page.locator("[data-value-row]:visible").first
    expect(row.locator("input[name$=-name]")).to_have_value("Authorization")
    expect(row.locator("input[name$=-value]")).to_be_focused()
    expect(row.get_by_text("Save as a credential")).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_the_page_is_accessible_in_both_themes_and_widths(
    stack: Stack, walker: Callable[..., Walk], width: int, theme: str
) -> None:
    person = resized(walker(stack, signed_in=True), width, theme)
    person.open("/servers/add/?template=github")
    expect(person.page.locator("#need-0")).to_be_visible()
    box(person.page, "TOKEN=sk-example00000000000001 npx -y @modelcontextprotocol/server-filesystem /srv/data")
    expect(person.page.locator("#understood")).to_contain_text("can read and change /srv/data")
    assert violations(person.page) == []
    assert person.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
