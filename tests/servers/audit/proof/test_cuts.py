"""The retention removes old events and leaves a chain that verifies; nothing else removes or changes an event."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from servers.audit import payloads
from servers.audit import verify as verify_module
from servers.audit.proof import alarms, checkpoints, cuts, removals, verify_export
from servers.audit.proof.cuts import CutRefused, cut
from servers.audit.proof.rows import TOLERANCE
from servers.audit.proof.whole import Whole
from servers.audit.verify import verify
from servers.enums import AlarmKind, AuditAction
from servers.models import AuditEvent, Checkpoint, Payload
from sessions.models import Call
from tests.servers.audit.proof import log
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def sql(statement: str, *values: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


FORBIDDEN = [
    "UPDATE servers_auditevent SET subject = 'x' WHERE seq = 3",
    "UPDATE servers_auditevent SET seq = 99 WHERE seq = 3",
    "DELETE FROM servers_auditevent WHERE seq = 3",
    "DELETE FROM servers_auditevent",
]


def nothing_changes_events(statements: list[str]) -> None:
    log.fill(1)
    before = list(AuditEvent.objects.values_list("seq", "body", "subject"))
    for statement in statements:
        with pytest.raises(DatabaseError, match="audit events are"):
            sql(statement)
    assert list(AuditEvent.objects.values_list("seq", "body", "subject")) == before
    assert verify().warning == ""


def test_the_database_refuses_to_change_or_delete_events() -> None:
    replace = "INSERT OR REPLACE INTO servers_auditevent SELECT * FROM servers_auditevent WHERE seq = 3"
    nothing_changes_events([*FORBIDDEN, replace])


@pytest.mark.usefixtures("on_postgres")
def test_postgresql_refuses_to_change_delete_or_truncate_events() -> None:
    nothing_changes_events([*FORBIDDEN, "TRUNCATE servers_auditevent"])


def cut_in_two() -> None:
    log.fill(6)
    done = cut(10)
    assert (done.first, done.seq, done.removed) == (1, 9, 9)
    assert AuditEvent.objects.order_by("seq").first().seq == 10
    event = AuditEvent.objects.get(action=AuditAction.AUDIT_CUT)
    assert event.subject == "events 1 to 9"
    assert verify().ok, verify()
    assert verify(10, 10).ok  # as the page of this event asks
    assert not verify(9, 9).ok
    assert cut(10).removed == 0
    assert cut(15).removed == 5
    assert Checkpoint.objects.filter(seq__lt=14).count() == 0
    assert verify().ok, verify()
    with pytest.raises(DatabaseError, match="signed cut"):
        sql("DELETE FROM servers_auditevent WHERE seq = 15")


def test_a_cut_leaves_a_chain_that_verifies_and_the_next_cut_goes_on_from_it() -> None:
    cut_in_two()


def test_the_command_verifies_a_part_of_the_log_from_what_a_cut_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    log.fill(6)
    cut(10)
    call_command("verify_audit", "--end", "12")
    assert "No tampering found: 3 events verified." in capsys.readouterr().out
    for removed in (["--end", "9"], ["--start", "9", "--end", "12"], ["--start", "9"]):
        with pytest.raises(CommandError, match="Retention removed the events up to 9"):
            call_command("verify_audit", *removed)
    call_command("verify_audit", "--start", "1")
    call_command("verify_audit", "--start", "10", "--end", "12")


@pytest.mark.parametrize("words", [["--start", "0", "--end", "2"], ["--start", "3", "--end", "2"], ["--end", "0"]])
def test_a_range_without_events_is_neither_broken_nor_verified(words: list[str]) -> None:
    log.fill(1)
    with pytest.raises(CommandError, match="--start must be 1 or greater, and --end not less"):
        call_command("verify_audit", *words)


@pytest.mark.usefixtures("on_postgres")
def test_on_postgresql_a_cut_leaves_a_chain_that_verifies() -> None:
    cut_in_two()


class Stopped(Exception):
    pass


def test_an_interrupted_cut_verifies_and_the_next_one_finishes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log.fill(6)
    monkeypatch.setattr(cuts, "_FIRST_BATCH", 3)

    def stop(done: int, total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        cut(10, on_batch=stop)
    assert AuditEvent.objects.order_by("seq").first().seq == 4
    assert verify().ok, verify()
    assert cut(10).removed == 6
    assert verify().ok, verify()


def test_a_cut_during_a_verification_is_no_finding() -> None:
    log.fill(60, checkpoint_every=20)
    begun: list[int] = []

    def cut_once(checked: int, total: int) -> None:
        if not begun:
            begun.append(checked)
            cut(230)

    verdict = verify(on_progress=cut_once)
    assert verdict.ok, verdict
    assert begun == [50]


def test_a_verification_that_the_retention_overtakes_again_and_again_still_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a large log it takes longer than the time between two runs."""
    log.fill(8)
    monkeypatch.setattr(verify_module, "_CHUNK", 1)
    monkeypatch.setattr(verify_module, "_REPORTED", 1)
    passes: list[Whole] = []
    begin = Whole.beginning

    def beginning(whole: Whole, meet: Any) -> tuple[int, str | None]:
        passes.append(whole)
        return begin(whole, meet)

    def remove(checked: int, total: int) -> None:
        """The call that is verified next, of every second one only the contents."""
        event = AuditEvent.objects.filter(seq=checked, action=AuditAction.CALL_REQUEST).first()
        call = None if event is None else Call.objects.filter(uid=event.call_uid).first()
        if event is None or call is None:
            return
        for rows in ("calls", "payloads"):
            removals.allow(rows, event.at - TOLERANCE + timedelta(microseconds=1))  # type: ignore[arg-type]  # both are such names
        if call.pk % 2:
            call.delete()
        else:
            payloads.erase_all([call.arguments_id], everywhere=False)

    monkeypatch.setattr(Whole, "beginning", beginning)
    verdict = verify(on_progress=remove)
    assert verdict.ok, verdict
    assert (len(passes), Call.objects.count()) == (1, 4)


