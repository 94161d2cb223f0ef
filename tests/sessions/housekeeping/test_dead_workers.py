"""Session ownership: claims, heartbeats, and how the sessions and calls of a dead worker are reaped."""

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from servers.enums import ActionSource, AuditOutcome
from sessions.calls import claims, final_states
from sessions.calls.outcome_words import outcome_of
from sessions.connections import assignment
from sessions.connections.lifecycle import release
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.housekeeping import dead_workers, due_calls, heartbeats, machine
from sessions.models import Call, McpSession, Worker
from tests.sessions.host.make import make_call, make_hold, make_me, make_session, make_worker

pytestmark = pytest.mark.django_db


def test_a_heartbeat_writes_one_row_for_each_life_of_a_worker() -> None:
    me = make_me()
    first = heartbeats.heartbeat(me, draining=False, sessions=0)
    assert heartbeats.heartbeat(me, draining=True, sessions=4) == first
    row = Worker.objects.get()
    assert (row.uid, row.draining, row.session_count) == (me.uid, True, 4)


def test_only_wanted_sessions_of_enabled_servers_are_claimed() -> None:
    make_session("closed", desired=Desired.CLOSED)
    make_session("disabled", enabled=False)
    make_session("archived", archived_at=timezone.now())
    wanted = make_session("wanted")
    leases = assignment.claim_some(make_worker().pk)
    assert [lease.session_uid for lease in leases] == [wanted.uid]


def test_a_claim_raises_the_epoch_and_a_second_claim_finds_nothing() -> None:
    session = make_session()
    first = assignment.claim_one(session.uid, make_worker().pk)
    assert [lease.epoch for lease in first] == [session.epoch + 1]
    assert assignment.claim_one(session.uid, make_worker().pk) == []


def test_one_of_two_living_workers_claims_half_of_what_is_free() -> None:
    for number in range(10):
        make_session(f"server-{number}")
    mine = make_worker()
    make_worker(make_me(node="w2@there"))
    make_worker(make_me(node="w3@there"), silent_for=100)
    assert len(assignment.claim_some(mine.pk)) == 5


def test_at_most_fifty_sessions_are_claimed_at_once() -> None:
    for number in range(60):
        make_session(f"server-{number}")
    assert len(assignment.claim_some(make_worker().pk)) == 50


def test_a_workers_burial_frees_its_sessions_and_ends_its_sent_calls_as_unknown() -> None:
    dead = make_worker(silent_for=60)
    session = make_session()
    lease = make_hold(session, dead)
    sent, requested = make_call(session), make_call(session)
    order = claims.read_pending_call(sent.uid)
    assert order is not None
    assert claims.claim(order, lease)

    reaped = dead_workers.reap([dead])

    assert Call.objects.get(pk=sent.pk).state == CallState.OUTCOME_UNKNOWN
    assert Call.objects.get(pk=requested.pk).state == CallState.REQUESTED
    assert [event.call_uid for event in reaped.events] == [sent.uid]
    freed = McpSession.objects.get()
    assert (freed.owner, freed.epoch, freed.state) == (None, lease.epoch + 1, SessionState.DISCONNECTED)
    assert freed.condition == SessionCondition.WAITING_WORKER
    assert not Worker.objects.exists()


def test_a_sent_call_whose_workers_row_is_gone_ends_as_unknown() -> None:
    worker = make_worker()
    session = make_session()
    call = make_call(session)
    order = claims.read_pending_call(call.uid)
    assert order is not None
    claims.claim(order, make_hold(session, worker))
    heartbeats.deregister(worker.uid)
    assert len(dead_workers.reap([]).events) == 1
    assert Call.objects.get().state == CallState.OUTCOME_UNKNOWN


def test_calls_of_living_workers_are_left_alone() -> None:
    session = make_session()
    call = make_call(session)
    order = claims.read_pending_call(call.uid)
    assert order is not None
    claims.claim(order, make_hold(session))
    assert dead_workers.reap([]).events == []
    assert Call.objects.get().state == CallState.SENT


