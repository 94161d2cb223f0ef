"""A call is claimed once and ends once; the first answer that arrives after the end is kept as late."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db import connection, transaction

from servers.audit import payloads, writer
from servers.enums import AuditAction, AuditOutcome
from servers.models import Payload
from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall, Upstream
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.models import Attempt, Call, McpSession, Worker
from tests.sessions.host.make import make_call, make_hold, make_session

pytestmark = pytest.mark.django_db
DONE = CallOutcome(CallState.SUCCEEDED, '{"content":[]}')


@pytest.fixture
def lease() -> Lease:
    return make_hold(make_session())


@pytest.fixture
def pending(lease: Lease) -> PendingCall:
    return ordered(make_call(McpSession.objects.get(), text="hi"))


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writer.reset()


def ordered(call: Call) -> PendingCall:
    pending = claims.read_pending_call(call.uid)
    assert pending is not None
    return pending


def test_a_claim_writes_the_first_attempt_and_names_caller_and_digest(pending: PendingCall, lease: Lease) -> None:
    (event,) = claims.claim(pending, lease)
    call = Call.objects.get()
    assert (call.state, call.epoch, call.worker_uid) == (CallState.SENT, lease.epoch, lease.worker_uid)
    assert list(Attempt.objects.values_list("number", "reason")) == [(1, "first")]
    assert (event.action, event.outcome, event.actor.name) == (AuditAction.CALL_SEND, AuditOutcome.PENDING, "ada")
    assert event.digests == {"arguments": call.arguments.digest}


def test_a_second_claim_of_the_same_call_finds_nothing(pending: PendingCall, lease: Lease) -> None:
    assert claims.claim(pending, lease)
    assert claims.claim(pending, lease) == []
    assert Attempt.objects.count() == 1


def test_a_call_is_read_and_claimed_at_once_and_only_once(pending: PendingCall, lease: Lease) -> None:
    taken = claims.take(pending.uid, lease)
    assert taken is not None
    assert taken.call.sent_at == Call.objects.get().sent_at
    assert replace(taken.call, sent_at=None) == pending
    assert [event.action for event in taken.events] == [AuditAction.CALL_SEND]
    assert claims.take(pending.uid, lease) is None
    assert Attempt.objects.count() == 1


def test_a_ring_that_names_another_session_of_the_same_worker_takes_nothing(pending: PendingCall, lease: Lease) -> None:
    other = make_hold(make_session("other"), Worker.objects.get())
    assert (other.worker_id, other.epoch) == (lease.worker_id, lease.epoch)
    assert claims.take(pending.uid, other) is None
    assert Call.objects.get().state == CallState.REQUESTED


def test_a_worker_that_lost_the_session_cannot_claim_its_calls(pending: PendingCall, lease: Lease) -> None:
    McpSession.objects.update(epoch=lease.epoch + 1)
    assert claims.claim(pending, lease) == []
    assert Call.objects.get().state == CallState.REQUESTED


def test_a_call_past_its_deadline_is_neither_read_nor_claimed(lease: Lease) -> None:
    late = make_call(McpSession.objects.get(), lapses_in=-1)
    assert claims.read_pending_call(late.uid) is None
    assert claims.waiting([late.session_id]) == []


def test_a_cancelled_call_is_not_sent(pending: PendingCall, lease: Lease) -> None:
    Call.objects.update(state=CallState.CANCELLED)
    assert claims.claim(pending, lease) == []


def test_the_end_states_duration_sizes_and_wire_in_row_and_event(pending: PendingCall, lease: Lease) -> None:
    taken = claims.take(pending.uid, lease)
    assert taken is not None
    upstream = Upstream("17", "", "legacy", "2025-11-25")
    (event,) = claims.finish(taken.call, lease, CallOutcome(CallState.SUCCEEDED, '{"a": 1}', upstream=upstream))
    call = Call.objects.get()
    assert call.finished_at is not None
    assert call.sent_at is not None
    assert call.duration_ms == round((call.finished_at - call.sent_at).total_seconds() * 1000)
    assert call.total_bytes == call.arguments.size + 8
    assert event.context == {
        "session": str(lease.session_uid),
        "epoch": lease.epoch,
        "bytes_in": call.arguments.size,
        "bytes_out": 8,
        "duration_ms": call.duration_ms,
        **vars(upstream),
    }


def test_an_outcome_is_stored_with_its_result_and_event(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    (event,) = claims.finish(pending, lease, DONE)
    call = Call.objects.get()
    assert (call.state, payloads.read(call.result)) == (CallState.SUCCEEDED, '{"content":[]}')
    assert (event.outcome, event.digests["result"]) == (AuditOutcome.OK, call.result.digest)


def test_a_call_ends_once_and_an_answer_after_that_is_kept_as_late(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(pending, lease, CallOutcome(CallState.OUTCOME_UNKNOWN, fault="timeout", detail="No answer."))
    (event,) = claims.finish(pending, lease, DONE)
    call = Call.objects.get()
    assert (call.state, call.result) == (CallState.OUTCOME_UNKNOWN, None)
    assert payloads.read(call.late_result) == '{"content":[]}'
    assert event.details == {"method": "tools/call", "late": True, "answer": "succeeded"}


def test_an_outcome_written_twice_after_an_unclear_commit_is_not_late(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(pending, lease, DONE)
    assert claims.finish(pending, lease, DONE) == []
    assert Call.objects.get().late_result is None


def test_only_the_first_late_answer_is_kept(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(pending, lease, CallOutcome(CallState.CANCELLED))
    assert claims.late(pending, lease, DONE)
    before = Payload.objects.count()
    assert claims.late(pending, lease, DONE) == []
    assert Payload.objects.count() == before


def test_a_further_attempt_is_recorded_only_while_the_call_runs(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    assert claims.attempt(pending, lease, 2, "session_gone")
    claims.finish(pending, lease, DONE)
    assert claims.attempt(pending, lease, 3, "session_gone") == []
    assert list(Attempt.objects.values_list("number", "reason")) == [(1, "first"), (2, "session_gone")]


def test_progress_is_kept_on_the_row_without_a_new_version(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    before = Call.objects.get().version
    claims.progressed(pending, lease, 3, 10, "three\0")
    call = Call.objects.get()
    assert (call.progress, call.progress_total, call.progress_message, call.version) == (3, 10, "three", before)


def test_an_error_of_the_server_keeps_code_message_and_data(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(
        pending, lease, CallOutcome(CallState.RPC_ERROR, error_code=-32602, error_message="no", error_data='{"a":1}')
    )
    call = Call.objects.get()
    assert (call.error_code, call.error_message, call.error_data) == (-32602, "no", '{"a":1}')


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_the_same_moment_one_wins(pending: PendingCall, lease: Lease) -> None:
    barrier, won = threading.Barrier(8), []

    def claim() -> None:
        barrier.wait()
        try:
            with transaction.atomic():
                won.append(len(claims.claim(pending, lease)))
        finally:
            connection.close()

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == [0] * 7 + [1]
    assert Attempt.objects.count() == 1
