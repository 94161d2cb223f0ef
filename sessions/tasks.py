"""Celery tasks, with explicit names. User requests to a session host are not tasks: they are rows, and a wake-up (see
sessions.hints) makes the host read them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import DatabaseError, InterfaceError
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from servers import instance
from servers.accounts import browser_sessions, links
from servers.agents.oauth import clients, grants
from servers.browser_reports import receiving
from servers.bundles import exposed
from servers.credentials import authorizations
from servers.definitions import trimming
from servers.enums import ExportFormat, JobKind
from servers.exporting import files, schedules
from servers.exporting import work as exporting
from servers.jobs import requesting, running, work  # noqa: F401 - work registers the jobs of `servers`
from servers.jobs.lifecycle import JobOutcome, Lost
from servers.kit.words import format_count
from servers.models import ExportSchedule, Unredacted
from servers.packages import checks
from servers.privacy import payload_readings
from servers.registration.drafts import purge_drafts
from sessions.agents import agent_sessions, follows
from sessions.calls import agent_calls, server_tasks
from sessions.connections import commands
from sessions.explorer import indexing
from sessions.host.logs.store import trim_all
from sessions.host.outbound import egress_policy
from sessions.host.sending import s3
from sessions.host.sending.failure import NotDelivered
from sessions.host.sending.s3 import Store
from sessions.retention import histories
from sessions.retention import job as retention
from sessions.statistics import counting
from sessions.wire import retention as wire_retention

#: the schedule checks every ten minutes whether an hour has passed
HOUR = timedelta(minutes=55)
#: far longer than a call may wait for its session or a server may wait for an answer
UNSENT_KEPT = timedelta(days=1)
log = structlog.get_logger(__name__)


@shared_task(name=requesting.RUN_TASK)
def run_job(uid: str) -> None:
    running.run(uid)


@shared_task(name="sessions.housekeeping")
def housekeeping() -> None:
    """Request the scheduled cleanup, and recover jobs that lost their worker or message. Safe with two schedulers."""
    requesting.recover()
    if job := requesting.request_scheduled(JobKind.HOUSEKEEPING):
        running.run(str(job.uid))


@shared_task(name="servers.verify_audit_log")
def verify_audit_log() -> None:
    """Runs at most once a day, however often it is called."""
    if job := requesting.request_scheduled(JobKind.VERIFICATION, requesting.DAY):
        running.run(str(job.uid))


@shared_task(name="sessions.retention")
def start_retention() -> None:
    """Measure stored data and remove what exceeds its limit. Runs at most once an hour, however often it is called."""
    if instance.is_held():  # each would only say so
        return
    if job := requesting.request_scheduled(JobKind.RETENTION, HOUR):
        running.run(str(job.uid))


@shared_task(name="servers.run_export_schedules")
def run_export_schedules() -> None:
    schedules.run_due()


@shared_task(name="sessions.count_calls")
def count_calls() -> None:
    """Bring the roll-ups of calls up to date. Until then, pages count the newest calls themselves."""
    if job := requesting.request_scheduled(JobKind.STATISTICS):
        running.run(str(job.uid))


@shared_task(name="servers.recover_jobs")
def recover_jobs() -> None:
    requesting.recover()


@shared_task(name="sessions.check_packages")
def check_packages() -> None:
    """Request the due comparisons of packages with their registries. The workers' hosts run them."""
    for uid, label in checks.request_due():
        commands.ask_worker("package", uid, label)


@worker_ready.connect
def _recover_at_start(**_signal: object) -> None:
    """Recover jobs that the last worker handed back or whose message the broker lost. Housekeeping repeats this."""
    with suppress(OperationalError, RedisError, OSError):
        recover_jobs.apply_async(retry=False, expires=60)


@worker_shutting_down.connect
def _stop_jobs(**_signal: object) -> None:
    running.stop()