def test_silence_is_judged_by_the_stale_period(settings: object) -> None:
    settings.STALE_SECONDS = 10
    make_worker(silent_for=5)
    late = make_worker(make_me(node="late@here"), silent_for=11)
    assert [worker.pk for worker in heartbeats.stale_workers()] == [late.pk]


def test_namesakes_are_other_lives_of_the_same_node_on_the_same_machine() -> None:
    me, former, other = make_me(), make_me(pid=2), make_me(node="other@here")
    for each in (me, former, other):
        make_worker(each)
    assert [worker.uid for worker in heartbeats.same_node(me)] == [former.uid]


def test_process_ids_of_another_container_with_the_same_host_name_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start() -> Worker:
        return make_worker(machine.incarnation(uuid.uuid4(), "worker1@mcpadmin", [], ""))

    with monkeypatch.context() as container:
        container.setattr(machine, "_PID_NAMESPACE", tmp_path)
        there = start()
    here = start()
    me = machine.incarnation(uuid.uuid4(), "worker1@mcpadmin", [], "")
    assert [worker.pk for worker in heartbeats.same_node(me)] == [here.pk]
    assert dead_workers.process_ended(me.node, machine.machine_id(), here.pid) == [here.uid]
    there.refresh_from_db()
    assert there.alive


def test_a_requested_call_past_its_deadline_lapses_with_an_event() -> None:
    call, waiting = make_call(make_session(), lapses_in=-1), make_call(make_session("other"))
    events = due_calls.expire()
    assert [event.call_uid for event in events] == [call.uid]
    assert Call.objects.get(pk=call.pk).state == CallState.EXPIRED
    assert Call.objects.get(pk=waiting.pk).state == CallState.REQUESTED


def test_a_hint_that_fails_leaves_the_ends_of_the_other_calls_announced(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    session = make_session()
    calls = [make_call(session, lapses_in=-1) for _ in range(3)]
    announced: list[UUID] = []

    def hint(call_uid: UUID, *_: Any) -> None:
        if call_uid == calls[0].uid:
            raise RuntimeError("a hint that fails")
        announced.append(call_uid)

    monkeypatch.setattr(final_states.hints, "call_changed", hint)
    with django_capture_on_commit_callbacks(execute=True):
        due_calls.expire()
    assert sorted(announced) == sorted(call.uid for call in calls[1:])


def test_a_call_that_expires_says_whether_its_session_was_ready() -> None:
    busy, closed = make_session("busy"), make_session("closed")
    McpSession.objects.filter(pk=busy.pk).update(state=SessionState.READY)
    calls = [make_call(session, lapses_in=-1) for session in (busy, closed)]
    due_calls.expire()
    found = [outcome_of(Call.objects.get(pk=call.pk)) for call in calls]
    assert [words and words.text for words in found] == [final_states.BUSY.detail, final_states.NOT_READY.detail]
    assert ["worker" in str(words and words.remedy) for words in found] == [False, True]


def test_a_session_that_its_owner_does_not_know_of_is_freed() -> None:
    worker = make_worker()
    lease = make_hold(make_session(), worker)
    dead_workers.disown(worker.pk, [lease.session_id])
    assert McpSession.objects.get().owner is None
    assert not release(lease)


def test_a_sent_call_that_its_worker_does_not_handle_was_not_sent_only_if_its_claim_was_not_confirmed() -> None:
    session = make_session()
    lease = make_hold(session)
    unconfirmed, lost, running = (make_call(session) for _ in range(3))
    for call in (unconfirmed, lost, running):
        order = claims.read_pending_call(call.uid)
        assert order is not None
        claims.claim(order, lease)
    Call.objects.update(sent_at=timezone.now() - timedelta(minutes=1), way=ActionSource.AGENT)
    events = claims.end_unhandled(lease.worker_uid, {running.uid}, {unconfirmed.uid})
    assert {event.call_uid: event.outcome for event in events} == {
        unconfirmed.uid: AuditOutcome.FAILED,
        lost.uid: AuditOutcome.UNKNOWN,
    }
    assert {event.actor.way for event in events} == {ActionSource.AGENT}
    states = [Call.objects.get(pk=call.pk).state for call in (unconfirmed, lost, running)]
    assert states == [CallState.FAILED, CallState.OUTCOME_UNKNOWN, CallState.SENT]
