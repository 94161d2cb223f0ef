"""A call is claimed once and ends once; the first answer that arrives after the end is kept as late."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.utils import timezone

from servers.audit import payloads, writer
from servers.audit.proof.notes import stamp
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, AuditOutcome, DefinitionKind
from servers.models import AgentToken, Payload
from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall, Upstream
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.models import AgentCall, Approval, Attempt, Call, McpSession, Worker
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


def test_many_waiting_calls_of_one_session_hide_none_of_another(lease: Lease) -> None:
    busy, other = McpSession.objects.get(), make_session("other")
    first, second, third = (make_call(busy).uid for _ in range(3))
    hidden = make_call(other).uid
    ids = [busy.pk, other.pk]
    assert [uid for uid, _ in claims.waiting(ids, 2)] == [first, hidden]
    assert [uid for uid, _ in claims.waiting(ids)] == [first, hidden, second, third]
    assert claims.waiting([]) == []


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
        "finished_at": stamp(call.finished_at),
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
    call = Call.objects.get()
    assert call.late_result is None
    assert set(Payload.objects.all()) == {call.arguments, call.result}


def test_of_a_call_that_has_a_late_answer_no_other_one_is_left_behind(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(pending, lease, CallOutcome(CallState.CANCELLED))
    assert claims.late(pending, lease, DONE)
    assert claims.finish(pending, lease, CallOutcome(CallState.TOOL_ERROR, "{}")) == []
    call = Call.objects.get()
    assert set(Payload.objects.all()) == {call.arguments, call.late_result}


def test_a_late_answer_is_the_row_that_was_made_for_it_before(pending: PendingCall, lease: Lease) -> None:
    claims.claim(pending, lease)
    claims.finish(pending, lease, CallOutcome(CallState.CANCELLED))
    row = claims.packed(DONE)
    assert row is not None
    assert len(claims.late(pending, lease, DONE, row)) == 1
    assert Call.objects.get().late_result == row
    assert claims.late(pending, lease, DONE, row) == [], "tried again after a commit that was not confirmed"


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
    assert (call.progress, call.progress_total, call.progress_message, call.version) == (3, 10, "three\ufffd", before)


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


# --- calls of agents ---------------------------------------------------------------------------------------------------
@pytest.fixture
def of_agent(lease: Lease) -> Call:
    """Placed with the definition as it is now."""
    session = McpSession.objects.select_related("server", "identity").get()
    store_listing(session.server, DefinitionKind.TOOL, [TOOL], timezone.now())
    user = get_user_model().objects.create_user("ann")
    token = AgentToken.objects.create(public_id="a" * 12, digest="0" * 64, user=user, name="t", expires_at=LATER)
    call = make_call(session, text="hi")
    digest = session.server.definitions.get().digest
    Call.objects.filter(pk=call.pk).update(way="agent", definition_digest=digest)
    AgentCall.objects.create(call=call, token=token, token_name="t", same="s")
    call.refresh_from_db()
    return call


TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
BROKEN = {"name": "echo", "inputSchema": {"type": "object", "required": ["other"]}}
WORDED = TOOL | {"description": "In other words."}
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def taken(call: Call, lease: Lease) -> tuple[bool, list[str]]:
    """Whether its bytes may leave, and the events."""
    with transaction.atomic():
        found = claims.take(call.uid, lease)
    assert found is not None
    return found.call is not None, [event.action.value for event in found.events]


def test_a_call_of_a_program_is_claimed_while_its_tool_is_the_one_it_was_made_with(
    of_agent: Call, lease: Lease
) -> None:
    store_listing(of_agent.server, DefinitionKind.TOOL, [WORDED], timezone.now())
    assert taken(of_agent, lease) == (True, ["call:tool:send"])


def test_a_tool_that_breaks_between_list_and_call_is_not_called(of_agent: Call, lease: Lease) -> None:
    store_listing(of_agent.server, DefinitionKind.TOOL, [BROKEN], timezone.now())
    assert taken(of_agent, lease) == (False, ["call:tool:finish"])
    of_agent.refresh_from_db()
    assert (of_agent.state, "approved the change" in of_agent.detail) == (CallState.REFUSED, True)
    assert Attempt.objects.count() == 0


def test_a_call_of_a_program_waits_until_an_announced_list_was_read(of_agent: Call, lease: Lease) -> None:
    with transaction.atomic():
        found = claims.take(of_agent.uid, lease, unread={DefinitionKind.TOOL, DefinitionKind.PROMPT})
    assert found == claims.ClaimedCall(None, [], too_early=DefinitionKind.TOOL)
    assert taken(of_agent, lease)[0]


def test_a_call_of_a_program_waits_for_no_list_that_does_not_have_its_tool(of_agent: Call, lease: Lease) -> None:
    with transaction.atomic():
        found = claims.take(of_agent.uid, lease, unread=set(DefinitionKind) - {DefinitionKind.TOOL})
    assert found is not None
    assert found.call is not None


def test_a_call_whose_token_was_revoked_is_not_sent(of_agent: Call, lease: Lease) -> None:
    AgentToken.objects.update(revoked_at=timezone.now())
    assert taken(of_agent, lease) == (False, ["call:tool:finish"])


@pytest.mark.parametrize("approved", [True, False])
def test_what_a_person_approved_is_void_when_its_definition_changed_at_all(
    of_agent: Call, lease: Lease, approved: bool
) -> None:
    if approved:
        Approval.objects.create(
            call=of_agent, same="s", why="w", state="approved", created_at=timezone.now(), expires_at=LATER
        )
    store_listing(of_agent.server, DefinitionKind.TOOL, [WORDED], timezone.now())
    sent, actions = taken(of_agent, lease)
    assert sent is not approved
    if approved:
        assert actions == ["inbox:approval:void", "call:tool:finish"]
        assert Approval.objects.get().state == "voided"