class _Steps:
    """Independent steps: the failure of one does not prevent the others."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._held = instance.is_held()

    def do(self, name: str, step: Callable[[], int | None]) -> int:
        """Run a step and return its count. Raises only exceptions that end the whole job."""
        try:
            return step() or 0
        except (running.Stopping, Lost, DatabaseError, InterfaceError):
            raise
        except Exception:  # whatever the step raised, the job's result says that it failed and the log says why
            log.exception("housekeeping.step_failed", step=name)
            self.failed.append(name)
            return 0

    def unless_held(self, name: str, step: Callable[[], int | None]) -> int:
        """For steps that remove old data: a copy on hold may have been restored for exactly that data."""
        return 0 if self._held else self.do(name, step)


def _housekeeping(progress: running.JobProgress) -> JobOutcome:
    steps, found = _Steps(), dict[str, int]()
    found["draft"] = steps.do("drafts", purge_drafts)
    found["sign-in"] = steps.do("sign-ins", browser_sessions.delete_expired)
    steps.do("server sign-ins", authorizations.purge)
    found["link"] = steps.unless_held("invitations", links.delete_expired)
    found["export"] = steps.do("exports", files.expire)
    steps.do("agents' sessions", agent_sessions.end_idle)
    steps.do("agents' subscriptions", follows.end_unfollowed)
    steps.do("agents' sign-ins", grants.forget_expired)
    steps.unless_held("agents' clients", clients.forget_unused)
    steps.unless_held("browser reports", receiving.forget_old)
    steps.unless_held("tool names", exposed.remove_old)
    steps.do("agents' calls", agent_calls.forget_old)
    progress(1, 5)
    found["log"] = steps.do("logs", partial(trim_all, partial(progress, 1, 5)))
    found["old definition"] = steps.unless_held("definitions", partial(trimming.trim_all, partial(progress, 1, 5)))
    progress(2, 5)
    found["version"] = steps.unless_held("versions", partial(histories.trim_all, partial(progress, 2, 5)))
    progress(3, 5)
    steps.do("server tasks", server_tasks.give_up_old)
    steps.do("arguments that were not sent", _forget_unsent)
    steps.do("readings", payload_readings.forget_old)
    steps.do("search index", partial(indexing.trim, partial(progress, 3, 5)))
    steps.do("erased words", partial(indexing.purge, partial(progress, 3, 5)))
    found["message"] = steps.do("messages", partial(wire_retention.trim_all, partial(progress, 4, 5)))
    words = [format_count(count, noun) for noun, count in found.items() if count]
    detail = f"Cleaned up {', '.join(words)}." if words else "Nothing to clean up."
    if steps.failed:
        detail = f"{detail} Failed: {', '.join(steps.failed)}. See the worker's log for the reason."
    return JobOutcome(not steps.failed, detail, {**found, "failed": steps.failed})


def _forget_unsent() -> None:
    Unredacted.objects.filter(created_at__lt=timezone.now() - UNSENT_KEPT).delete()


def _statistics(progress: running.JobProgress) -> JobOutcome:
    counted_calls = counting.count_all(progress)
    words = f"Counted {format_count(counted_calls, 'call')}." if counted_calls else "No new calls."
    return JobOutcome(True, words, {"calls": counted_calls})


def _upload(schedule: ExportSchedule, path: Path, name: str, given_up: threading.Event) -> str:
    """Runs in its own thread, and needs the database only before the upload begins."""
    store = Store(schedule.endpoint, schedule.region, schedule.bucket, schedule.access_key, schedules.opened(schedule))
    key = f"{schedule.prefix.strip('/')}/{name}".lstrip("/")
    kind = "text/csv" if schedule.format == ExportFormat.CSV else "application/x-ndjson"
    try:
        asyncio.run(_until(given_up, s3.put_file(store, key, path, policy=egress_policy(), content_type=kind)))
    except asyncio.CancelledError:
        raise exporting.UploadFailed("The upload was abandoned.") from None
    except NotDelivered as problem:
        raise exporting.UploadFailed(problem.detail) from problem
    return f"{schedules.where(schedule)}/{name}"


async def _until(given_up: threading.Event, sending: Coroutine[Any, Any, None]) -> None:
    """Raises CancelledError once `given_up` is set. Checks every second: a loop cannot await a thread's event."""
    task = asyncio.create_task(sending)
    while not (await asyncio.wait([task], timeout=1.0))[0]:
        if given_up.is_set():
            task.cancel()
            break
    await task


running.does(JobKind.EXPORT, partial(exporting.run, _upload))
running.does(JobKind.HOUSEKEEPING, _housekeeping)
running.does(JobKind.STATISTICS, _statistics)
running.does(JobKind.RETENTION, retention.run)
running.does(JobKind.RETENTION_DRY_RUN, retention.dry_run)
