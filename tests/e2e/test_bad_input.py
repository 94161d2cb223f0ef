"""Pages and final states are right when a server or an input is bad."""

import json

import pytest
from playwright.sync_api import expect

from tests.peers.peers import closed_port, peer_command, run_peer

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]


@pytest.fixture
def ada(stack, walker):
    return walker(stack, signed_in=True)


def session_row(stack, name: str):
    return stack.rows(
        "SELECT s.* FROM mcp_sessions_mcpsession s JOIN servers_server v ON v.id = s.server_id WHERE v.name = ?", name
    )[0]


def last_call(stack, tool: str):
    return stack.rows("SELECT * FROM mcp_sessions_call WHERE target = ? ORDER BY id DESC LIMIT 1", tool)[0]


@pytest.mark.long
def test_a_malformed_command_is_refused_by_the_form_and_nothing_is_saved(stack, ada) -> None:
    ada.complaints.allow("422")
    ada.fill_stdio("Malformed", "", [])
    ada.save()
    expect(ada.page.get_by_text("Enter the program to start").first).to_be_visible()
    assert stack.rows("SELECT 1 FROM servers_server WHERE name = 'Malformed'") == []


def test_a_command_that_does_not_exist_names_the_fix(stack, ada) -> None:
    ada.register_stdio("No such program", "no-such-program-here", [])
    expect(ada.page.get_by_text("The command was not found")).to_be_visible()
    expect(ada.page.get_by_text("full path")).to_be_visible()
    row = session_row(stack, "No such program")
    assert row["fault"] == "command_not_found"
    assert row["state"] != "ready"  # it may be retrying at this moment


def test_a_command_that_exits_at_once_shows_its_stderr(stack, ada) -> None:
    ada.fill_stdio("Exits", *peer_command("evil:exit"))
    result = ada.test_connection()
    expect(result).to_contain_text("The process ended", timeout=30_000)
    expect(result.locator("pre")).not_to_be_empty()
    ada.save()
    expect(ada.page.get_by_role("heading", name="Exits", exact=True)).to_be_visible()
    expect(ada.page.get_by_text("The process ended")).to_be_visible()
    assert session_row(stack, "Exits")["fault"] == "process_exited"
    ada.until(lambda: session_row(stack, "Exits")["stderr_tail"])  # each retry starts with an empty tail


@pytest.mark.long
def test_a_server_that_prints_rubbish_on_stdout_is_told_so(stack, ada) -> None:
    ada.register_stdio("Rubbish", *peer_command("evil:rubbish"))
    expect(ada.page.get_by_text("prints output other than MCP messages")).to_be_visible(timeout=60_000)
    assert session_row(stack, "Rubbish")["fault"] == "stdout_noise"


@pytest.mark.parametrize(
    ("scenario", "words", "fault"),
    [
        ("html", "This is not an MCP endpoint", "not_mcp"),
        pytest.param("401", "The server requires a credential", "unauthorized", marks=pytest.mark.long),
        pytest.param("redirect-302", "redirects to another address", "redirected", marks=pytest.mark.long),
    ],
)
def test_a_url_that_is_no_mcp_endpoint_says_what_it_is(stack, ada, scenario, words, fault) -> None:
    with run_peer("evil") as url:
        name = f"Evil {scenario}"
        ada.register_http(name, f"{url}/{scenario}")
        expect(ada.page.get_by_text(words)).to_be_visible(timeout=30_000)
        row = session_row(stack, name)
        assert row["fault"] == fault
        assert row["state"] != "ready"  # it may be retrying at this moment


def test_a_url_that_refuses_names_the_refusal(stack, ada) -> None:
    ada.register_http("Refuses", f"http://127.0.0.1:{closed_port()}/mcp")
    expect(ada.page.get_by_text("The connection was refused")).to_be_visible()
    assert session_row(stack, "Refuses")["fault"] == "connection_refused"


