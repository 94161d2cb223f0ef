"""The job that writes an export. It starts over when it was interrupted: the file appears only when it is complete."""

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from servers import access, instance
from servers.audit import query
from servers.audit.acts import audited
from servers.audit.proof.export import ExportLines
from servers.audit.proof.key import KeyMissing
from servers.audit.record import SYSTEM, Event
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, ExportFormat, ExportTarget
from servers.exporting import files, requesting, schedules, selection
from servers.exporting.table import Table
from servers.jobs.lifecycle import JobOutcome, Lost
from servers.jobs.running import JobProgress, Stopping
from servers.kit.words import format_count
from servers.models import AuditEvent, BackgroundJob, Export, ExportSchedule

#: (schedule, file, name, given_up) -> where it is now, in words. Raises UploadFailed. Ends soon after `given_up` is set:
#: another attempt then uploads the events. Provided by `sessions`: only workers connect
Upload = Callable[[ExportSchedule, Path, str, threading.Event], str]


#: seconds between two heartbeats within a batch: its payloads may be large
SILENT_SECONDS = 1.0
#: how often a file is written again because rows were removed meanwhile
ATTEMPTS = 3
#: deleting an owner's exports ends their jobs
_DELETED: Final = JobOutcome(False, "The export was deleted with its owner's account.")
log = structlog.get_logger(__name__)


class Outdated(Exception):
    def __init__(self) -> None:
        super().__init__("Rows were removed or erased each time the file was being written. Export again later.")


class UploadFailed(Exception):
    """The file could not be stored where the schedule says. The message is for the page."""


def run(upload: Upload, progress: JobProgress) -> JobOutcome:
    export = Export.objects.select_related("schedule", "owner", "schedule__owner").filter(job=progress.job).first()
    if export is None:
        if BackgroundJob.objects.filter(pk=progress.job.pk).exists():
            return _DELETED
        raise Lost
    if export.finished_at is not None:  # an earlier attempt wrote and delivered it, but could not report that
        return _outcome(export)
    if export.owner is None and export.schedule is None:
        return _ended(export, progress.job, failed="The schedule of this export was deleted.")
    if export.schedule is not None and instance.is_held():  # it was requested before the installation was copied
        return _ended(export, progress.job, failed=str(schedules.OnHold()))
    try:
        _write(export, progress)
        place = _deliver(export, upload, progress) if export.schedule is not None else ""
    except access.Denied:
        return _ended(export, progress.job, failed="The person who requested it no longer has permission.")
    except (selection.QueryNotUnderstood, UploadFailed, KeyMissing, Outdated, SealError) as problem:
        return _ended(export, progress.job, failed=str(problem))
    except OSError as problem:
        return _ended(export, progress.job, failed=_of_disk(problem))
    except (Lost, Stopping, DatabaseError, InterfaceError):  # it may be run again
        raise
    except Exception:  # whatever it was, the row must say that the export is over, and its file must be removed
        log.exception("exports.failed", export=str(export.uid))
        return _ended(export, progress.job, failed="Something went wrong. See the worker's log for the reason.")
    return _ended(export, progress.job, place=place)


# --- the file -------------------------------------------------------------------------------------------------------------
def _write(export: Export, progress: JobProgress) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _write_once(export, progress)
        except Outdated:
            if attempt == ATTEMPTS:
                raise


def _write_once(export: Export, progress: JobProgress) -> None:
    """Raises Outdated, without leaving a file."""
    # relative to the time of the request: the job may have waited for hours, or been interrupted
    events = selection.events_of(_reader(export), export.query, export.created_at)
    first = selection.first_seq(export)
    export.events = 0
    with files.written(export) as output:
        writer = _Lines(export, output) if export.format == ExportFormat.JSONL else _Rows(output)
        export.last_seq = writer.last_seq
        total = max(0, export.last_seq - first + 1)
        selection.reach(export.query, export.created_at, export.last_seq, partial(progress, 0, total))
        done, beat = 0, time.monotonic()
        files.require_space()
        for reached, found in selection.windows(events, first, export.last_seq):
            for _ in writer.write(found):
                if time.monotonic() - beat > SILENT_SECONDS:
                    files.require_space()
                    progress(done, total)
                    beat = time.monotonic()
            export.events += len(found)
            done = reached - first + 1
            progress(done, total)
        writer.end()
        if writer.outdated:
            raise Outdated
    export.size, export.digest, export.host = output.size, output.digest, files.machine()
    export.finished_at = timezone.now()


class _Rows:
    """CSV, which cannot be verified against statements."""

    outdated = False

    def __init__(self, output: files.Output) -> None:
        self.last_seq = query.head_seq()
        self._table = Table(output)
        self._table.head()

    def write(self, events: Sequence[AuditEvent]) -> Iterator[None]:
        self._table.rows(events)
        yield

    def end(self) -> None:
        """A table has none."""