def test_a_call_whose_events_were_cut_while_the_others_were_verified_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log.fill(6)
    monkeypatch.setattr(verify_module, "_REPORTED", 1)
    begun: list[int] = []

    def cut_once(checked: int, total: int) -> None:
        if checked == total and not begun:
            begun.append(cut(10).removed)

    verdict = verify(on_progress=cut_once)
    assert verdict.ok, verdict
    assert begun == [9]


def test_the_last_event_stays() -> None:
    log.fill(1)
    cut(10_000)
    assert verify().ok, verify()
    assert AuditEvent.objects.count() >= 1


def test_nothing_is_removed_while_an_alarm_stands() -> None:
    log.fill(2)
    alarms.sound(AlarmKind.BROKEN, 3, "Event 3 is missing.")
    with pytest.raises(CutRefused):
        cut(5)
    assert AuditEvent.objects.filter(seq=1).exists()


def test_calls_that_the_retention_may_remove_are_not_missed_and_others_are() -> None:
    log.fill(3)
    removals.allow("calls", log.later(-3600))
    Call.objects.all().delete()
    assert verify().reason == "The call of event 2 is missing."
    removals.allow("calls", log.later(0))
    assert verify().ok, verify()


def test_a_removal_replaces_those_before_it_and_says_what_they_said(tmp_path: Path) -> None:
    log.fill(3)
    last = log.later(0)
    for hours in range(100, -1, -1):
        for rows in ("calls", "payloads"):
            removals.allow(rows, last - timedelta(hours=hours))  # type: ignore[arg-type]  # both are such names
    removals.allow("calls", last - timedelta(hours=1))  # what is covered needs no other
    assert Checkpoint.objects.filter(kind="removal").count() == 2
    assert removals.allowed("calls") == removals.allowed("payloads") == last
    Call.objects.all().delete()
    Payload.objects.all().delete()
    assert verify().ok, verify()
    exported = log.export_to(tmp_path / "e")
    lines = exported.read_text().splitlines()
    assert sum("kind removal" in line for line in lines) == 2, [len(one) for one in lines if "kind removal" in one]
    assert verify_export.verify(str(exported), [log.public_key()], [])


@pytest.mark.usefixtures("on_postgres")
def test_on_postgresql_one_process_signs_and_another_one_waits_and_finds_nothing_to_sign(settings: Any) -> None:
    settings.CHECKPOINT_SECONDS = 0
    log.fill(1)

    def elsewhere() -> Checkpoint | None:
        try:
            return checkpoints.sign_regular()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert checkpoints.sign_regular() is not None
            second = pool.submit(elsewhere)
            eventually(lambda: second.done() or waits_for_a_lock())
        assert second.result() is None
    assert Checkpoint.objects.filter(kind="regular").count() == 1


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])
