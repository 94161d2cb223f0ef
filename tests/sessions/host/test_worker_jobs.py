"""Background jobs on real Celery workers with a real Valkey are completed once, even if a worker is killed midway."""

from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client
from django.utils import timezone

from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record_many
from servers.enums import AuditAction, AuditOutcome, JobKind, JobState
from servers.jobs import lifecycle, requesting
from servers.models import AuditEvent, BackgroundJob
from sessions.enums import CallState
from sessions.models import Call
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import Effects, await_ready, effect_session, ended, eventually, wake
from tests.sessions.host.make import make_call
from tests.tools import broker

pytestmark = [pytest.mark.integration, pytest.mark.deadline(240)]
#: enough for a verification to take seconds, so that a call or a kill arrives while it runs
MANY = 15_000


@pytest.fixture
def ada(transactional_db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="correct horse battery"))
    return client


def chain_of(count: int) -> None:
    with transaction.atomic():
        record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM, subject=f"n{n}") for n in range(count)])


def in_state(state: JobState, kind: JobKind = JobKind.VERIFICATION) -> BackgroundJob:
    def look() -> BackgroundJob | None:
        return BackgroundJob.objects.filter(kind=kind, state=state).first()

    return eventually(look, 90, f"never {state}")


def requested(call: Call) -> Event:
    """As the web side records it with the call."""
    return Event(
        AuditAction.CALL_REQUEST,
        AuditOutcome.PENDING,
        Actor(call.user_id, call.user_name),
        ServerRef(call.server.uid, call.server_name) if call.server else None,
        identity_name=call.identity_name,
        subject=call.target,
        call_uid=call.uid,
        details={"method": call.method},
        digests={"arguments": call.arguments.digest},
    )


def test_a_click_has_a_worker_verify_the_log_while_its_sessions_go_on(
    start_worker: StartWorker, effects: Effects, ada: Client
) -> None:
    session = effect_session(effects)
    start_worker()
    await_ready(session)
    chain_of(MANY)
    ada.post("/audit/verify/")
    in_state(JobState.RUNNING)
    with transaction.atomic():
        call = make_call(session, "echo", text="beside")
        record_many([requested(call)])
    wake(call)
    assert ended(call).state == CallState.SUCCEEDED
    job = in_state(JobState.SUCCEEDED)
    assert job.result["checked"] >= MANY
    assert job.finished_at is not None
    assert ended(call).finished_at < job.finished_at
    verified = AuditEvent.objects.get(action=AuditAction.AUDIT_VERIFY)
    assert (verified.actor_name, verified.outcome) == ("ada", AuditOutcome.OK)


def test_a_job_whose_worker_was_killed_is_interrupted_and_the_next_worker_does_it(
    start_worker: StartWorker, ada: Client
) -> None:
    chain_of(MANY)
    first = start_worker("w1")
    ada.post("/audit/verify/")
    job = in_state(JobState.RUNNING)
    first.kill()
    silent = timezone.now() - timedelta(seconds=lifecycle.stale_seconds() + 1)
    BackgroundJob.objects.filter(pk=job.pk).update(heartbeat_at=silent)
    start_worker("w2")
    current_app.send_task("sessions.housekeeping")
    interrupted = in_state(JobState.INTERRUPTED)
    assert interrupted.detail == "The worker stopped responding."
    BackgroundJob.objects.filter(pk=job.pk).update(retry_at=timezone.now() - timedelta(seconds=1))
    in_state(JobState.SUCCEEDED, JobKind.HOUSEKEEPING)
    current_app.send_task("sessions.housekeeping")
    done = in_state(JobState.SUCCEEDED)
    assert (done.pk, done.attempts, done.result["ok"]) == (job.pk, 2, True)


@pytest.mark.long
def test_a_worker_that_is_stopped_gives_its_job_to_the_next_one(start_worker: StartWorker, ada: Client) -> None:
    chain_of(MANY)
    first = start_worker("w1")
    ada.post("/audit/verify/")
    in_state(JobState.RUNNING)
    first.stop()
    waiting = in_state(JobState.QUEUED)
    assert waiting.attempts == 0
    start_worker("w2")
    assert in_state(JobState.SUCCEEDED).pk == waiting.pk


def test_what_was_requested_while_the_broker_was_away_is_done_when_it_is_back(
    start_worker: StartWorker, ada: Client
) -> None:
    chain_of(10)
    with transaction.atomic():
        requesting.create(JobKind.HOUSEKEEPING)
    start_worker()
    in_state(JobState.SUCCEEDED, JobKind.HOUSEKEEPING)  # at its start a worker looks for what waits, and not again
    BackgroundJob.objects.all().delete()
    with broker.away():
        answer: Any = ada.post("/audit/verify/", follow=True)
        assert requesting.BROKER_AWAY in answer.content.decode()
        assert in_state(JobState.QUEUED).detail == requesting.BROKER_AWAY
    current_app.send_task("sessions.housekeeping")
    assert in_state(JobState.SUCCEEDED).detail.startswith("All ")
    assert in_state(JobState.SUCCEEDED, JobKind.HOUSEKEEPING).detail == "Nothing to clean up."


def test_the_schedule_of_beat_has_the_log_verified_and_the_house_kept(start_worker: StartWorker, ada: Client) -> None:
    start_worker()
    for entry in current_app.conf.beat_schedule.values():
        current_app.send_task(entry["task"], **entry["options"])
    for kind in (JobKind.VERIFICATION, JobKind.HOUSEKEEPING):
        assert in_state(JobState.SUCCEEDED, kind).requested_name == ""
