"""Which of two workers gets a session when one drains, after the database was away, and when a server names a label."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from servers.enums import AuditAction
from servers.models import AuditEvent
from sessions.enums import CallState, SessionCondition
from sessions.models import McpSession, Worker
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import Effects, WorkerProcess, await_ready, effect_session, ended, eventually, wake
from tests.sessions.host.make import make_call

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
STALE = timedelta(seconds=3)


def held_by(session: McpSession, worker: WorkerProcess) -> bool:
    rows = McpSession.objects.filter(pk=session.pk, state="ready", owner__pid=worker.pid)
    return rows.exists()


def owners() -> list[tuple[int, int | None, int]]:
    return list(McpSession.objects.order_by("pk").values_list("pk", "owner_id", "epoch"))


def test_a_worker_that_drains_hands_over_at_once_what_is_idle_and_the_rest_when_its_calls_ended(
    start_worker: StartWorker, effects: Effects
) -> None:
    idle, short, long = (effect_session(effects, slug) for slug in ("idle", "short", "long"))
    first = start_worker("w1", MCPADMIN_DRAIN_SECONDS="12")
    for session in (idle, short, long):
        await_ready(session)
    second = start_worker("w2")
    calls = [make_call(short, "slow", seconds=1.5), make_call(long, "slow", seconds=60)]
    for call in calls:
        wake(call)
    eventually(lambda: effects.count("slow") == 2)
    first.process.terminate()
    eventually(lambda: held_by(idle, second))
    assert first.process.poll() is None  # the worker still waits for the long call
    assert ended(calls[0]).state == CallState.SUCCEEDED
    assert ended(calls[1]).state == CallState.OUTCOME_UNKNOWN
    eventually(lambda: held_by(short, second) and held_by(long, second))
    assert first.process.wait(30) == 0, first.output
    assert effects.count("slow") == 2


@contextmanager
def locked() -> Iterator[None]:
    holder = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None, timeout=20)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.close()


@pytest.mark.skipif("sqlite" not in settings.DATABASES["default"]["ENGINE"], reason="one file is locked")
def test_a_database_that_was_away_for_long_kills_no_worker_and_moves_no_session(
    start_worker: StartWorker, effects: Effects
) -> None:
    sessions = [effect_session(effects, f"server-{number}") for number in range(4)]
    workers = [start_worker("w1"), start_worker("w2")]
    for session in sessions:
        await_ready(session)
    before = owners()
    call = make_call(sessions[0], "slow", seconds=1)
    wake(call)
    eventually(lambda: effects.count("slow"))
    with locked():
        newest = Worker.objects.order_by("-heartbeat_at").first
        eventually(lambda: (row := newest()) and row.heartbeat_at < timezone.now() - 3 * STALE, 30)
    assert ended(call, 30).state == CallState.SUCCEEDED
    beaten = timezone.now() + STALE + timedelta(seconds=1)
    eventually(lambda: Worker.objects.filter(heartbeat_at__gt=beaten).count() == 2, 40)
    assert owners() == before
    assert not AuditEvent.objects.filter(action=AuditAction.SESSION_LOST).exists()
    assert all("host.database_away" in worker.output for worker in workers)
    assert not any("host.reaped" in worker.output for worker in workers)


def test_a_session_waits_for_a_worker_of_its_label(start_worker: StartWorker, effects: Effects) -> None:
    labelled, plain = effect_session(effects, "gpu", worker_label="gpu"), effect_session(effects, "plain")
    first = start_worker("w1")
    eventually(lambda: held_by(plain, first))
    assert McpSession.objects.get(pk=labelled.pk).owner is None
    second = start_worker("w2", MCPADMIN_WORKER_LABELS="disk,gpu")
    eventually(lambda: held_by(labelled, second))
    second.stop()
    waiting = McpSession.objects.filter(pk=labelled.pk, owner=None, condition=SessionCondition.WAITING_WORKER)
    assert waiting.exists()
