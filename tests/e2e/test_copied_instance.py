"""A copied data directory opens no session until an administrator presses the release button."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mcpadmin.settings import DEMO_COMMAND
from tests.tools.stack import READY, READY_SECONDS

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]


def test_a_copied_data_directory_opens_no_session_until_it_is_released(make_stack, walker) -> None:
    original = make_stack(administrator=True).start()
    ada = walker(original, signed_in=True)
    ada.register_stdio("Copied", sys.executable, DEMO_COMMAND[1:])
    ada.wait_for_state("Ready")
    ada.complaints.allow("Failed to load resource")
    ada.complaints.allow("WebSocket connection to")
    original.stop()
    directory = Path(tempfile.mkdtemp(prefix="mcpadmin-copy-")) / "data"
    shutil.copytree(original.data_dir, directory)
    copy = make_stack(data_dir=directory).start()
    assert "on hold, so no session is opened" in copy.output
    bob = walker(copy, signed_in=True)
    bob.open("/servers/copied/tools/")
    expect(bob.page.get_by_role("alert").filter(has_text="This instance is on hold")).to_be_visible()
    expect(bob.state()).not_to_contain_text("Ready")
    expect(bob.page.locator("[data-live-target]").get_by_text("This instance is on hold")).to_be_visible()
    assert bob.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bob.page.get_by_role("button", name="Release this instance").click()
    expect(bob.page.get_by_text("Released. Workers open the sessions")).to_be_visible()
    bob.open("/servers/copied/tools/")
    bob.wait_for_state("Ready")
    expect(bob.page.get_by_text("This instance is on hold")).to_have_count(0)
    bob.complaints.allow("Failed to load resource")
    bob.complaints.allow("WebSocket connection to")
    before = len(copy.lines)
    copy.stop()
    copy.launch()
    copy.wait_for(READY, READY_SECONDS, since=before)
    assert "on hold" not in "".join(copy.lines[before:])
