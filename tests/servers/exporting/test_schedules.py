"""Scheduled exports: each holds the events since the one before, and what fails is covered by the next."""

import errno
import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from servers.audit.proof import checkpoints
from servers.audit.proof.cuts import cut
from servers.audit.record import SYSTEM, Event, record_many
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, ExportFormat, ExportTarget, Interval, StatementKind
from servers.exporting import board, files, requesting, schedules, work
from servers.exporting.board import ExportRow
from servers.exporting.schedules import ScheduleSettings
from servers.jobs import lifecycle, running
from servers.models import AuditEvent, Export, ExportSchedule, Instance
from servers.secret import Secret
from tests.servers.exporting.conftest import no_store, run
from tests.servers.exporting.test_exports import verified

pytestmark = pytest.mark.django_db
MONDAY = datetime(2026, 11, 23, 14, 30, 5, tzinfo=UTC)


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    (tmp_path / "archive").mkdir()
    settings.EXPORT_DIRECTORIES = [str(tmp_path / "archive")]
    return tmp_path / "archive"


@pytest.fixture
def schedule(admin: Any, actor: Any, folder: Path) -> ExportSchedule:
    given = ScheduleSettings(
        "Archive", ExportFormat.JSONL, False, Interval.DAILY, ExportTarget.DIRECTORY, directory=str(folder)
    )
    return schedules.create(admin, actor, given)


def happen(count: int = 3) -> None:
    with transaction.atomic():
        record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM) for _ in range(count)])


def due_now() -> list[Export]:
    ExportSchedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    return [run(export) for export in schedules.run_due()]


def numbers(path: Path) -> list[int]:
    lines = map(json.loads, path.read_text().splitlines())
    return [line["seq"] for line in lines if line["type"] == "event"]


def test_the_files_of_a_schedule_together_are_the_whole_log(schedule: ExportSchedule, folder: Path) -> None:
    for _ in range(3):
        happen()
        (export,) = due_now()
        assert not export.failed, export.detail
        assert not files.path_of(export).exists(), "it was moved out of the data directory"
    made = sorted(folder.iterdir(), key=lambda path: numbers(path)[0])
    found = [numbers(path) for path in made]
    last = ExportSchedule.objects.get().cursor
    assert [seq for part in found for seq in part] == list(range(1, last + 1))
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in made)
    for path in made:
        done = verified(path)
        assert (done.returncode, done.stderr) == (0, "")
        before = numbers(path)[0] - 1
        begins = f"Begins after event {before}: earlier events are in earlier files."
        assert (begins in done.stdout) == (before > 0)
    assert AuditEvent.objects.filter(action=AuditAction.EXPORT_END, actor_name="mcpadmin").count() == 3
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def second_file(folder: Path) -> Path:
    for _ in range(2):
        happen()
        due_now()
    return max(folder.iterdir(), key=lambda path: numbers(path)[0])


def test_an_event_that_was_removed_is_found_in_a_later_file(schedule: ExportSchedule, folder: Path) -> None:
    path = second_file(folder)
    seqs = numbers(path)
    lines = path.read_text().splitlines(keepends=True)
    for gone in (seqs[0], seqs[2], seqs[-1]):
        path.write_text("".join(line for line in lines if json.loads(line).get("seq") != gone or '"header"' in line))
        done = verified(path)
        assert (done.returncode, f"First bad event: {gone}." in done.stderr) == (1, True), done


def test_the_first_event_of_a_later_file_follows_a_checkpoint_of_the_last_one_before(
    schedule: ExportSchedule, folder: Path
) -> None:
    happen()
    due_now()
    after = ExportSchedule.objects.get().cursor
    known = AuditEvent.objects.get(seq=after)
    for digest, code in ((known.hash, 0), ("f" * 64, 1)):
        with transaction.atomic():
            checkpoints.sign(StatementKind.REGULAR, after, digest)
        ExportSchedule.objects.update(cursor=after)
        due_now()
        done = verified(max(folder.iterdir(), key=lambda path: numbers(path)[-1]))
        assert (done.returncode, f"First bad event: {after + 1}." in done.stderr) == (code, bool(code)), done


