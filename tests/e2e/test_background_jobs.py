"""An administrator verifies the whole log and rotates keys, and both pages update without a reload."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.e2e.walk import SECONDS

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
#: enough events for some seconds of verification, so that its progress shows
FILL = """
from django.db import transaction
from servers.audit.record import *
from servers.enums import *
for part in range(20):
    with transaction.atomic():
        record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM, subject=f"n{n}") for n in range(1000)])
"""


def test_a_person_verifies_the_log_sees_progress_and_verdict_and_then_the_forgery(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    own_stack.shell(FILL)
    ada.open("/explorer/")
    verdict = ada.page.locator("#verification")
    expect(ada.page.locator("[data-live-pill]")).to_contain_text("Live")
    ada.page.get_by_role("button", name="Verify the whole log").click()
    expect(ada.page.get_by_role("progressbar", name="Audit log verification progress")).to_be_visible()
    expect(verdict).to_contain_text(re.compile(r"All 20,\d{3} events verified"), timeout=90 * SECONDS)
    expect(ada.page.get_by_role("progressbar")).to_have_count(0)

    own_stack.write("DROP TRIGGER audit_event_unchanged")
    own_stack.write("UPDATE servers_auditevent SET subject = 'forged' WHERE seq = 17")
    ada.page.get_by_role("button", name="Verify the whole log").click()
    expect(verdict).to_contain_text("Broken at event 17")
    expect(verdict).to_contain_text("The columns of event 17 differ from the body that was hashed.")
    ada.page.get_by_role("link", name="Show event").click()
    expect(ada.page.locator("main dd", has_text="forged").first).to_be_visible()


def test_an_administrator_rotates_keys_after_a_confirmation_and_watches_it_end(own_stack, walker) -> None:
    ada = walker(own_stack, signed_in=True)
    ring = own_stack.data_dir / "keyring.json"
    before = json.loads(ring.read_text())["current"]
    ada.open("/")
    ada.page.get_by_role("link", name="Background jobs").click()
    ada.page.get_by_role("link", name="Rotate keys").click()
    expect(ada.page.get_by_role("heading", name="Rotate keys?")).to_be_visible()
    ada.page.get_by_role("button", name="Rotate keys").click()
    row = ada.page.locator("#job-table tbody tr").filter(has_text="Key rotation").first  # others are scheduled
    expect(row).to_contain_text("Succeeded")
    current = json.loads(ring.read_text())["current"]
    assert current != before
    expect(row).to_contain_text(f"encrypted with key {current}")
    expect(ada.page.get_by_role("link", name="Rotate keys")).to_be_visible()
