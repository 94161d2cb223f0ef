"""Erasing takes a permission and a reason, leaves an event that names the digest, and a chain that verifies."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from mcpadmin import settings as product
from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.audit.verify import verify
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import AuditEvent, Payload
from servers.privacy.erasing import StillNeeded, erase
from servers.privacy.payload_readings import PayloadContext
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
CONTEXT = PayloadContext(subject="create_user")


@pytest.fixture
def payload() -> Payload:
    return payloads.store(PayloadKind.RESULT, "the address of a person")


def test_an_erased_payload_leaves_an_event_with_its_digest_and_the_reason(
    admin: Any, actor: Actor, payload: Payload
) -> None:
    assert erase(actor, admin, payload, " Request 17 of ann ", CONTEXT)
    assert payloads.read(Payload.objects.get(pk=payload.pk)) is None
    body = json.loads(AuditEvent.objects.get(action=AuditAction.PAYLOAD_ERASE).body)
    assert body["details"] == {"kind": "result", "reason": "Request 17 of ann", "bytes": payload.size}
    assert body["digests"] == {"erased": payload.digest}
    assert body["subject"] == "create_user"
    assert verify().ok


def test_a_second_erasure_makes_no_second_event(admin: Any, actor: Actor, payload: Payload) -> None:
    assert erase(actor, admin, payload, "first", CONTEXT)
    assert not erase(actor, admin, payload, "second", CONTEXT)
    assert AuditEvent.objects.filter(action=AuditAction.PAYLOAD_ERASE).count() == 1


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501])
def test_without_a_usable_reason_nothing_is_erased(admin: Any, actor: Actor, payload: Payload, reason: str) -> None:
    with pytest.raises(ValidationError):
        erase(actor, admin, payload, reason, CONTEXT)
    assert payloads.read(Payload.objects.get(pk=payload.pk)) is not None


def test_without_permission_nothing_is_erased_and_the_refusal_is_recorded(payload: Payload) -> None:
    reader = person("vera", "view_server", "view_payload", "view_auditevent")
    with pytest.raises(access.Denied):
        erase(Actor.of_user(reader), reader, payload, "why not", CONTEXT)
    assert payloads.read(Payload.objects.get(pk=payload.pk)) is not None
    assert AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY).outcome == AuditOutcome.DENIED


def test_what_is_still_to_be_sent_is_not_erased(admin: Any, actor: Actor, payload: Payload) -> None:
    with pytest.raises(StillNeeded):
        erase(actor, admin, payload, "now", CONTEXT, over=False)
    assert payloads.read(Payload.objects.get(pk=payload.pk)) is not None


def test_what_was_erased_leaves_the_database_file_whatever_the_default_of_its_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "erased.sqlite3"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA secure_delete=OFF")
    database.executescript(product._sqlite["OPTIONS"]["init_command"])
    database.execute("CREATE TABLE payload (text TEXT)")
    database.execute("INSERT INTO payload VALUES (?)", ["the address of a person" * 2_000])
    database.execute("UPDATE payload SET text = ''")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    assert b"the address of a person" not in path.read_bytes()
