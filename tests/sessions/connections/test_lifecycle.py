"""Only the owner of a session changes its state, and only along the allowed transitions."""

from functools import partial

import pytest

from sessions.connections import lifecycle
from sessions.connections.lifecycle import Failure, Lease, Transition
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.mcp.core.refusals import with_words
from sessions.models import McpSession
from tests.sessions.host.make import make_call, make_greeting, make_hold, make_session, make_worker

pytestmark = pytest.mark.django_db

GREETING = make_greeting()
FAILURE = Failure("process_exited", "It ended with status 3.", "handshake", "boom")


@pytest.fixture
def lease() -> Lease:
    return make_hold(make_session())


def row(lease: Lease) -> McpSession:
    return McpSession.objects.get(pk=lease.session_id)


def test_a_session_becomes_ready_step_by_step_and_every_step_raises_its_version(lease: Lease) -> None:
    before = row(lease).version
    assert lifecycle.connecting(lease, 1, 0)
    assert lifecycle.initializing(lease)
    assert lifecycle.ready(lease, GREETING)
    found = row(lease)
    assert (found.state, found.version) == (SessionState.READY, before + 3)
    assert (found.revision, found.server_info, found.connected_at is None) == ("2025-11-25", {"name": "demo"}, False)


def test_an_owner_whose_epoch_was_overtaken_changes_nothing(lease: Lease) -> None:
    McpSession.objects.filter(pk=lease.session_id).update(epoch=lease.epoch + 1)
    before = row(lease)
    assert not lifecycle.connecting(lease, 1, 0)
    assert not lifecycle.backing_off(lease, FAILURE, 5)
    assert not lifecycle.release(lease)
    assert row(lease).version == before.version


def test_a_state_is_never_reached_from_one_that_does_not_lead_to_it(lease: Lease) -> None:
    assert not lifecycle.ready(lease, GREETING)
    assert not lifecycle.disconnecting(lease)
    assert row(lease).state == SessionState.DISCONNECTED


def test_a_change_that_is_repeated_because_its_commit_was_not_confirmed_finds_itself_made(lease: Lease) -> None:
    """Otherwise the owner would take itself for overtaken and abandon a session that is open."""
    steps = [
        partial(lifecycle.connecting, lease, 1, 0),
        partial(lifecycle.ready, lease, GREETING),
        partial(lifecycle.disconnecting, lease),
    ]
    for step in steps:
        assert step() is Transition.MADE
        before = row(lease).version
        assert step() is Transition.MADE_BEFORE
        assert row(lease).version == before
    McpSession.objects.filter(pk=lease.session_id).update(epoch=lease.epoch + 1)
    assert lifecycle.disconnecting(lease) is Transition.OVERTAKEN


def test_a_failure_is_shown_with_its_step_and_stderr_and_the_time_of_the_next_try(lease: Lease) -> None:
    lifecycle.connecting(lease, 3, 0)
    assert lifecycle.backing_off(lease, FAILURE, 30)
    found = row(lease)
    assert (found.condition, found.attempts) == (SessionCondition.BACKING_OFF, 3)
    assert (found.fault, found.fault_step, found.stderr_tail) == ("process_exited", "handshake", "boom")
    assert found.next_retry_at > found.fault_at


def test_a_session_that_is_ready_again_forgets_its_fault(lease: Lease) -> None:
    lifecycle.connecting(lease, 1, 0)
    lifecycle.backing_off(lease, FAILURE, 1)
    lifecycle.connecting(lease, 2, 0)
    lifecycle.ready(lease, GREETING)
    found = row(lease)
    assert (found.fault, found.fault_detail, found.stderr_tail, found.condition) == ("", "", "", "none")


def test_an_idle_session_stays_open_when_a_call_arrived_meanwhile(lease: Lease) -> None:
    make_call(row(lease))
    assert not lifecycle.close_when_idle(lease)
    assert row(lease).desired == Desired.OPEN


def test_an_idle_session_without_calls_is_not_wanted_any_more(lease: Lease) -> None:
    assert lifecycle.close_when_idle(lease)
    assert row(lease).desired == Desired.CLOSED


def test_a_released_session_that_is_wanted_waits_for_a_worker(lease: Lease) -> None:
    assert lifecycle.release(lease)
    found = row(lease)
    assert (found.owner, found.condition) == (None, SessionCondition.WAITING_WORKER)
    assert make_hold(found, make_worker()).epoch == lease.epoch + 1


def test_a_released_session_of_a_disabled_server_waits_for_no_one(lease: Lease) -> None:
    server = row(lease).server
    server.enabled = False
    server.save()
    lifecycle.release(lease)
    assert row(lease).condition == SessionCondition.NONE


def test_what_no_database_takes_is_replaced_in_a_servers_words(lease: Lease) -> None:
    lifecycle.connecting(lease, 1, 0)
    hostile = make_greeting(server_info={"na\0me": ["a\0b", "\ud800"]}, instructions="in\0struction")
    assert lifecycle.ready(lease, hostile)
    found = row(lease)
    assert (found.server_info, found.instructions) == ({"na\ufffdme": ["a\ufffdb", "\ufffd"]}, "in\ufffdstruction")


def test_what_was_found_out_is_kept_over_a_loss_and_forgotten_by_a_new_order_to_restart(lease: Lease) -> None:
    lifecycle.connecting(lease, 1, 0)
    lifecycle.ready(lease, GREETING)
    lifecycle.backing_off(lease, FAILURE, 5)
    lifecycle.connecting(lease, 2, 0)
    assert row(lease).remembered == GREETING.remembered
    lifecycle.ready(lease, GREETING)
    lifecycle.disconnected(lease)
    lifecycle.connecting(lease, 1, 1)
    assert row(lease).remembered == {}


def test_the_lists_that_were_cut_are_kept_with_the_limit_that_did_it(lease: Lease) -> None:
    cuts = {"tool": ["list_limit", "Only the first."]}
    lifecycle.catalog_read(lease, 0, ["one"], cuts)
    assert (row(lease).catalog_warnings, row(lease).catalog_cuts) == (["one"], cuts)


def test_what_a_server_said_when_its_session_was_lost_is_not_in_the_event_which_cannot_be_erased(lease: Lease) -> None:
    failure = Failure("http", with_words("The server answered HTTP 500.", "canary: row 17 of patients"))
    assert lifecycle.lost_event(lease, failure).details == {
        "fault": "http",
        "detail": "The server answered HTTP 500.",
        "epoch": lease.epoch,
    }
