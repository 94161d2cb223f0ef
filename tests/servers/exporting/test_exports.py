"""Exports: what the file holds, that it verifies without mcpadmin, who gets it, and how it ends."""

import csv
import errno
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.proof import removals, verify_export
from servers.audit.proof.cuts import cut
from servers.audit.proof.export import ExportLines
from servers.audit.record import SYSTEM, Actor, Event, record_many
from servers.enums import AuditAction, AuditOutcome, ExportFormat, JobState
from servers.exporting import files, requesting, selection, work
from servers.exporting.table import COLUMNS, cell
from servers.jobs import lifecycle, running
from servers.models import AuditEvent, BackgroundJob, Export, Payload
from servers.privacy import erasing
from servers.privacy.payload_readings import PayloadContext
from tests.servers.audit.proof import log
from tests.servers.conftest import person
from tests.servers.exporting.conftest import exported, no_store, run

pytestmark = pytest.mark.django_db
PROGRAM = Path(verify_export.__file__)
HOSTILE = [
    "=HYPERLINK(\"http://evil\")", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "\uff1d1+1", "a\r\nb,\"c\"",
    "\x1b]8;;http://e\x07", "\u202egpj.exe", "\U000e0041\U000e0042", "\x00", "plain",
]  # fmt: skip


def verified(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), str(path), "--key", log.public_key()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")


def details(action: AuditAction) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(AuditEvent.objects.filter(action=action).latest("seq").body)["details"]
    return found


