import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from servers.audit import payload_privacy, payloads
from servers.audit.record import SYSTEM, Event, record
from servers.audit.verify import verify
from servers.credentials import rotation
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.keyring_file import use_next_key
from servers.models import Payload, PrivacySettings, Unredacted
from servers.signals import payload_erased

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


def test_a_large_payload_is_compressed_in_the_blob() -> None:
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


# --- sealed ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def sealing() -> Iterator[None]:
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.forget()
    yield
    payload_privacy.forget()


TEXTS = ["{}", '{"a":"ä"}', "x" * 70_000, "nul \0 inside", '"\ud800"']


@pytest.mark.parametrize("text", TEXTS)
def test_a_sealed_payload_reads_as_it_was_stored_and_its_digest_is_that_of_the_text(text: str, sealing: None) -> None:
    row = Payload.objects.get(pk=payloads.store(PayloadKind.RESULT, text).pk)
    assert (row.text, row.blob) == ("", None)
    assert text.encode("utf-8", "surrogatepass")[:50] not in bytes(row.sealed)
    assert payloads.read(row) == text
    assert row.digest == hashlib.sha256(bytes(row.salt) + text.encode("utf-8", "surrogatepass")).hexdigest()
    assert payloads.intact(row)


def test_only_what_is_stored_in_the_clear_may_be_indexed(sealing: None) -> None:
    sealed = payloads.store(PayloadKind.RESULT, "words")
    PrivacySettings.objects.update(seal_payloads=False)
    payload_privacy.forget()
    plain, erased = payloads.store(PayloadKind.RESULT, "words"), payloads.store(PayloadKind.RESULT, "words")
    payloads.erase(erased)
    assert [payloads.indexable(row) for row in (sealed, plain, erased)] == [False, True, False]
    assert payloads.read(sealed) == "words", "the switch changes nothing that is stored"


def test_a_sealed_payload_that_was_changed_or_moved_is_found(sealing: None) -> None:
    one, two = payloads.store(PayloadKind.RESULT, "paid 10"), payloads.store(PayloadKind.RESULT, "paid 99")
    one.sealed, one.key_id = two.sealed, two.key_id
    assert not payloads.intact(one)
    with pytest.raises(SealError):
        payloads.read(one)


def test_the_rotation_renews_sealed_payloads_and_they_still_open(sealing: None, settings: Any, tmp_path: Path) -> None:
    settings.KEYRING_FILE = tmp_path / "ring.json"
    settings.KEYRING_FILE.write_text(json.dumps({"current": "k1", "keys": {"k1": b64encode(bytes(32)).decode()}}))
    row = payloads.store(PayloadKind.RESULT, "words")
    hidden = payloads.unredacted("whole words")
    hidden.payload = row
    hidden.save()
    before = row.key_id
    use_next_key(settings.KEYRING_FILE)
    assert rotation.left() == {before: 2}
    rotation.rotate(settle=0)
    assert rotation.left() == {}
    row.refresh_from_db()
    assert row.key_id != before
    assert payloads.read(row) == "words"
    row.redacted = 1
    assert payloads.to_send(row) == "whole words"


def test_erasing_removes_the_sealed_content_and_what_was_to_be_sent_and_says_so(sealing: None) -> None:
    row = payloads.store(PayloadKind.ARGUMENTS, "masked", redacted=1)
    hidden = payloads.unredacted("whole")
    hidden.payload = row
    hidden.save()
    heard: list[int] = []

    def hear(payload_ids: list[int], **_: Any) -> None:
        heard.extend(payload_ids)

    payload_erased.connect(hear)
    payloads.erase(row)
    payload_erased.disconnect(hear)
    assert heard == [row.pk]
    assert (row.sealed, row.key_id, Unredacted.objects.count()) == (None, "", 0)
    assert payloads.read(row) is None