def test_a_schedule_keeps_its_turn_while_the_database_refuses(
    schedule: ExportSchedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OperationalError("database is locked")

    due = timezone.now() - timedelta(seconds=1)
    ExportSchedule.objects.update(next_at=due)
    with monkeypatch.context() as patched:
        patched.setattr("servers.jobs.requesting.create", refuse)
        with pytest.raises(OperationalError):
            schedules.run_due()
    assert ExportSchedule.objects.get().next_at == due
    assert len(schedules.run_due()) == 1


def test_a_schedule_whose_exports_fail_says_what_it_keeps_and_what_to_do(
    admin: Any, schedule: ExportSchedule, folder: Path, settings: Any, client: Any
) -> None:
    def saying() -> list[bool]:
        client.force_login(admin)
        pages = (f"/exports/schedules/{schedule.uid}/", "/exports/", "/storage/")
        return ["even past their retention limit" in client.get(page).content.decode() for page in pages]

    allowed = settings.EXPORT_DIRECTORIES
    due_now()
    assert saying() == [False] * 3
    settings.EXPORT_DIRECTORIES = []
    first, _ = due_now() + due_now()
    assert saying() == [True] * 3
    assert [row.failing_since for row in board.failing()] == [first.created_at]
    ExportSchedule.objects.update(paused_at=timezone.now())
    assert saying() == [False] * 3
    ExportSchedule.objects.update(paused_at=None)
    settings.EXPORT_DIRECTORIES = allowed
    due_now()
    assert saying() == [False] * 3


def test_what_a_failed_export_missed_is_in_the_next(schedule: ExportSchedule, folder: Path, settings: Any) -> None:
    happen()
    allowed, settings.EXPORT_DIRECTORIES = settings.EXPORT_DIRECTORIES, []
    (export,) = due_now()
    assert export.detail == f"{folder} is no longer in MCPADMIN_EXPORT_DIRECTORIES."
    settings.EXPORT_DIRECTORIES = allowed
    folder.rename(folder.with_name("moved"))
    (export,) = due_now()
    assert export.detail == "The file cannot be written (No such file or directory)."
    folder.with_name("moved").rename(folder)
    (export,) = due_now()
    assert not export.failed
    (path,) = folder.iterdir()
    assert numbers(path)[0] == 1
    assert AuditEvent.objects.filter(action=AuditAction.EXPORT_END, outcome=AuditOutcome.FAILED).count() == 2


def test_a_delivered_file_has_its_name_on_the_disk_before_the_cursor_moves(
    schedule: ExportSchedule, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, end, steps = os.fsync, work._ended, list[str]()

    def sync(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            steps.extend("synced" for path in folder.iterdir() if not path.name.startswith("."))
            raise OSError(errno.EINVAL, "no such thing on this file system")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(work, "_ended", lambda *given, **more: (steps.append("ended"), end(*given, **more))[1])
    (export,) = due_now()
    assert (export.failed, steps) == (False, ["synced", "ended"]), export.detail


def test_what_a_killed_attempt_left_in_the_directory_goes_with_a_later_export(
    schedule: ExportSchedule, folder: Path, settings: Any
) -> None:
    settings.INSTANCE_NAME = "mcp.example"
    days_ago = (timezone.now() - timedelta(days=2)).timestamp()
    for name in (
        ".mcp-example-audit-1-9-x.jsonl.part",
        ".mcp-example-audit-9-10-x.jsonl.part",
        ".other-audit-1-9.part",
    ):
        (folder / name).write_text("half")
    for name in (".mcp-example-audit-1-9-x.jsonl.part", ".other-audit-1-9.part"):
        os.utime(folder / name, (days_ago, days_ago))
    due_now()
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
    assert left == [".mcp-example-audit-9-10-x.jsonl.part", ".other-audit-1-9.part"]


def test_a_delivered_file_stays_even_where_downloads_expire(
    schedule: ExportSchedule, admin: Any, actor: Any, settings: Any
) -> None:
    folder = settings.DATA_DIR / "exports"
    settings.EXPORT_DIRECTORIES = [str(folder)]
    ExportSchedule.objects.update(directory=str(folder))
    happen()
    (export,) = due_now()
    assert not export.failed, export.detail
    files.expire()
    assert [numbers(path) for path in folder.iterdir()] == [list(range(1, ExportSchedule.objects.get().cursor + 1))]


def test_of_two_schedulers_one_runs_it_and_not_while_it_is_open(schedule: ExportSchedule) -> None:
    (export,) = schedules.run_due()
    assert schedules.run_due() == []
    ExportSchedule.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    assert schedules.run_due() == [], "the one before is not over"
    run(export)
    assert len(schedules.run_due()) == 1


def test_the_job_shows_signs_of_life_while_a_directory_takes_long_to_fill(
    schedule: ExportSchedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, heard, put = threading.Event(), threading.Event(), files.put_into

    def slow(*given: Any) -> Path:
        began.set()
        assert heard.wait(10), "it would be given to another worker"
        return put(*given)

    monkeypatch.setattr(files, "put_into", slow)
    monkeypatch.setattr(running.JobProgress, "__call__", lambda *_: heard.set() if began.is_set() else None)
    (export,) = due_now()
    assert (heard.is_set(), export.failed, export.finished_at is not None) == (True, False, True), export.detail


def test_an_export_that_was_delivered_is_not_delivered_again_when_its_job_is_retried(
    schedule: ExportSchedule, folder: Path
) -> None:
    (export,) = schedules.run_due()
    assert export.job is not None
    claimed = lifecycle.claim(str(export.job.uid))
    assert claimed is not None
    outcome = work.run(no_store, running.JobProgress(claimed))
    lifecycle.give_back(claimed)  # its end was not written
    (delivered,) = folder.iterdir()
    content, cursor = delivered.read_bytes(), ExportSchedule.objects.get().cursor
    happen()
    export = run(export)
    assert export.job is not None
    assert (export.last_seq, ExportSchedule.objects.get().cursor) == (cursor, cursor)
    assert (export.job.detail, export.job.result) == (outcome.detail, outcome.result)
    assert [path.read_bytes() for path in folder.iterdir()] == [content]


def test_requests_of_the_same_moment_make_one_export_and_none_begins_at_an_old_cursor(
    schedule: ExportSchedule, admin: Any, actor: Any
) -> None:
    """Each has read the row before the others changed anything."""
    seen = [ExportSchedule.objects.get() for _ in range(3)]
    first = schedules.run_now(admin, actor, seen[0])
    assert first is not None
    assert requesting.request_scheduled(seen[1]) is None
    run(first)
    second = requesting.request_scheduled(seen[2])
    assert second is not None
    assert second.after_seq == ExportSchedule.objects.get().cursor > 0


def test_a_schedule_that_becomes_more_frequent_runs_at_its_new_time(
    schedule: ExportSchedule, admin: Any, actor: Any, folder: Path
) -> None:
    late = timezone.now() + timedelta(days=6)
    ExportSchedule.objects.update(next_at=late)
    given = ScheduleSettings(
        "Archive", ExportFormat.JSONL, False, Interval.HOURLY, ExportTarget.DIRECTORY, directory=str(folder)
    )
    schedules.change(admin, actor, schedule, given)
    changed = ExportSchedule.objects.get().next_at
    assert changed < late - timedelta(days=5)
    schedules.change(admin, actor, schedule, replace(given, interval=Interval.WEEKLY))
    assert ExportSchedule.objects.get().next_at == changed, "no later than it was"


def test_events_of_a_schedule_say_what_was_changed_and_only_what_was(
    schedule: ExportSchedule, admin: Any, actor: Any
) -> None:
    given = ScheduleSettings(
        "Archive", ExportFormat.CSV, False, Interval.HOURLY, ExportTarget.S3, "", "https://s3.example.com", "eu",
        "audit", "a/b", "AKIA", Secret("key of the store"),
    )  # fmt: skip
    schedules.change(admin, actor, schedule, given)
    schedules.change(admin, actor, schedule, replace(given, name="New", access_key="AKIB", region="us"))
    for paused in (True, True, False, False):
        schedules.pause(admin, actor, schedule, paused=paused)
    for _ in range(2):
        schedules.delete(admin, actor, ExportSchedule(pk=schedule.pk, name=schedule.name))
    done = AuditEvent.objects.filter(action__startswith="instance:schedule:").order_by("seq")
    _, _, moved, *switched, deleted = [json.loads(event.body)["details"] for event in done]
    assert {name for name, value in moved["before"].items() if value != moved["after"][name]} == {
        "name", "access_key", "region",
    }  # fmt: skip
    assert moved["secret_key"] == "replaced"
    assert switched == [{"paused": True}, {"paused": False}]
    assert deleted["name"] == "New"


@pytest.mark.django_db(transaction=True)
def test_events_that_the_retention_removed_before_they_were_exported_are_reported(
    schedule: ExportSchedule, folder: Path
) -> None:
    happen()
    due_now()
    after = ExportSchedule.objects.get().cursor
    happen(8)
    cut(after + 4)
    (export,) = due_now()
    skipped = json.loads(AuditEvent.objects.get(action=AuditAction.SINK_SKIP).body)
    assert (skipped["subject"], skipped["outcome"]) == ("Archive", "failed")
    assert skipped["details"] == {"address": str(folder), "first": after + 1, "last": after + 3}
    path = max(folder.iterdir(), key=lambda path: numbers(path)[-1])
    assert (numbers(path)[0], f"-audit-{after + 4}-" in path.name) == (after + 4, True)
    assert ExportRow(export).span.startswith(f"From event {after + 4} to ")
    assert verified(path).returncode == 0


@pytest.mark.parametrize("interval", Interval)
def test_a_clock_that_was_set_back_delays_no_export(schedule: ExportSchedule, interval: Interval) -> None:
    now = timezone.now()
    ExportSchedule.objects.update(interval=interval, next_at=schedules.following(interval, now))
    assert schedules.run_due() == [], "not yet"
    ExportSchedule.objects.update(next_at=now + timedelta(days=30))
    assert len(schedules.run_due()) == 1
    assert ExportSchedule.objects.get().next_at < now + timedelta(days=8)


def test_a_paused_schedule_and_a_held_copy_export_nothing(schedule: ExportSchedule, admin: Any, actor: Any) -> None:
    schedules.pause(admin, actor, schedule, paused=True)
    assert schedules.run_due() == []
    schedules.pause(admin, actor, schedule, paused=False)
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    assert schedules.run_due() == []
    Instance.objects.all().delete()
    assert len(schedules.run_due()) == 1


def test_a_held_copy_neither_exports_what_was_requested_before_nor_on_request(
    schedule: ExportSchedule, admin: Any, folder: Path, client: Any
) -> None:
    (export,) = schedules.run_due()
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    export = run(export)
    assert (export.failed, export.detail) == (True, str(schedules.OnHold()))
    assert (list(folder.iterdir()), ExportSchedule.objects.get().cursor) == ([], 0)
    client.force_login(admin)
    page = client.post(f"/exports/schedules/{schedule.uid}/run/", follow=True)
    assert str(schedules.OnHold()) in page.content.decode()
    assert Export.objects.count() == 1


def test_it_runs_with_the_permissions_of_its_owner(schedule: ExportSchedule, admin: Any) -> None:
    type(admin).objects.filter(pk=admin.pk).update(is_superuser=False)
    (export,) = due_now()
    assert (export.failed, "no longer has permission" in export.detail) == (True, True)


def test_a_store_gets_the_file_and_the_failure_names_it(schedule: ExportSchedule, admin: Any, actor: Any) -> None:
    seen: list[tuple[str, str, bytes]] = []

    def upload(store: ExportSchedule, path: Path, name: str, given_up: threading.Event) -> str:
        seen.append((schedules.opened(store).reveal(), name, path.read_bytes()))
        return f"{schedules.where(store)}/{name}"

    given = ScheduleSettings(
        "Archive", ExportFormat.CSV, False, Interval.HOURLY, ExportTarget.S3, "", "https://s3.example.com", "eu",
        "audit", "a/b", "AKIA", Secret("key of the store"),
    )  # fmt: skip
    schedules.change(admin, actor, schedule, given)
    (export,) = due_now()
    assert export.detail == "There is no store in this test."
    running.does(running.JobKind.EXPORT, lambda progress: work.run(upload, progress))
    (export,) = due_now()
    ((key, name, data),) = seen
    assert (key, name.endswith(".csv"), data.startswith(b'"seq","at"')) == ("key of the store", True, True)
    assert export.place == f"https://s3.example.com/audit/a/b/{name}"
    assert "key of the store" not in "".join(AuditEvent.objects.values_list("body", flat=True))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (SealError("The key ring lacks k1."), "The key ring lacks k1."),
        (RuntimeError("nobody expects it"), "Something went wrong. See the worker's log for the reason."),
    ],
)
def test_an_export_that_fails_in_any_way_is_over_and_leaves_no_file(
    problem: Exception, words: str, schedule: ExportSchedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise problem

    monkeypatch.setattr(files, "put_into", fail)
    (export,) = due_now()
    assert (export.failed, export.detail, export.finished_at is not None) == (True, words, True)
    assert list(files.path_of(export).parent.iterdir()) == []


def test_an_upload_is_given_up_with_its_job(
    schedule: ExportSchedule, admin: Any, actor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    def upload(store: ExportSchedule, path: Path, name: str, given_up: threading.Event) -> str:
        began.set()
        assert given_up.wait(30)
        ended.set()
        raise work.UploadFailed("given up")

    def lose(progress: running.JobProgress, done: int, total: int | None = None) -> None:
        if began.is_set():
            raise lifecycle.Lost

    given = ScheduleSettings(
        "Archive", ExportFormat.CSV, False, Interval.HOURLY, ExportTarget.S3, "", "https://s3.example.com", "eu",
        "audit", "a/b", "AKIA", Secret("key of the store"),
    )  # fmt: skip
    schedules.change(admin, actor, schedule, given)
    running.does(running.JobKind.EXPORT, lambda progress: work.run(upload, progress))
    monkeypatch.setattr(running.JobProgress, "__call__", lose)
    (export,) = due_now()
    assert (ended.wait(30), export.finished_at) == (True, None)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval.HOURLY, datetime(2026, 11, 23, 15, tzinfo=UTC)),
        (Interval.DAILY, datetime(2026, 11, 24, tzinfo=UTC)),
        (Interval.WEEKLY, datetime(2026, 11, 30, tzinfo=UTC)),
    ],
)
def test_the_next_one_is_at_the_full_hour_midnight_or_monday(interval: Interval, expected: datetime) -> None:
    assert schedules.following(interval, MONDAY) == expected
