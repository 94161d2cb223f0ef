"""Only one worker takes each step of a job, and another worker finishes a dead worker's job."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DataError, OperationalError, connections
from django.utils import timezone

from servers.audit.record import Actor
from servers.enums import AuditAction, JobKind, JobState
from servers.jobs import lifecycle, requesting, running
from servers.jobs.lifecycle import JobOutcome, Lost
from servers.models import AuditEvent, BackgroundJob
from tests.servers.jobs.conftest import chain_of, details

VERIFICATION = JobKind.VERIFICATION
on_file = pytest.mark.django_db(transaction=True)


def at_once(number: int, work: Callable[[], object]) -> list[Any]:
    """What `work` returned or raised in each of `number` threads that start together."""
    found: list[Any] = []
    barrier = threading.Barrier(number)

    def run() -> None:
        barrier.wait(30)
        try:
            found.append(work())
        except Exception as problem:  # the test compares it
            found.append(problem)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def eight_people_and_eight_workers(user: Any) -> None:
    answers = at_once(8, lambda: requesting.request(VERIFICATION, user, Actor.of_user(user)))
    assert sorted(type(answer).__name__ for answer in answers) == ["BackgroundJob"] + ["Busy"] * 7
    job = BackgroundJob.objects.get()
    assert AuditEvent.objects.filter(action=AuditAction.JOB_REQUEST).count() == 1
    claims = at_once(8, lambda: lifecycle.claim(str(job.uid)))
    assert [claim.attempts for claim in claims if claim is not None] == [1]


@on_file
def test_two_requests_at_once_are_one_job_and_two_messages_one_run(admin: Any) -> None:
    eight_people_and_eight_workers(admin)


@pytest.mark.usefixtures("on_postgres")
def test_so_they_are_on_postgresql() -> None:
    eight_people_and_eight_workers(get_user_model().objects.create_superuser("ada", password="correct horse battery"))


def running_job(**fields: Any) -> BackgroundJob:
    job = BackgroundJob.objects.create(kind=VERIFICATION, **fields)
    claimed = lifecycle.claim(str(job.uid))
    assert claimed is not None
    return claimed


def fall_silent(job: BackgroundJob) -> None:
    silent = timezone.now() - timedelta(seconds=lifecycle.stale_seconds() + 1)
    BackgroundJob.objects.filter(pk=job.pk).update(heartbeat_at=silent)


def let_the_pause_pass(job: BackgroundJob) -> None:
    BackgroundJob.objects.filter(pk=job.pk).update(retry_at=timezone.now() - timedelta(seconds=1))


@pytest.mark.django_db
def test_a_job_of_a_dead_worker_is_interrupted_retried_after_a_pause_and_succeeds() -> None:
    chain_of(3)
    job = running_job()
    requesting.recover()
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    fall_silent(job)
    requesting.recover()
    job.refresh_from_db()
    assert (job.state, job.detail) == (
        JobState.INTERRUPTED,
        "The worker stopped responding.",
    )
    requesting.recover()
    job.refresh_from_db()
    assert job.state == JobState.INTERRUPTED
    let_the_pause_pass(job)
    requesting.recover()
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.attempts, job.detail) == (JobState.SUCCEEDED, 2, "All 3 events verified.")


@pytest.mark.django_db
def test_after_three_retries_it_has_failed_and_its_requester_reads_that_in_the_log(admin: Any) -> None:
    job = running_job(requested_by=admin, requested_name="ada")
    for _ in range(lifecycle.RETRIES):
        fall_silent(job)
        lifecycle.interrupt_stale()
        assert lifecycle.requeue(job)
        job = lifecycle.claim(str(job.uid)) or job
    fall_silent(job)
    lifecycle.interrupt_stale()
    job.refresh_from_db()
    assert (job.state, job.attempts) == (JobState.FAILED, 4)
    assert job.detail == "The worker stopped responding. Gave up after 4 attempts."
    event = AuditEvent.objects.get(action=AuditAction.AUDIT_VERIFY)
    assert (event.outcome, event.actor_name, details(event)["job"]) == ("failed", "ada", str(job.uid))


@pytest.mark.django_db
def test_a_last_attempt_that_reports_while_it_is_looked_at_is_not_given_up() -> None:
    job = running_job()
    for _ in range(lifecycle.RETRIES):
        fall_silent(job)
        lifecycle.interrupt_stale()
        assert lifecycle.requeue(job)
        job = lifecycle.claim(str(job.uid)) or job
    seen = BackgroundJob.objects.get()
    lifecycle.heartbeat(job, done=7)
    lifecycle.interrupt(seen, "The worker stopped responding.", version=seen.version)
    assert BackgroundJob.objects.get().state == JobState.RUNNING
    lifecycle.finish(job, JobOutcome(True, "All 7 events verified."))


@pytest.mark.django_db
def test_a_worker_that_was_taken_for_dead_changes_nothing_when_it_wakes() -> None:
    frozen = running_job()
    fall_silent(frozen)
    lifecycle.interrupt_stale()
    assert lifecycle.requeue(frozen)
    other = lifecycle.claim(str(frozen.uid))
    assert other is not None
    for step in (
        lambda: lifecycle.heartbeat(frozen, done=5),
        lambda: lifecycle.finish(frozen, JobOutcome(True, "All 5 events verified.")),
    ):
        with pytest.raises(Lost):
            step()
    lifecycle.give_back(frozen)
    lifecycle.interrupt(frozen, "The database did not respond.")
    row = BackgroundJob.objects.get()
    assert (row.state, row.attempts, row.done) == (JobState.RUNNING, 2, 0)
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_a_request_has_an_interrupted_job_go_on_at_once(admin: Any, actor: Actor) -> None:
    job = running_job()
    fall_silent(job)
    assert requesting.request(VERIFICATION, admin, actor).pk == job.pk
    job.refresh_from_db()
    assert job.state == JobState.QUEUED


@pytest.mark.django_db
def test_a_worker_that_stops_gives_its_job_back_and_no_attempt_is_counted() -> None:
    chain_of(300)
    job = BackgroundJob.objects.create(kind=VERIFICATION)
    stopped = running.JobProgress(lifecycle.claim(str(job.uid)) or job)
    running.stop()
    with pytest.raises(running.Stopping):
        stopped(1, 2)
    lifecycle.give_back(stopped.job)
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.attempts) == (JobState.QUEUED, 0)


@pytest.mark.django_db
def test_work_that_raises_fails_with_words_for_the_page_and_nothing_of_the_exception(monkeypatch: Any) -> None:
    def breaks(progress: running.JobProgress) -> JobOutcome:
        raise KeyError("a-secret-4711")

    monkeypatch.setitem(running._work, JobKind.HOUSEKEEPING, breaks)
    job = BackgroundJob.objects.create(kind=JobKind.HOUSEKEEPING)
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.result) == (JobState.FAILED, {"error": "KeyError"})
    assert job.detail == "Something went wrong. See the worker's log for the reason."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (OperationalError, "The database did not respond."),
        (DataError, "The database refused a statement (DataError). See the worker's log for the reason."),
    ],
)
def test_a_database_that_refuses_is_distinguished_from_one_that_is_away(
    monkeypatch: Any, problem: type[Exception], words: str
) -> None:
    def breaks(progress: running.JobProgress) -> JobOutcome:
        raise problem("of a-secret-4711")

    monkeypatch.setitem(running._work, JobKind.HOUSEKEEPING, breaks)
    job = BackgroundJob.objects.create(kind=JobKind.HOUSEKEEPING)
    running.run(str(job.uid))
    job.refresh_from_db()
    assert (job.state, job.detail) == (JobState.INTERRUPTED, words)


@pytest.mark.django_db
def test_the_newest_of_each_kind_of_the_schedule_and_a_hundred_of_people_are_kept(admin: Any) -> None:
    for _ in range(3):
        job = running_job()
        lifecycle.finish(job, JobOutcome(True, "All 1 event verified."))
    assert list(BackgroundJob.objects.values_list("pk", flat=True)) == [job.pk]
    over = {"state": JobState.SUCCEEDED, "finished_at": timezone.now(), "requested_name": "ada"}
    BackgroundJob.objects.bulk_create([BackgroundJob(kind=VERIFICATION, **over) for _ in range(lifecycle.KEPT + 5)])
    lifecycle.finish(running_job(requested_by=admin, requested_name="ada"), JobOutcome(True, "Verified."))
    assert BackgroundJob.objects.exclude(requested_name="").count() == lifecycle.KEPT
    assert BackgroundJob.objects.filter(requested_name="").count() == 1


@pytest.mark.django_db
def test_a_clock_that_was_set_back_leaves_no_job_interrupted_or_running_until_that_time_comes_again() -> None:
    job = requesting.request_scheduled(VERIFICATION)
    assert job is not None
    lifecycle.claim(str(job.uid))
    lifecycle.interrupt_stale()
    assert BackgroundJob.objects.get().state == JobState.RUNNING
    BackgroundJob.objects.update(heartbeat_at=timezone.now() + timedelta(hours=1))
    lifecycle.interrupt_stale()
    assert BackgroundJob.objects.get().state == JobState.INTERRUPTED
    requesting.recover()
    assert BackgroundJob.objects.get().state == JobState.INTERRUPTED, "its pause is not over"
    BackgroundJob.objects.update(retry_at=timezone.now() + timedelta(hours=1))
    requesting.recover()
    assert BackgroundJob.objects.get().state == JobState.QUEUED


@pytest.mark.django_db
def test_the_schedule_verifies_once_a_day_and_never_beside_another_one() -> None:
    chain_of(2)
    job = requesting.request_scheduled(VERIFICATION, requesting.DAY)
    assert job is not None
    assert requesting.request_scheduled(VERIFICATION) is None
    running.run(str(job.uid))
    assert requesting.request_scheduled(VERIFICATION, requesting.DAY) is None
    BackgroundJob.objects.update(created_at=timezone.now() - timedelta(days=1))
    again = requesting.request_scheduled(VERIFICATION, requesting.DAY)
    assert again is not None
    running.run(str(again.uid))
    BackgroundJob.objects.update(created_at=timezone.now() + timedelta(days=300))  # then the clock was set back
    assert requesting.request_scheduled(VERIFICATION, requesting.DAY) is not None
