import hashlib

import pytest
from django.db import transaction

from servers.audit import payloads
from servers.audit.record import SYSTEM, Event, record
from servers.audit.verify import verify
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import Payload

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", ["{}", '{"a":"ä"}', "x" * 70_000, "nul \0 inside", '"\ud800"'])
def test_a_payload_reads_as_it_was_stored(text: str) -> None:
    row = Payload.objects.get(pk=payloads.store(PayloadKind.RESULT, text).pk)
    assert payloads.read(row) == text
    assert payloads.intact(row)
    assert row.size == len(text.encode("utf-8", "surrogatepass"))


def test_the_digest_is_salted_so_equal_payloads_differ() -> None:
    one, two = (payloads.store(PayloadKind.ARGUMENTS, "{}") for _ in range(2))
    assert one.digest == hashlib.sha256(bytes(one.salt) + b"{}").hexdigest()
    assert one.digest != two.digest


def test_a_large_payload_stands_compressed_in_the_blob() -> None:
    row = payloads.store(PayloadKind.RESULT, "y" * 200_000)
    assert row.text == ""
    assert len(bytes(row.blob)) < 2_000


def test_erasing_leaves_no_content_and_an_intact_chain() -> None:
    row = payloads.store(PayloadKind.RESULT, "the secret of a person")
    with transaction.atomic():
        record(Event(AuditAction.CALL_FINISH, AuditOutcome.OK, SYSTEM, digests={"result": row.digest}))
    payloads.erase(row)
    row = Payload.objects.get(pk=row.pk)
    assert payloads.read(row) is None
    assert (row.text, row.blob, bytes(row.salt)) == ("", None, b"")
    assert verify().reason == "A payload of event 1 was erased, and no event says so."
    with transaction.atomic():
        record(Event(AuditAction.CONNECTION_TEST, AuditOutcome.OK, SYSTEM, digests={"erased": row.digest}))
    assert verify().ok


def test_a_changed_payload_is_found() -> None:
    row = payloads.store(PayloadKind.RESULT, "paid 10")
    row.text = "paid 99"
    assert not payloads.intact(row)
