"""After SIGKILL of the worker during a call, the page says so, the session reopens, and the call ran only once."""

import pytest
from playwright.sync_api import expect

from tests.peers.peers import peer_command

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]


def test_a_call_whose_worker_is_killed_ends_as_outcome_unknown_and_ran_once(make_stack, walker, tmp_path) -> None:
    stack = make_stack(administrator=True).start()
    ada = walker(stack, signed_in=True)
    effects = tmp_path / "effects"
    command, arguments = peer_command("sdk1", "stdio")
    ada.register_stdio("Counter", command, arguments, EFFECT_LOG=str(effects))
    ada.wait_for_state("Ready")
    ada.open_tool("counter", "counter")
    ada.fill_argument("id", "once")
    ada.fill_argument("delay", "30")
    ada.page.locator("[name=_confirm]").fill("counter")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Running")
    ada.until(lambda: effects.exists() and effects.read_text().count("once") == 1)
    stack.kill_worker()
    expect(ada.result()).to_contain_text("Outcome unknown", timeout=30_000)
    ada.wait_for_state("Ready", seconds=60)
    assert effects.read_text().count("once") == 1
    assert [row["state"] for row in stack.rows("SELECT state FROM mcp_sessions_call")] == ["outcome_unknown"]
