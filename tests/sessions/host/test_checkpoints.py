"""A worker signs the log's end and brings it to every witness; a failing witness is tried again and delays no other."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from django.utils import timezone

from servers.audit.proof import checkpoints, removals, verify_export, witnesses
from servers.audit.proof.notes import opened, stamp
from servers.audit.verify import verify
from servers.enums import AlarmKind, StatementKind
from servers.models import AuditAlarm, AuditEvent, Checkpoint, Instance, Witness
from sessions.host.checkpoints import Checkpoints
from sessions.host.db import Database
from sessions.mcp.transports.engine import shared_tls
from sessions.mcp.transports.tls import client_context
from tests.servers.audit.proof import log
from tests.sessions.host.sending.receivers import ACCESS_KEY, SECRET_KEY, Bucket, s3_bucket, syslog_receiver
from tests.sessions.subscriptions.hook import Hook, running_hook

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_key(settings: Any, tmp_path: Path) -> None:
    log.new_key(settings, tmp_path)
    settings.CHECKPOINT_SECONDS = 0.0
    settings.ALLOW_LOOPBACK = True


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


@pytest.fixture
def bucket(settings: Any) -> Iterator[Bucket]:
    settings.WITNESS_S3_ACCESS_KEY, settings.WITNESS_S3_SECRET_KEY = ACCESS_KEY, SECRET_KEY
    with s3_bucket() as bucket:
        yield bucket


def looked() -> None:
    """One tick, until everything that it began is done."""

    async def tick() -> None:
        database = Database()
        worker = Checkpoints(database)
        worker.look()
        while begun := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(begun)
            await asyncio.sleep(0)
        await worker.close()
        database.stop()

    asyncio.run(tick())


def events(count: int = 1) -> None:
    log.fill(count, checkpoint_every=99)


def test_the_log_is_signed_and_the_file_has_it(settings: Any) -> None:
    events()
    looked()
    last, digest = checkpoints.head()
    [one] = checkpoints.outside()
    assert (one.seq, one.hash, one.kind) == (last, digest, "regular")
    assert verify().signed_seq == last
    looked()
    assert Checkpoint.objects.count() == 1  # nothing new
    events()
    looked()
    assert [one.seq for one in checkpoints.outside()] == [last, checkpoints.head()[0]]
    assert Path(settings.CHECKPOINT_FILE).stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_is_due_after_its_time_or_its_number_of_events(settings: Any) -> None:
    settings.CHECKPOINT_SECONDS, settings.CHECKPOINT_EVENTS = 3_600, 1_000
    events()
    assert not checkpoints.due()
    settings.CHECKPOINT_EVENTS = 5
    assert checkpoints.due()
    settings.CHECKPOINT_EVENTS, settings.CHECKPOINT_SECONDS = 1_000, 0
    assert checkpoints.due()


def test_checkpoints_are_signed_and_delivered_after_the_clock_was_set_back(
    settings: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CHECKPOINT_SECONDS, settings.CHECKPOINT_EVENTS, settings.WITNESSES = 60, 5, [hook.url]
    hook.statuses = [200, 500]
    for _ in range(2):
        events(5)
        looked()
    assert [bool(state.problem) for state in witnesses.states()] == [False, True]
    events()
    assert not checkpoints.due()
    monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) - timedelta(days=1))
    assert checkpoints.due()
    looked()
    assert [state.behind for state in witnesses.states()] == [0, 0]


def test_http_syslog_and_s3_witnesses_each_get_the_signed_note(
    settings: Any, hook: Hook, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with syslog_receiver(tmp_path) as receiver:
        trusting = client_context("", "", receiver.ca)
        monkeypatch.setattr("sessions.host.sending.syslog.shared_tls", lambda: trusting)
        store = bucket.endpoint.removeprefix("http://")
        settings.WITNESSES = [
            hook.url,
            f"syslog://{receiver.address}",
            f"s3://{store}/proofs/a?region=eu-central-1&days=30&tls=off",
        ]
        events()
        looked()
        assert all(state.behind == 0 and not state.problem for state in witnesses.states()), witnesses.states()
        note = Checkpoint.objects.get().note
        assert [json.loads(received.body)["note"] for received in hook.received] == [note]
        [message] = receiver.messages
        assert b"\n" not in message
        assert json.loads(message.decode().partition("\ufeff")[2])["note"] == note
        [(path, data)] = bucket.objects.items()
        assert path.startswith("/proofs/a/000000000000005-regular-")
        assert json.loads(data) == {"type": "checkpoint", "note": note}
        exported = log.export_to(tmp_path / "export")
        (tmp_path / "kept").write_bytes(data)
        assert verify_export.verify(str(exported), [log.public_key()], [str(tmp_path / "kept")])
        kept = bucket.headers[path]
        assert kept["x-amz-object-lock-mode"] == "COMPLIANCE"
        assert kept["x-amz-object-lock-retain-until-date"] > f"{timezone.now() + timedelta(days=29):%Y-%m-%d}"
    assert shared_tls() is not trusting


def test_each_statement_is_an_object_of_its_own_in_a_store(settings: Any, bucket: Bucket) -> None:
    settings.WITNESSES = [f"s3://{bucket.endpoint.removeprefix('http://')}/proofs/a?region=eu-central-1&tls=off"]
    events()
    looked()
    for rows in ("calls", "payloads"):
        removals.allow(cast("removals.Rows", rows), timezone.now())
    second = timezone.now().replace(microsecond=0)
    for number, one in enumerate(Checkpoint.objects.filter(kind="removal")):
        Checkpoint.objects.filter(pk=one.pk).update(at=second + timedelta(microseconds=number))
    looked()
    looked()
    assert sorted(path.split("-")[1] for path in bucket.objects) == ["regular", "removal", "removal"]


def test_a_failing_witness_is_tried_again_later_and_then_gets_the_newest(settings: Any, hook: Hook) -> None:
    settings.WITNESSES = [hook.url]
    hook.statuses = [503]
    events()
    looked()
    row = Witness.objects.exclude(name="file").get()
    assert "HTTP 503" in row.problem
    assert row.next_attempt_at > timezone.now()
    assert Witness.objects.get(name="file").delivered_seq == checkpoints.head()[0]
    events(3)
    looked()
    assert len(hook.received) == 1  # not yet
    Witness.objects.update(next_attempt_at=timezone.now())
    looked()
    row.refresh_from_db()
    assert (row.problem, row.failures, row.delivered_seq) == ("", 0, checkpoints.head()[0])
    assert (
        opened(json.loads(hook.received[-1].body)["note"], checkpoints.key.load().trusted).seq == checkpoints.head()[0]
    )


def test_what_a_cut_says_nothing_of_is_delivered_before_it(settings: Any, hook: Hook) -> None:
    settings.WITNESSES, hook.statuses = [hook.url], [503]
    events(2)
    looked()
    (last, _), first = checkpoints.head(), AuditEvent.objects.earliest("seq")
    checkpoints.sign(StatementKind.CUT, first.seq, first.hash, first="1", until=stamp(first.at))
    for _ in range(2):
        Witness.objects.update(next_attempt_at=timezone.now())
        looked()
    notes = [opened(json.loads(one.body)["note"], checkpoints.key.load().trusted) for one in hook.received[1:]]
    assert [(one.kind, one.seq) for one in notes] == [("regular", last), ("cut", first.seq)]


def test_without_its_file_nothing_is_signed_and_the_page_says_so(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("a file in place of the folder")
    events()
    looked()
    assert "cannot be read" in Witness.objects.get(name="file").problem
    (tmp_path / "outside").unlink()
    looked()
    assert len(checkpoints.outside()) == 1
    assert Witness.objects.get().problem == ""


def test_a_log_that_does_not_fit_is_not_signed_and_raises_an_alarm(settings: Any) -> None:
    events(2)
    looked()
    Checkpoint.objects.all().delete()
    path = Path(settings.CHECKPOINT_FILE)
    line = json.loads(path.read_text())
    later = checkpoints.sign(StatementKind.REGULAR, 9_999, "ab" * 32)  # as a database that was put back would miss it
    Checkpoint.objects.all().delete()
    path.write_text(json.dumps(line) + "\n" + json.dumps({"type": "checkpoint", "note": later.note}) + "\n")
    looked()
    alarm = AuditAlarm.objects.get()
    assert (alarm.kind, Checkpoint.objects.count()) == (AlarmKind.BEHIND, 0)
    assert "had 9,999 events" in alarm.words
    looked()
    assert AuditAlarm.objects.count() == 1


def test_a_held_copy_signs_nothing() -> None:
    events()
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now()})
    looked()
    assert not Checkpoint.objects.exists()


def test_a_missing_key_raises_an_alarm_and_events_are_still_recorded(settings: Any, tmp_path: Path) -> None:
    settings.CHECKPOINT_KEY_FILE = tmp_path / "gone"
    events()
    looked()
    assert AuditAlarm.objects.get().kind == AlarmKind.KEY
    before = AuditEvent.objects.count()
    events()
    assert AuditEvent.objects.count() > before
