"""When two people pause, resume or retry at once, one order and one event are written; the second user sees that
it is already done."""

from collections.abc import Iterator

import pytest

from servers.audit import writer as writer_module
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.models import AuditEvent
from sessions.calls import final_states, session_pausing
from sessions.connections import assignment, commands, lifecycle
from sessions.connections.lifecycle import Failure, Lease
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.housekeeping import due_calls
from sessions.models import Call, ConnectionEvent, McpSession
from tests.sessions.host.make import make_call, make_greeting, make_hold, make_session, make_worker

pytestmark = pytest.mark.django_db(transaction=True)
ADA, BOB = Actor(None, "ada"), Actor(None, "bob")


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writer_module.reset()


@pytest.fixture
def session() -> McpSession:
    return make_session()


def row() -> McpSession:
    return McpSession.objects.get()


def events(action: AuditAction) -> list[str]:
    return list(AuditEvent.objects.filter(action=action).values_list("actor_name", flat=True))


def waiting(session: McpSession) -> Lease:
    lease = make_hold(session)
    lifecycle.connecting(lease, 1, 0)
    lifecycle.backing_off(lease, Failure("timeout", "No answer."), 60)
    return lease


def test_of_two_who_pause_one_is_told_that_it_is_paused(session: McpSession) -> None:
    assert session_pausing.pause(ADA, session)
    assert not session_pausing.pause(BOB, session)
    assert (row().paused, row().paused_by, row().condition) == (True, "ada", SessionCondition.PAUSED)
    assert events(AuditAction.SESSION_PAUSE) == ["ada"]
    assert ConnectionEvent.objects.values_list("title", "detail").get() == ("Pause", "Requested by ada.")


def test_no_one_claims_a_paused_session_and_anyone_a_resumed_one(session: McpSession) -> None:
    worker = make_worker()
    session_pausing.pause(ADA, session)
    assert assignment.claim_some(worker.pk) == []
    assert assignment.claim_one(session.uid, worker.pk) == []
    assert session_pausing.resume(BOB, session)
    assert not session_pausing.resume(ADA, session)
    assert row().condition == SessionCondition.WAITING_WORKER
    assert len(assignment.claim_some(worker.pk)) == 1


def test_a_session_that_its_owner_gives_back_stays_paused(session: McpSession) -> None:
    lease = make_hold(session)
    lifecycle.connecting(lease, 1, 0)
    lifecycle.ready(lease, make_greeting())
    session_pausing.pause(ADA, session)
    assert row().state == SessionState.READY
    lifecycle.disconnected(lease)
    lifecycle.release(lease)
    assert (row().owner, row().condition) == (None, SessionCondition.PAUSED)


def test_calls_that_wait_are_cancelled_by_a_pause_and_those_that_came_with_it_by_the_tick(session: McpSession) -> None:
    before = make_call(session)
    session_pausing.pause(ADA, session)
    assert writer_module.writer().submit_and_wait(lambda: True, timeout=5)
    assert Call.objects.get(pk=before.pk).state == CallState.CANCELLED
    late = make_call(session)
    assert [event.call_uid for event in due_calls.expire()] == [late.uid]
    assert "paused" in Call.objects.get(pk=late.pk).detail


def test_calls_that_wait_are_cancelled_by_the_one_who_disconnects(session: McpSession) -> None:
    before = [make_call(session) for _ in range(final_states.BATCH + 1)]
    assert session_pausing.disconnect(ADA, session)
    assert writer_module.writer().submit_and_wait(lambda: True, timeout=20)
    ended = Call.objects.filter(pk__in=[call.pk for call in before])
    assert set(ended.values_list("state", flat=True)) == {CallState.CANCELLED}
    assert "disconnected before the call was sent" in ended[0].detail
    assert set(events(AuditAction.CALL_FINISH)) == {"ada"}
    assert row().desired == Desired.CLOSED


def test_a_call_that_comes_after_the_disconnect_stays(session: McpSession) -> None:
    session_pausing.disconnect(ADA, session)
    later = make_call(session)
    assert not session_pausing.disconnect(BOB, session)
    assert writer_module.writer().submit_and_wait(lambda: True, timeout=20)
    assert Call.objects.get(pk=later.pk).state == CallState.REQUESTED


def test_of_two_who_retry_one_is_heard(session: McpSession) -> None:
    waiting(session)
    assert session_pausing.retry(ADA, session)
    assert not session_pausing.retry(BOB, session)
    assert row().restart_requested == 1
    assert events(AuditAction.SESSION_RETRY) == ["ada"]


def test_after_the_try_that_was_asked_for_one_can_ask_again(session: McpSession) -> None:
    lease = waiting(session)
    session_pausing.retry(ADA, session)
    lifecycle.connecting(lease, 1, 1)
    assert not session_pausing.retry(BOB, session)
    lifecycle.backing_off(lease, Failure("timeout", "No answer."), 60)
    assert session_pausing.retry(BOB, session)


def test_a_session_without_worker_says_so_as_soon_as_it_is_wanted(session: McpSession) -> None:
    commands.close_session(ADA, session)
    assert row().condition == SessionCondition.NONE
    commands.open_session(ADA, session)
    assert row().condition == SessionCondition.WAITING_WORKER
