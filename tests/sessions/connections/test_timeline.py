"""The connection timeline keeps events in order, folds repeats into one line, and is bounded."""

import pytest

from sessions.connections import lifecycle, timeline
from sessions.connections.lifecycle import Failure, Lease
from sessions.enums import SessionCondition, SessionState
from sessions.housekeeping import dead_workers
from sessions.models import ConnectionEvent, McpSession
from tests.sessions.host.make import make_greeting, make_hold, make_session, make_worker

pytestmark = pytest.mark.django_db

REFUSED = Failure("connection_refused", "Nothing is listening there.", "connect")
EXITED = Failure("process_exited", "It ended with status 3.", "handshake", "boom")


@pytest.fixture
def lease() -> Lease:
    return make_hold(make_session())


def told(lease: Lease) -> list[tuple[str, str, int]]:
    """(condition or state, detail, repeats) of each line, newest first, without the claim."""
    lines = ConnectionEvent.objects.filter(session_id=lease.session_id).exclude(title="Taken")
    return [(line.state if line.condition == "none" else line.condition, line.detail, line.repeats) for line in lines]


def fail(lease: Lease, failure: Failure = REFUSED, attempt: int = 1) -> None:
    lifecycle.connecting(lease, attempt, 0)
    lifecycle.backing_off(lease, failure, 5)


def be_ready(lease: Lease) -> None:
    lifecycle.connecting(lease, 1, 0)
    lifecycle.ready(lease, make_greeting())


def test_an_attempt_under_way_is_a_line_that_becomes_its_outcome(lease: Lease) -> None:
    lifecycle.connecting(lease, 1, 0)
    assert told(lease) == [("connecting", "", 1)]
    lifecycle.ready(lease, make_greeting())
    assert told(lease) == [("ready", "Revision 2025-11-25 over stdio.", 1)]


def test_the_same_failure_again_is_one_line_with_a_count_the_last_attempt_and_its_next_try(lease: Lease) -> None:
    for attempt in (1, 2, 3):
        fail(lease, attempt=attempt)
    assert told(lease) == [("backing_off", "Nothing is listening there.", 3)]
    line = ConnectionEvent.objects.first()
    assert line is not None
    assert (line.attempt, line.fault, line.step) == (3, "connection_refused", "connect")
    assert line.next_retry_at == McpSession.objects.get().next_retry_at
    assert line.last_at > line.at


def test_another_failure_is_another_line(lease: Lease) -> None:
    fail(lease)
    fail(lease, EXITED, 2)
    assert [detail for _, detail, _ in told(lease)] == ["It ended with status 3.", "Nothing is listening there."]


def test_a_server_that_comes_and_goes_is_two_lines_with_a_count(lease: Lease) -> None:
    for _ in range(5):
        be_ready(lease)
        lifecycle.backing_off(lease, EXITED, 5)
    assert [(what, times) for what, _, times in told(lease)] == [("backing_off", 5), ("ready", 5)]


def test_numbers_have_no_gaps_whatever_was_folded(lease: Lease) -> None:
    for number in range(6):
        fail(lease, attempt=number)
        be_ready(lease)
        timeline.note(lease.session_id, "Note", f"Note {number}")
        lifecycle.backing_off(lease, EXITED, 5)
    numbers = list(ConnectionEvent.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_ring_keeps_the_newest_two_hundred(lease: Lease) -> None:
    for number in range(timeline.KEPT + 3 * timeline.TRIM_EVERY):
        timeline.note(lease.session_id, "Note", f"Note {number}")
    kept = ConnectionEvent.objects.filter(session_id=lease.session_id)
    assert timeline.KEPT <= kept.count() < timeline.KEPT + timeline.TRIM_EVERY
    assert kept[0].detail == f"Note {timeline.KEPT + 3 * timeline.TRIM_EVERY - 1}"


def test_who_held_it_and_how_it_was_lost_is_reported() -> None:
    worker = make_worker(silent_for=60)
    lease = make_hold(make_session(), worker)
    be_ready(lease)
    dead_workers.reap([worker])
    lost, ready, taken = ConnectionEvent.objects.all()
    assert (lost.condition, lost.detail) == (
        SessionCondition.WAITING_WORKER,
        "This session's worker is gone.",
    )
    assert (lost.worker, ready.worker, taken.title) == (worker.node, worker.node, "Taken")
    assert lost.epoch == ready.epoch + 1


def test_an_owner_that_was_overtaken_writes_no_line(lease: Lease) -> None:
    McpSession.objects.update(epoch=lease.epoch + 1)
    before = ConnectionEvent.objects.count()
    lifecycle.connecting(lease, 1, 0)
    assert ConnectionEvent.objects.count() == before


def test_openings_after_the_first_are_counted_as_restarts(lease: Lease) -> None:
    for _ in range(3):
        be_ready(lease)
        lifecycle.backing_off(lease, EXITED, 5)
    assert McpSession.objects.get().restarts == 2


def test_a_closed_breaker_and_an_open_one_are_distinguished(lease: Lease) -> None:
    fail(lease)
    lifecycle.connecting(lease, 2, 0)
    lifecycle.backing_off(lease, REFUSED, 60, breaker_open=True)
    assert [what for what, _, _ in told(lease)] == ["failing", "backing_off"]
    assert McpSession.objects.get().state == SessionState.DISCONNECTED