class _Lines:
    """JSONL. A batch with its payloads may be gigabytes, so each line is written on its own."""

    def __init__(self, export: Export, output: files.Output) -> None:
        self._lines = ExportLines(
            filtered=bool(export.query), filter_text=export.query, payloads=export.payloads, after=export.after_seq
        )
        self.last_seq = self._lines.last_seq
        self._output = output
        for line in self._lines.head():
            output.write(line)

    def write(self, events: Sequence[AuditEvent]) -> Iterator[None]:
        for line in self._lines.lines(events):
            self._output.write(line)
            yield

    def end(self) -> None:
        for line in self._lines.end():
            self._output.write(line)

    @property
    def outdated(self) -> bool:
        return self._lines.outdated


def _reader(export: Export) -> access.User:
    """The user whose permissions apply. Raises Denied if they no longer suffice."""
    owner = export.schedule.owner if export.schedule is not None else export.owner
    if owner is None or (export.payloads and not access.may(owner, "view_payload")):
        raise access.Denied("view_payload" if owner is not None else "view_auditevent")
    if export.schedule is not None:
        access.require(owner, "administer")
    return owner


# --- of a schedule --------------------------------------------------------------------------------------------------------
def _deliver(export: Export, upload: Upload, progress: JobProgress) -> str:
    schedule = export.schedule
    assert schedule is not None  # noqa: S101  for the type checker
    path, name, given_up = files.path_of(export), files.name_of(export), threading.Event()
    if schedule.target == ExportTarget.DIRECTORY:
        if schedule.directory not in settings.EXPORT_DIRECTORIES:
            raise UploadFailed(f"{schedule.directory} is no longer in MCPADMIN_EXPORT_DIRECTORIES.")
        put: Callable[[], object] = partial(files.put_into, Path(schedule.directory), name, path)
    else:
        put = partial(upload, schedule, path, name, given_up)
    pool = ThreadPoolExecutor(1, thread_name_prefix="export-delivery")
    try:
        future = pool.submit(put)
        while not wait([future], timeout=1.0).done:  # it may take far longer than a job may be silent
            progress(export.events, export.events)
        return str(future.result())
    finally:
        given_up.set()
        pool.shutdown(wait=False)


# --- its end --------------------------------------------------------------------------------------------------------------
def _ended(export: Export, job: BackgroundJob, *, failed: str = "", place: str = "") -> JobOutcome:
    schedule = export.schedule
    keep = None if failed or schedule is not None else timezone.now() + timedelta(hours=settings.EXPORT_HOURS)
    changes = {
        "finished_at": timezone.now(),
        "failed": bool(failed),
        "detail": failed[:300],
        "last_seq": export.last_seq,
        "events": export.events,
        "size": export.size,
        "digest": export.digest,
        "host": export.host,
        "place": place[:2000],
        "expires_at": keep,
    }
    with audited(SYSTEM) as trail:  # what ended has moved its schedule: the next attempt does neither again
        if not BackgroundJob.objects.filter(pk=job.pk, attempts=job.attempts).exists():
            raise Lost  # another attempt has begun, and may be what this one failed of
        if not Export.objects.filter(pk=export.pk, job=export.job_id).update(**changes):
            files.remove(export)
            return _DELETED
        if schedule is not None and not failed:
            ExportSchedule.objects.filter(pk=schedule.pk, cursor=export.after_seq).update(cursor=export.last_seq)
            if gap := _gap(export):
                details = {"address": schedules.where(schedule), **gap}
                skipped = Event(
                    AuditAction.SINK_SKIP, AuditOutcome.FAILED, SYSTEM, subject=schedule.name, details=details
                )
                trail.add(skipped)
    if keep is None:
        files.remove(export)
    for name, value in changes.items():
        setattr(export, name, value)
    return _outcome(export)


def _outcome(export: Export) -> JobOutcome:
    """As its row has it."""
    result, place = requesting.facts(export) | {"events": export.events}, export.place
    if export.failed:
        return JobOutcome(False, export.detail, result)
    result |= {"last": export.last_seq, "sha256": export.digest, "bytes": export.size} | (
        {"place": place} if place else {}
    )
    return JobOutcome(
        True, f"{format_count(export.events, 'event')} exported{f' to {place}' if place else ''}.", result
    )


def _gap(export: Export) -> dict[str, int]:
    """For a schedule: the events that retention removed since the previous export. The first export contains what
    exists."""
    after, first = export.after_seq, selection.begins_at(export)
    return {"first": after + 1, "last": first - 1} if after and first > after + 1 else {}


def _of_disk(problem: OSError) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk of the worker is full, or nearly full. Free some space, or export fewer events."
    return f"The file cannot be written ({problem.strerror or type(problem).__name__})."
