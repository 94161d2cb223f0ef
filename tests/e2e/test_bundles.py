"""A user creates a bundle in the browser, copies its configuration, sees an agent's call, and revokes its token."""

import json
import re
import subprocess
import time
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.peers.peers import HERE, peer_python, run_peer

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]


def ask(endpoint: str, headers: dict[str, str], method: str, params: dict[str, Any]) -> httpx.Response:
    """Sends a request as an agent of 2025-11-25."""
    headers = headers | {"Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    return httpx.post(endpoint, headers=headers, json=body, timeout=30).raise_for_status()


def opened_session(endpoint: str, token: str) -> dict[str, str]:
    """The headers of the requests of a new session, which stays open."""
    headers = {"Authorization": f"Bearer {token}"}
    agent = {"name": "pipeline", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": agent}
    opened = ask(endpoint, headers, "initialize", hello)
    return headers | {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}


def test_a_bundle_is_made_used_by_a_program_and_cut_off_when_its_token_is_revoked(own_stack, walker) -> None:
    for name in ("Web", "Wiki"):
        command = [str(peer_python("sdk2")), str(HERE / "searching_server.py"), name]
        own_stack.manage("register_server", "--user", "ada", "--name", name, "--policy", "on_demand", "--", *command)
    ada = walker(own_stack, signed_in=True)
    with run_peer("sdk2", "http") as url:
        ada.register_http("Tools", url)
        ada.wait_for_state("Ready")
        ada.open("/agents/bundles/")
        ada.page.get_by_role("link", name="New bundle").click()
        ada.page.get_by_role("textbox", name="Name", exact=True).fill("Team")
        ada.page.get_by_label("Servers", exact=True).select_option(label=["Tools", "Web", "Wiki"])
        ada.page.get_by_role("button", name="Create bundle").click()
        expect(ada.page.get_by_role("heading", name="Team")).to_be_visible()
        expect(ada.page.get_by_text("mcp__team__tools__echo", exact=True)).to_be_visible()
        ada.page.get_by_role("link", name="Use it from").click()
        ada.page.get_by_role("button", name="Create token").click()
        expect(ada.page.locator("#agent-token")).to_be_visible()  # otherwise it reads the page before the token
        configuration = json.loads(ada.page.locator("#use-cursor").inner_text())["mcpServers"]["team"]
        ada.page.get_by_role("button", name="Copy for Cursor").click()
        endpoint, token = configuration["url"], configuration["headers"]["Authorization"].removeprefix("Bearer ")

        bob = walker(own_stack, signed_in=True)
        bob.open("/explorer/?q=last:1h+in:calls")
        words = ("sdk1", endpoint, "", token, "tools__", "")
        script = HERE / "agent_client.py"
        done = subprocess.run([peer_python("sdk1"), script, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3_000:]
        bob.open("/explorer/?q=last:1h+in:calls+tool:echo")
        row = bob.page.get_by_role("row").filter(has_text="echo").first
        row.get_by_role("link").first.click()
        expect(bob.page.get_by_text("from an agent").first).to_be_visible()

        bob.open("/agents/")
        row = bob.page.get_by_role("region", name="Connected agents").get_by_role("row").filter(has_text="pipeline")
        session = opened_session(endpoint, token)
        expect(row).to_contain_text("None")  # no call yet
        ask(endpoint, session, "tools/call", {"name": "tools__echo", "arguments": {"text": "live"}})
        expect(row.get_by_role("link", name="echo")).to_be_visible()
        expect(row.get_by_role("cell").nth(3)).to_have_text("1")

        ada.open("/agents/")
        ada.page.get_by_role("link", name=re.compile("^Revoke")).click()
        ada.page.get_by_role("button", name="Revoke token").click()
        expect(ada.page.get_by_text("was revoked", exact=False).first).to_be_visible()
        deadline = time.monotonic() + 5
        while httpx.get(endpoint, headers={"Authorization": f"Bearer {token}"}).status_code != 401:
            assert time.monotonic() < deadline, "a revoked token still counts"
            time.sleep(0.1)