def types(path: Path) -> list[str]:
    return [json.loads(line)["type"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("late", [False, True])
def test_an_export_whose_owner_is_deleted_ends_at_once(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    export = requesting.request(admin, actor, ExportFormat.JSONL)
    job, write = BackgroundJob.objects.get(), work._write

    def written_and_deleted(*given: Any) -> None:
        write(*given)
        admin.delete()

    if late:
        monkeypatch.setattr(work, "_write", written_and_deleted)
    else:
        admin.delete()
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.detail) == (JobState.FAILED, "The export was deleted with its owner's account.")
    assert requesting.open_jobs() == 0
    assert not files.path_of(export).exists()


# --- JSONL ----------------------------------------------------------------------------------------------------------------
def test_a_whole_export_is_verified_without_mcpadmin(admin: Any, actor: Actor) -> None:
    log.fill()
    export = exported(admin, actor, payloads=True)
    path = files.path_of(export)
    done = verified(path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{export.events} events verified, 12 payloads" in done.stdout
    assert (export.events, export.last_seq) == (26, 26), "with the event of its request"
    assert export.size == path.stat().st_size
    assert export.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    changed = path.read_text().replace("tool_3", "tool_x", 1)
    path.write_text(changed)
    assert verified(path).returncode == 1


def test_an_export_of_a_part_says_so_and_verifies(admin: Any, actor: Actor) -> None:
    log.fill()
    export = exported(admin, actor, query="kind:servers")
    path = files.path_of(export)
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["filtered"], header["filter"], export.events) == (True, "kind:servers", 6)
    assert verified(path).returncode == 0
    assert details(AuditAction.EXPORT_REQUEST)["query"] == "kind:servers"


def test_payloads_are_in_it_only_if_asked_for_by_a_person_who_may_read_them(admin: Any, actor: Actor) -> None:
    log.fill()
    assert "payload" not in types(files.path_of(exported(admin, actor)))
    auditor = person("una", "view_auditevent")
    with pytest.raises(access.Denied, match="read arguments and results"):
        requesting.request(auditor, Actor.of_user(auditor), ExportFormat.JSONL, payloads=True)
    assert "payload" not in types(files.path_of(exported(auditor, Actor.of_user(auditor))))


def test_a_log_of_many_reads_is_whole(admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "WINDOW", 7)
    log.fill(12)
    export = exported(admin, actor, payloads=True)
    assert verified(files.path_of(export)).returncode == 0
    assert export.events == AuditEvent.objects.filter(seq__lte=export.last_seq).count()


@pytest.mark.django_db(transaction=True)
def test_an_export_is_whole_on_postgresql(on_postgres: None) -> None:
    log.fill()
    ada = person("una", is_superuser=True)
    export = exported(ada, Actor.of_user(ada), payloads=True)
    assert verified(files.path_of(export)).returncode == 0


# --- CSV ------------------------------------------------------------------------------------------------------------------
def test_no_text_of_an_event_breaks_a_cell_or_becomes_a_formula(admin: Any, actor: Actor) -> None:
    hostile = [
        Event(AuditAction.CALL_FINISH, AuditOutcome.OK, Actor(None, text), subject=text, details={"note": text})
        for text in HOSTILE
    ]
    record_many(hostile)
    export = exported(admin, actor, ExportFormat.CSV)
    raw = files.path_of(export).read_bytes()
    assert not any(byte in raw for byte in (b"\x1b", b"\x07", b"\x00", "\u202e".encode(), "\U000e0041".encode()))
    rows = list(csv.reader(io.StringIO(raw.decode(), newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert len(rows) == 1 + export.events
    assert not any(
        value.lstrip(" \t\r\n")[:1] in set("=+-@\uff1d\uff0b\uff0d\uff20") for row in rows for value in row if value
    )
    subject = COLUMNS.index("subject")
    found = [row[subject] for row in rows if row[COLUMNS.index("action")] == AuditAction.CALL_FINISH]
    assert found[0] == '\'=HYPERLINK("http://evil")'
    assert found[HOSTILE.index('a\r\nb,"c"')] == 'a[U+000D]\nb,"c"'
    assert found[-1] == "plain"


@pytest.mark.usefixtures("tamperable")
def test_an_event_that_was_changed_keeps_no_one_from_a_table(admin: Any, actor: Actor) -> None:
    log.fill(1)
    AuditEvent.objects.filter(seq=3).update(body="{")
    export = exported(admin, actor, ExportFormat.CSV)
    assert not export.failed, export.detail
    assert len(list(csv.reader(io.StringIO(files.path_of(export).read_text(), newline="")))) == 1 + export.events


@pytest.mark.parametrize("text", HOSTILE[:9])
def test_what_a_spreadsheet_takes_for_a_formula_has_an_apostrophe(text: str) -> None:
    assert cell(text).startswith("'")


# --- the file -------------------------------------------------------------------------------------------------------------
def test_the_file_is_private_and_the_export_is_in_the_log(admin: Any, actor: Actor) -> None:
    export = exported(admin, actor, ExportFormat.CSV)
    path = files.path_of(export)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    asked = AuditEvent.objects.get(action=AuditAction.EXPORT_REQUEST)
    assert (asked.actor_name, details(AuditAction.EXPORT_REQUEST)["format"]) == ("ada", "csv")
    ended = details(AuditAction.EXPORT_END)
    assert (ended["sha256"], ended["events"]) == (export.digest, export.events)


def test_it_belongs_to_the_person_who_asked_and_still_has_the_permission(admin: Any, actor: Actor) -> None:
    auditor = person("una", "view_server", "view_auditevent", "view_payload")
    export = exported(auditor, Actor.of_user(auditor), payloads=True)
    assert requesting.downloadable(auditor, Actor.of_user(auditor), export.uid) == export
    assert requesting.downloadable(admin, actor, export.uid) is None, "not even an administrator's"
    auditor.user_permissions.set([])
    auditor = type(auditor).objects.get(pk=auditor.pk)
    with pytest.raises(access.Denied):
        requesting.downloadable(auditor, Actor.of_user(auditor), export.uid)
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY).exists()


def test_a_person_who_lost_the_permission_before_the_job_began_gets_nothing() -> None:
    auditor = person("una", "view_auditevent")
    export = requesting.request(auditor, Actor.of_user(auditor), ExportFormat.CSV)
    auditor.user_permissions.set([])
    export = run(export)
    assert (export.failed, export.expires_at) == (True, None)
    assert "no longer has permission" in export.detail
    assert not files.path_of(export).exists()


def test_an_expired_export_loses_its_file(admin: Any, actor: Actor) -> None:
    export = exported(admin, actor)
    assert files.expire() == 0
    Export.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    (files.path_of(export).parent / f"{uuid4()}.csv").write_text("of a row that is gone")
    assert files.expire() == 2
    assert list(files.path_of(export).parent.iterdir()) == []
    assert requesting.downloadable(admin, actor, export.uid) is None


def test_what_is_no_file_of_an_export_stays_in_its_folder(admin: Any, actor: Actor) -> None:
    export = exported(admin, actor)
    folder = files.path_of(export).parent
    partial = folder / f"{uuid4()}.jsonl.0a1b2c3d.part"
    partial.touch()
    names = {".mcpadmin-audit-1-9-x.jsonl.part", "checkpoints.jsonl", "notes.txt", files.name_of(export)}
    for name in names:
        (folder / name).touch()
    Export.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert files.expire() == 2, "the export, and the unfinished copy of one that is gone"
    assert {path.name for path in folder.iterdir()} == names


def test_what_lies_beside_the_exports_and_cannot_be_removed_does_not_stop_the_others(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files.path_of(exported(admin, actor)).parent
    Export.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    (folder / "lost+found").mkdir()
    foreign = folder / f"{uuid4()}.csv"
    foreign.touch()
    (folder / f"{uuid4()}.csv").touch()
    unlink = Path.unlink

    def refused(path: Path, **more: Any) -> None:
        if path == foreign:
            raise PermissionError("Operation not permitted")
        unlink(path, **more)

    monkeypatch.setattr(Path, "unlink", refused)
    assert files.expire() == 2
    assert {path.name for path in folder.iterdir()} == {"lost+found", foreign.name}


def test_a_file_whose_export_another_machine_ended_is_removed_here(
    admin: Any, actor: Actor, settings: Any, tmp_path: Path
) -> None:
    export, waiting = exported(admin, actor), exported(admin, actor)
    path, here = files.path_of(export), settings.DATA_DIR
    Export.objects.filter(pk=export.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    settings.DATA_DIR = tmp_path / "other machine"
    files.expire()
    settings.DATA_DIR = here
    assert path.exists()
    assert files.expire() == 1
    assert list(path.parent.iterdir()) == [files.path_of(waiting)]


def test_the_file_of_an_export_whose_job_was_given_up_is_removed(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: Any, **more: Any) -> None:
        raise OperationalError("The database is away.")

    export = requesting.request(admin, actor, ExportFormat.CSV)
    with monkeypatch.context() as database:
        database.setattr(work, "_ended", away)
        run(export)
    assert files.path_of(export).exists()
    assert files.expire() == 0, "its job is tried again"
    BackgroundJob.objects.update(state=JobState.FAILED, finished_at=timezone.now())
    assert files.expire() == 1
    export.refresh_from_db()
    assert (export.failed, export.detail) == (True, "Gave up after several attempts.")


def test_an_interrupted_export_starts_over_and_leaves_no_half_file(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill()
    export = requesting.request(admin, actor, ExportFormat.JSONL)
    with monkeypatch.context() as patch:
        patch.setattr(running.JobProgress, "__call__", _stops)
        assert run(export).finished_at is None
    assert list(files.path_of(export).parent.iterdir()) == []
    export = run(export)
    assert verified(files.path_of(export)).returncode == 0


def _stops(*_: Any) -> None:
    raise running.Stopping


def test_an_attempt_that_another_one_replaced_neither_fails_the_export_nor_touches_its_file(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that missed its heartbeats continues while another worker has the job."""
    log.fill()
    export = requesting.request(admin, actor, ExportFormat.JSONL)
    assert export.job is not None
    first = lifecycle.claim(str(export.job.uid))
    assert first is not None
    read = selection.windows

    def meanwhile(*given: Any) -> Iterator[Any]:
        monkeypatch.setattr(selection, "windows", read)
        BackgroundJob.objects.update(state=JobState.QUEUED)
        second.append(run(export))
        yield from read(*given)

    second: list[Export] = []
    monkeypatch.setattr(selection, "windows", meanwhile)
    with pytest.raises(lifecycle.Lost):
        work.run(no_store, running.JobProgress(first))
    export = Export.objects.get(pk=export.pk)
    assert (export.failed, export.digest) == (False, second[0].digest)
    path = files.path_of(export)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), list(path.parent.iterdir())) == (export.digest, [path])


def test_what_the_retention_removes_in_each_hour_of_an_export_is_accounted_for_in_its_file(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill()
    erased = erase_while_written(monkeypatch)
    export = exported(admin, actor, payloads=True)
    done = verified(files.path_of(export))
    assert (done.returncode, export.failed, len(erased)) == (0, False, 4), done
    assert "12 payloads" not in done.stdout, "some were erased before they were written"
    lines = [json.loads(line) for line in files.path_of(export).read_text().splitlines()]
    assert (lines[-2]["type"], "kind removal" in lines[-2]["note"]) == ("checkpoint", True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("times", [1, 99])
def test_a_file_is_written_again_when_events_were_cut_before_they_were_written(
    times: int, admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill()
    read = selection.windows

    def windows(*given: Any) -> Iterator[Any]:
        nonlocal times
        if times:
            times -= 1
            assert cut(given[1] + 3).removed == 3
        yield from read(*given)

    monkeypatch.setattr(selection, "windows", windows)
    export = exported(admin, actor)
    assert export.failed == bool(times)
    if export.failed:
        assert "Export again" in export.detail
        assert list(files.path_of(export).parent.iterdir()) == []
    else:
        assert verified(files.path_of(export)).returncode == 0


@pytest.mark.django_db(transaction=True)
def test_a_cut_of_events_that_were_written_already_does_not_outdate_a_file(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill()
    read, begun = selection.windows, []

    def windows(*given: Any) -> Iterator[Any]:
        begun.append(given[1])
        yield from read(*given)
        cut(given[1] + 3)

    monkeypatch.setattr(selection, "windows", windows)
    export = exported(admin, actor, payloads=True)
    assert (export.failed, begun) == (False, [1])
    assert verified(files.path_of(export)).returncode == 0


def test_an_export_keeps_in_memory_only_what_calls_that_did_not_end_yet_may_name_again(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill(30)
    log.begin(*log.caller_and_server(), 1)
    monkeypatch.setattr(selection, "WINDOW", 7)
    most, write = 0, ExportLines.lines

    def lines(self: ExportLines, events: Any) -> Iterator[str]:
        nonlocal most
        yield from write(self, events)
        most = max(most, sum(map(len, self._written.values())))

    monkeypatch.setattr(ExportLines, "lines", lines)
    export = exported(admin, actor, payloads=True)
    assert (most, types(files.path_of(export)).count("payload")) == (1, 61)
    assert verified(files.path_of(export)).returncode == 0


@pytest.mark.parametrize("times", [2, 99])
def test_a_file_is_written_again_when_a_person_had_a_payload_erased_meanwhile(
    times: int, admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event that says so comes after those that the file holds."""
    log.fill()
    rows, read = list(Payload.objects.order_by("-pk")), selection.windows

    def windows(*given: Any) -> Iterator[Any]:
        nonlocal times
        if times:
            times -= 1
            assert erasing.erase(actor, admin, rows.pop(), "A test.", PayloadContext())
        yield from read(*given)

    monkeypatch.setattr(selection, "windows", windows)
    export = exported(admin, actor, payloads=True)
    assert export.failed == bool(times)
    if not export.failed:
        done = verified(files.path_of(export))
        assert (done.returncode, "10 payloads, 2 erased" in done.stdout) == (0, True), done


def test_a_payload_that_is_only_said_to_be_erased_stays_visible_to_a_verifier(admin: Any, actor: Actor) -> None:
    log.fill()
    Payload.objects.filter(pk=Payload.objects.earliest("pk").pk).update(text="", salt=b"", erased_at=timezone.now())
    export = exported(admin, actor, payloads=True)
    assert not export.failed
    assert "no event says so" in verified(files.path_of(export)).stderr


def erase_while_written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One payload each time that events were read, as the retention does it: allowed first, then erased."""
    ids = list(Payload.objects.order_by("pk").values_list("pk", flat=True))
    read, begun, erased = selection.windows, timezone.now(), list[int]()
    monkeypatch.setattr(selection, "WINDOW", 7)

    def windows(*given: Any) -> Iterator[Any]:
        for found in read(*given):
            yield found
            removals.allow("payloads", begun + timedelta(minutes=1, seconds=len(erased)))
            erased.append(ids.pop())
            payloads.erase_all(erased[-1:], everywhere=False)

    monkeypatch.setattr(selection, "windows", windows)
    return erased


def test_a_full_disk_is_said_and_leaves_nothing(admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    export = exported(admin, actor)
    assert (export.failed, export.detail.startswith("The disk of the worker is full")) == (True, True)
    assert list(files.path_of(export).parent.iterdir()) == []
    assert BackgroundJob.objects.get().state == JobState.FAILED


@pytest.mark.parametrize("free", [10**9, 2 * 10**9])
def test_an_export_leaves_space_to_a_database_on_the_same_disk(
    free: int, admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "SILENT_SECONDS", 0)
    usage = iter([SimpleNamespace(free=5 * 10**9, total=10**11)])
    monkeypatch.setattr("shutil.disk_usage", lambda _: next(usage, SimpleNamespace(free=free, total=10**11)))
    log.fill(2)
    export = exported(admin, actor)
    assert export.failed is (free < 1024**3)
    assert len(list(files.path_of(export).parent.iterdir())) == (not export.failed)


def test_without_the_checkpoint_key_the_reason_is_said(admin: Any, actor: Actor, settings: Any) -> None:
    settings.CHECKPOINT_KEY_FILE.unlink()
    export = exported(admin, actor)
    assert export.failed
    assert "cannot be read" in export.detail


def test_several_run_side_by_side_up_to_a_limit(admin: Any, actor: Actor) -> None:
    for _ in range(requesting.OPEN):
        requesting.request(admin, actor, ExportFormat.CSV)
    with pytest.raises(requesting.TooMany):
        requesting.request(admin, actor, ExportFormat.CSV)
    assert Export.objects.count() == requesting.OPEN


def test_a_deleted_export_takes_its_file_and_stops_its_job(
    admin: Any, actor: Actor, django_capture_on_commit_callbacks: Any
) -> None:
    export = exported(admin, actor)
    path = files.path_of(export)
    other = person("una", "view_auditevent")
    assert not requesting.delete(other, Actor.of_user(other), export.uid)
    with django_capture_on_commit_callbacks(execute=True):
        assert requesting.delete(admin, actor, export.uid)
    assert not path.exists()
    running_one = requesting.request(admin, actor, ExportFormat.CSV)
    assert running_one.job is not None
    claimed = lifecycle.claim(str(running_one.job.uid))
    assert claimed is not None
    assert requesting.delete(admin, actor, running_one.uid)
    with pytest.raises(lifecycle.Lost):
        lifecycle.heartbeat(claimed, done=1)


def test_a_relative_range_counts_from_the_request_however_long_the_job_waited(admin: Any, actor: Actor) -> None:
    record_many([Event(AuditAction.SIGN_IN, AuditOutcome.OK, SYSTEM, subject="x")])
    for later, events in ((timedelta(), 1), (timedelta(hours=2), 0)):
        export = requesting.request(admin, actor, ExportFormat.JSONL, query="tool:x last:1h")
        Export.objects.filter(pk=export.pk).update(created_at=timezone.now() + later)
        assert run(export).events == events


def test_a_query_that_cannot_be_read_is_refused_and_another_one_chooses_the_events(admin: Any, actor: Actor) -> None:
    record_many([Event(AuditAction.SIGN_IN, AuditOutcome.OK, SYSTEM, subject=name) for name in ("x", "y")])
    with pytest.raises(selection.QueryNotUnderstood):
        requesting.request(admin, actor, ExportFormat.CSV, query="toool:x")
    export = exported(admin, actor, ExportFormat.JSONL, query="tool:x")
    assert (export.events, export.query) == (1, "tool:x")
    assert verified(files.path_of(export)).returncode == 0


@pytest.mark.django_db(transaction=True)
def test_free_text_also_exports_what_was_not_indexed_when_the_job_began(admin: Any, actor: Actor) -> None:
    with transaction.atomic():
        record_many([Event(AuditAction.SIGN_IN, AuditOutcome.OK, SYSTEM, subject=name) for name in ("acme", "other")])
    assert exported(admin, actor, query="acme -other").events == 1