@pytest.mark.long
def test_a_url_that_hangs_ends_at_the_connect_time_out(stack, ada) -> None:
    with run_peer("evil") as url:
        ada.fill_http("Hangs", f"{url}/hang")
        ada.page.get_by_text("Timeouts", exact=True).click()
        ada.page.get_by_label("Connect timeout").fill("3")
        result = ada.test_connection()
        expect(result).to_contain_text("No response in time", timeout=40_000)
        newest = "SELECT state, fault FROM servers_serverdraft ORDER BY id DESC LIMIT 1"
        ada.until(lambda: tuple(stack.rows(newest)[0]) == ("failed", "timeout"))  # the box may have begun another test


@pytest.mark.long
def test_a_call_that_is_redirected_is_never_followed(stack, ada) -> None:
    with run_peer("evil") as url:
        ada.register_http("Redirects calls", f"{url}/call-redirect")
        ada.wait_for_state("Ready")
        ada.open_tool("redirects-calls", "shout")
        ada.fill_argument("text", "hello")
        ada.run_tool()
        expect(ada.result()).to_contain_text("redirects to another address")
        assert last_call(stack, "shout")["fault"] == "redirected"


def test_arguments_that_break_the_schema_are_rejected_beside_their_field(stack, ada) -> None:
    ada.register_stdio("Schema", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.open_tool("schema", "countdown")
    before = stack.rows("SELECT count(*) AS n FROM mcp_sessions_call")[0]["n"]
    ada.page.get_by_role("button", name="JSON").click()
    ada.page.get_by_label("Arguments").fill(json.dumps({"seconds": "many"}))
    ada.run_tool()
    expect(ada.page.locator("#tool-form .err").first).to_be_visible()
    assert stack.rows("SELECT count(*) AS n FROM mcp_sessions_call")[0]["n"] == before


def test_a_result_over_the_message_limit_is_refused_and_other_sessions_live_on(stack, ada) -> None:
    ada.register_stdio("Healthy", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.register_stdio("Big", *peer_command("sdk1", "stdio"))
    ada.wait_for_state("Ready")
    healthy_since = session_row(stack, "Healthy")["connected_at"]
    ada.open_tool("big", "big")
    ada.page.get_by_role("button", name="JSON").click()
    ada.page.get_by_label("Arguments").fill(json.dumps({"size": 13 * 1024 * 1024}))
    ada.run_tool()
    expect(ada.result()).to_contain_text("Refused: message limit", timeout=60_000)
    row = last_call(stack, "big")
    assert (row["state"], row["fault"]) == ("failed", "message_limit")
    ada.open_tool("healthy", "greet")
    ada.wait_for_state("Ready")
    assert session_row(stack, "Healthy")["connected_at"] == healthy_since


def test_a_script_in_names_descriptions_and_results_is_shown_and_not_run(stack, ada) -> None:
    dialogs: list[str] = []
    ada.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    ada.register_stdio("Script", *peer_command("sdk2", "stdio"))
    ada.wait_for_state("Ready")
    ada.open("/servers/script/tools/")
    expect(ada.page.locator("#tool-list")).to_contain_text("<script>")
    ada.open_tool("script", "echo")
    ada.page.get_by_role("button", name="JSON").click()
    ada.page.get_by_label("Arguments").fill(
        json.dumps({"text": "<script>alert(1)</script><img src=x onerror=alert(2)>"})
    )
    ada.run_tool()
    expect(ada.result()).to_contain_text("<script>alert(1)</script>")
    ada.open("/explorer/")
    assert dialogs == []
    assert ada.page.evaluate("document.querySelectorAll('main script').length") == 0


def test_a_destructive_tool_runs_only_after_its_name_was_typed(stack, ada) -> None:
    ada.register_stdio("Careful", *peer_command("demo"))
    ada.wait_for_state("Ready")
    ada.open_tool("careful", "forget_notes")
    ada.page.locator("[name='arg:/tag']").select_option(index=1)
    ada.run_tool()
    expect(ada.page.locator("[data-call-refused]")).to_be_visible()
    assert stack.rows("SELECT 1 FROM mcp_sessions_call WHERE target = 'forget_notes'") == []
    ada.page.locator("[name=_confirm]").fill("forget_notes")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")
