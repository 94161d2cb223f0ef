"""A call is claimed once, ends once, and what comes later is kept as late."""

import threading
from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from servers.audit import payloads, writer
from servers.enums import AuditAction, AuditOutcome
from servers.models import Payload
from sessions.domain import claims
from sessions.domain.claims import Order, Outcome
from sessions.domain.lifecycle import Hold
from sessions.enums import CallState
from sessions.models import Attempt, Call, McpSession, Worker
from tests.sessions.host.make import make_call, make_hold, make_session

pytestmark = pytest.mark.django_db
DONE = Outcome(CallState.SUCCEEDED, '{"content":[]}')


@pytest.fixture
def hold() -> Hold:
    return make_hold(make_session())


@pytest.fixture
def order(hold: Hold) -> Order:
    return ordered(make_call(McpSession.objects.get(), text="hi"))


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writer.reset()


def ordered(call: Call) -> Order:
    order = claims.read_order(call.uid)
    assert order is not None
    return order


def test_a_claim_writes_the_first_attempt_and_names_caller_and_digest(order: Order, hold: Hold) -> None:
    (event,) = claims.claim(order, hold)
    call = Call.objects.get()
    assert (call.state, call.epoch, call.worker_uid) == (CallState.SENT, hold.epoch, hold.worker_uid)
    assert list(Attempt.objects.values_list("number", "reason")) == [(1, "first")]
    assert (event.action, event.outcome, event.actor.name) == (AuditAction.CALL_SEND, AuditOutcome.PENDING, "ada")
    assert event.digests == {"arguments": call.arguments.digest}


def test_a_second_claim_of_the_same_call_finds_nothing(order: Order, hold: Hold) -> None:
    assert claims.claim(order, hold)
    assert claims.claim(order, hold) == []
    assert Attempt.objects.count() == 1


def test_a_call_is_read_and_claimed_at_once_and_only_once(order: Order, hold: Hold) -> None:
    taken = claims.take(order.uid, hold)
    assert taken is not None
    assert (taken.order, [event.action for event in taken.events]) == (order, [AuditAction.CALL_SEND])
    assert claims.take(order.uid, hold) is None
    assert Attempt.objects.count() == 1


def test_a_ring_that_names_another_session_of_the_same_worker_takes_nothing(order: Order, hold: Hold) -> None:
    other = make_hold(make_session("other"), Worker.objects.get())
    assert (other.worker_id, other.epoch) == (hold.worker_id, hold.epoch)
    assert claims.take(order.uid, other) is None
    assert Call.objects.get().state == CallState.REQUESTED


def test_a_worker_that_lost_the_session_cannot_claim_its_calls(order: Order, hold: Hold) -> None:
    McpSession.objects.update(epoch=hold.epoch + 1)
    assert claims.claim(order, hold) == []
    assert Call.objects.get().state == CallState.REQUESTED


def test_a_call_past_its_deadline_is_neither_read_nor_claimed(hold: Hold) -> None:
    late = make_call(McpSession.objects.get(), lapses_in=-1)
    assert claims.read_order(late.uid) is None
    assert claims.waiting([late.session_id]) == []


def test_a_cancelled_call_is_not_sent(order: Order, hold: Hold) -> None:
    Call.objects.update(state=CallState.CANCELLED)
    assert claims.claim(order, hold) == []


def test_an_outcome_is_stored_with_its_result_and_event(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    (event,) = claims.finish(order, hold, DONE)
    call = Call.objects.get()
    assert (call.state, payloads.read(call.result)) == (CallState.SUCCEEDED, '{"content":[]}')
    assert (event.outcome, event.digests["result"]) == (AuditOutcome.OK, call.result.digest)


def test_a_call_ends_once_and_an_answer_after_that_is_kept_as_late(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    claims.finish(order, hold, Outcome(CallState.OUTCOME_UNKNOWN, fault="timeout", detail="No answer."))
    (event,) = claims.finish(order, hold, DONE)
    call = Call.objects.get()
    assert (call.state, call.result) == (CallState.OUTCOME_UNKNOWN, None)
    assert payloads.read(call.late_result) == '{"content":[]}'
    assert event.details == {"method": "tools/call", "late": True, "answer": "succeeded"}


def test_an_outcome_written_twice_after_an_unclear_commit_is_not_late(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    claims.finish(order, hold, DONE)
    assert claims.finish(order, hold, DONE) == []
    assert Call.objects.get().late_result is None


def test_only_the_first_late_answer_is_kept(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    claims.finish(order, hold, Outcome(CallState.CANCELLED))
    assert claims.late(order, hold, DONE)
    before = Payload.objects.count()
    assert claims.late(order, hold, DONE) == []
    assert Payload.objects.count() == before


def test_a_further_attempt_is_recorded_only_while_the_call_runs(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    assert claims.attempt(order, hold, 2, "session_gone")
    claims.finish(order, hold, DONE)
    assert claims.attempt(order, hold, 3, "session_gone") == []
    assert list(Attempt.objects.values_list("number", "reason")) == [(1, "first"), (2, "session_gone")]


def test_progress_is_kept_on_the_row_without_a_new_version(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    before = Call.objects.get().version
    claims.progressed(order, hold, 3, 10, "three\0")
    call = Call.objects.get()
    assert (call.progress, call.progress_total, call.progress_message, call.version) == (3, 10, "three", before)


def test_an_error_of_the_server_keeps_code_message_and_data(order: Order, hold: Hold) -> None:
    claims.claim(order, hold)
    claims.finish(
        order, hold, Outcome(CallState.RPC_ERROR, error_code=-32602, error_message="no", error_data='{"a":1}')
    )
    call = Call.objects.get()
    assert (call.error_code, call.error_message, call.error_data) == (-32602, "no", '{"a":1}')


@pytest.mark.django_db(transaction=True)
def test_of_many_claims_at_the_same_moment_one_wins(order: Order, hold: Hold) -> None:
    barrier, won = threading.Barrier(8), []

    def claim() -> None:
        barrier.wait()
        try:
            with transaction.atomic():
                won.append(len(claims.claim(order, hold)))
        finally:
            connection.close()

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(won) == [0] * 7 + [1]
    assert Attempt.objects.count() == 1
