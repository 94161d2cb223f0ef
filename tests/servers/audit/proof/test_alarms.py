"""An older copy of the database, or a rewritten log, is detected from outside. The alarm lasts until acknowledged."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from servers.audit.proof import alarms, checkpoints, file, triggers, verify_export
from servers.audit.proof.verify_export import Bad
from servers.audit.record import SYSTEM
from servers.audit.verify import verify
from servers.enums import AlarmKind, AuditAction
from servers.jobs import work
from servers.models import AuditAlarm, AuditEvent, Checkpoint, Payload
from sessions.models import Call
from tests.servers.audit.proof import log, mutations

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def restored() -> None:
    """The log of two calls, copied; then two more calls and a checkpoint; then the copy put back and used."""
    log.fill(2)
    copy = Path(f"{connection.settings_dict['NAME']}-copy")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(copy)])
    log.fill(2)
    assert checkpoints.misfits() == []
    connection.close()
    shutil.move(copy, connection.settings_dict["NAME"])
    for left in ("-wal", "-shm"):
        Path(f"{connection.settings_dict['NAME']}{left}").unlink(missing_ok=True)


def test_an_older_copy_of_the_whole_database_is_found_by_its_newest_checkpoint_outside(restored: None) -> None:
    newest = AuditEvent.objects.order_by("-seq").first().seq
    verdict = verify()
    assert (verdict.ok, verdict.first_bad_seq) == (False, newest + 1)
    [found] = checkpoints.misfits()
    assert found.behind
    alarm = alarms.sound_misfits([found])
    assert alarm is not None
    assert alarm.kind == AlarmKind.BEHIND
    assert alarms.sound_misfits(checkpoints.misfits()) is None  # one alarm is enough


def test_a_log_that_was_continued_after_it_was_put_back_is_found_too(restored: None) -> None:
    log.fill(5, checkpoint_every=99)
    assert not verify().ok
    [found] = checkpoints.misfits()
    assert not found.behind


def test_an_accepted_restoration_is_signed_and_both_verifiers_go_on_from_it(restored: None, tmp_path: Path) -> None:
    shared = Checkpoint.objects.order_by("-seq").first().seq
    alarm = alarms.sound_misfits(checkpoints.misfits())
    assert alarm is not None
    assert alarms.acknowledge(alarm, SYSTEM, "Restored after the disk failed.")
    statement = Checkpoint.objects.get(kind="restored")
    assert (statement.seq, checkpoints.misfits(), alarms.standing()) == (shared, [], [])
    assert verify().ok, verify()
    file.append(statement.kind, statement.note)
    log.fill(2)
    assert checkpoints.misfits() == []
    assert verify().ok
    files = [str(checkpoints.settings.CHECKPOINT_FILE)]
    report = verify_export.verify(str(log.export_to(tmp_path / "e")), [log.public_key()], files)
    assert any("an older database" in line for line in report)
    event = AuditEvent.objects.get(action=AuditAction.AUDIT_ACKNOWLEDGE)
    assert "Restored after the disk failed." in event.body


def test_while_an_acknowledgement_verifies_signatures_others_write(
    restored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = alarms.sound_misfits(checkpoints.misfits())
    assert alarm is not None
    compare, transactions = checkpoints.misfits, []

    def compared(known: Any) -> Any:
        transactions.append(connection.in_atomic_block)
        if len(transactions) == 1:
            log.sign()  # by another process
        return compare(known)

    monkeypatch.setattr(checkpoints, "misfits", compared)
    assert alarms.acknowledge(alarm, SYSTEM, "Restored.")
    assert transactions == [False, False], "the second time for the statement that was added"
    monkeypatch.undo()
    assert (checkpoints.misfits(), verify().ok) == ([], True)
    assert not alarms.acknowledge(alarm, SYSTEM, "Once more.")


def test_an_acknowledgement_that_is_overtaken_each_time_ends_all_the_same(
    restored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = alarms.sound_misfits(checkpoints.misfits())
    assert alarm is not None
    compare = checkpoints.misfits
    monkeypatch.setattr(checkpoints, "misfits", lambda known: (log.sign(), compare(known))[1])
    assert alarms.acknowledge(alarm, SYSTEM, "Restored.")
    assert alarms.standing() == []


def test_a_truncated_export_is_found_with_the_checkpoints_kept_outside(tmp_path: Path) -> None:
    log.fill(2)
    old = log.export_to(tmp_path / "old")
    log.fill(2)
    files = [str(checkpoints.settings.CHECKPOINT_FILE)]
    assert verify_export.verify(str(old), [log.public_key()])
    with pytest.raises(Bad, match="it had"):
        verify_export.verify(str(old), [log.public_key()], files)


@pytest.mark.usefixtures("tamperable")
def test_a_failed_verification_is_on_every_page_of_administrators_until_it_is_acknowledged(
    admin: Any, operator: Any
) -> None:
    log.fill(2)
    mutations.sql("UPDATE servers_auditevent SET subject = 'forged' WHERE seq = 4")
    triggers.create(connection)
    outcome = work.verify_log(lambda *_: None)  # type: ignore[arg-type]  # its progress
    assert not outcome.ok
    page, others = Client(), Client()
    page.force_login(admin)
    others.force_login(operator)
    assert "The columns of event 4 differ" in page.get("/").content.decode()
    assert "The columns of event 4 differ" not in others.get("/").content.decode()
    alarm = AuditAlarm.objects.get()
    url = reverse("audit:acknowledge", args=[alarm.uid])
    assert page.post(url, {"reason": " "}).status_code == 422
    assert others.post(url, {"reason": "no"}).status_code == 403
    assert page.post(url, {"reason": "A test."}).status_code == 302
    assert "The columns of event 4 differ" not in page.get("/").content.decode()
    assert "A test." in page.get(reverse("audit:proof")).content.decode()
    work.verify_log(lambda *_: None)  # type: ignore[arg-type]  # its progress
    assert alarms.standing() == []  # the same finding was accepted; the verification still fails


@pytest.mark.usefixtures("tamperable")
def test_an_acknowledged_alarm_hides_no_later_one(admin: Any) -> None:
    log.fill(6)
    of_call = {call.target: call for call in Call.objects.all()}
    changes = [
        AuditEvent.objects.filter(seq=4),
        Payload.objects.filter(pk=of_call["tool_3"].result_id),
        Payload.objects.filter(pk=of_call["tool_4"].result_id),
        Call.objects.filter(pk=of_call["tool_5"].pk),
    ]
    alarmed: list[int | None] = []
    for rows, column in zip(changes, ("subject", "text", "text", "user_name"), strict=True):
        rows.update(**{column: "forged"})
        outcome = work.verify_log(lambda *_: None)  # type: ignore[arg-type]  # its progress
        assert (outcome.ok, outcome.result["first_bad_seq"]) == (False, 4)
        [alarm] = alarms.standing()
        assert alarm.words in outcome.detail
        alarmed.append(alarm.seq)
        assert alarms.acknowledge(alarm, SYSTEM, "A test.")
    assert alarmed == [4, 16, 20, 22]
    outcome = work.verify_log(lambda *_: None)  # type: ignore[arg-type]  # its progress
    assert (outcome.ok, outcome.result["first_bad_seq"], alarms.standing()) == (False, 4, [])


def test_an_acknowledged_row_without_events_hides_no_other_one() -> None:
    log.fill(2)
    dice = random.Random(1)
    for _ in range(2):
        mutations.insert_call(dice)
        work.verify_log(lambda *_: None)  # type: ignore[arg-type]  # its progress
        [alarm] = alarms.standing()
        assert alarms.acknowledge(alarm, SYSTEM, "A test.")
    assert len({alarm.words for alarm in AuditAlarm.objects.all()}) == 2


def test_a_foreign_key_signs_nothing_and_says_so(settings: Any, tmp_path: Path) -> None:
    log.fill(2)
    log.new_key(settings, tmp_path)
    with pytest.raises(checkpoints.KeyReplaced, match="Restore the key file"):
        checkpoints.sign_regular() if checkpoints.due() else log.sign()


def test_an_acknowledged_finding_hides_no_other_one_that_names_no_event_either() -> None:
    first = alarms.sound(AlarmKind.BROKEN, None, "No event records the request for the call 1.")
    assert first is not None
    assert alarms.acknowledge(first, SYSTEM, "A test.")
    assert alarms.sound(AlarmKind.BROKEN, None, first.words) is None
    assert alarms.sound(AlarmKind.BROKEN, None, "No event records the request for the call 2.") is not None


def test_a_key_that_is_missing_once_more_raises_another_alarm() -> None:
    words = "The checkpoint key cannot be read."
    first = alarms.sound(AlarmKind.KEY, None, words)
    assert first is not None
    assert alarms.sound(AlarmKind.KEY, None, "It is damaged.") is None, "one is enough while it stands"
    assert alarms.acknowledge(first, SYSTEM, "The volume was not mounted.")
    assert alarms.sound(AlarmKind.KEY, None, words) is None
    log.fill(2)  # the key is back, and signs
    assert alarms.sound(AlarmKind.KEY, None, words) is not None


def test_the_key_of_another_log_is_told_from_a_forgery_of_our_own_key(settings: Any, tmp_path: Path) -> None:
    log.fill(2)
    row = Checkpoint.objects.get()
    log.new_key(settings, tmp_path)
    words = str(verify().reason)
    assert f"signed with key {row.key_id}, which the key file {settings.CHECKPOINT_KEY_FILE} does not name" in words
    assert "restore it from your backup" in words
