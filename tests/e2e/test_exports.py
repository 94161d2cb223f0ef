"""An auditor exports what a query finds and verifies it offline; an administrator forwards events and sees them
arrive."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from servers.audit.proof import verify_export
from tests.e2e.walk import SECONDS
from tests.sessions.subscriptions.hook import Hook, running_hook

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


def test_what_a_query_finds_is_exported_and_verified_offline(own_stack, walker, tmp_path: Path) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.open("/explorer/?q=kind:sign-in")
    ada.page.get_by_role("link", name="Export", exact=True).click()
    expect(ada.page.get_by_role("textbox", name="Query")).to_have_value("kind:sign-in")
    ada.page.get_by_role("button", name="Export").click()
    row = ada.page.locator("#exports-list tbody tr").first
    expect(row).to_contain_text("kind:sign-in")
    with ada.page.expect_download(timeout=30 * SECONDS) as downloading:
        row.get_by_role("link", name="Download").click(timeout=30 * SECONDS)
    path = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(path)
    assert path.name.endswith(".jsonl")
    key = own_stack.manage("checkpoint_key").strip().splitlines()[-1]
    program = Path(verify_export.__file__)
    command = [sys.executable, "-I", str(program), str(path), "--key", key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    expect(ada.page.locator("#exports-list tbody tr")).to_have_count(1)
    row.get_by_role("button", name="Delete").click()
    expect(ada.page.get_by_text("No exports yet")).to_be_visible()


def test_a_new_sink_gets_the_whole_log_and_its_page_shows_when_the_receiver_fails(
    own_stack, walker, hook: Hook
) -> None:
    ada = walker(own_stack, signed_in=True)
    ada.open("/exports/")
    ada.page.get_by_role("link", name="Add sink").first.click()
    ada.page.get_by_role("link", name="HTTP endpoint").click()
    ada.page.get_by_label("Name").fill("SIEM")
    ada.page.get_by_label("URL").fill(hook.url)
    ada.page.get_by_label("Start").select_option("beginning")
    ada.page.get_by_role("button", name="Add sink").click()
    secret = ada.page.locator("#signing-secret").inner_text()
    expect(ada.page).to_have_url(re.compile(r"/exports/sinks/[0-9a-f-]{36}/$"))
    state = ada.page.locator("#sink-state")
    expect(state).to_contain_text("Up to date", timeout=30 * SECONDS)
    assert all(request.signed_with(secret) for request in hook.received)
    hook.statuses = [503] * 50
    ada.page.get_by_role("button", name="Send test").click()
    expect(state).to_contain_text("HTTP 503", timeout=30 * SECONDS)
    expect(state).to_contain_text("Failing", timeout=30 * SECONDS)
    ada.page.get_by_role("button", name="Retry now").click()
    hook.statuses = []
    expect(state).to_contain_text("Up to date", timeout=30 * SECONDS)
    seqs = [item["seq"] for request in hook.received for item in request.message if "seq" in item]  # type: ignore[attr-defined]  # a sink's message is a list
    assert sorted(set(seqs)) == list(range(1, max(seqs) + 1))
