"""Status changes of a session: only its owner makes them, in the order of the protocol's states."""

import pytest

from sessions.domain import lifecycle
from sessions.domain.lifecycle import Failure, Hold
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import McpSession
from tests.sessions.host.make import make_call, make_greeting, make_hold, make_session, make_worker

pytestmark = pytest.mark.django_db

GREETING = make_greeting()
FAILURE = Failure("process_exited", "It ended with status 3.", "handshake", "boom")


@pytest.fixture
def hold() -> Hold:
    return make_hold(make_session())


def row(hold: Hold) -> McpSession:
    return McpSession.objects.get(pk=hold.session_id)


def test_a_session_becomes_ready_step_by_step_and_every_step_raises_its_version(hold: Hold) -> None:
    before = row(hold).version
    assert lifecycle.connecting(hold, 1, 0)
    assert lifecycle.initializing(hold)
    assert lifecycle.ready(hold, GREETING)
    found = row(hold)
    assert (found.state, found.version) == (SessionState.READY, before + 3)
    assert (found.revision, found.server_info, found.connected_at is None) == ("2025-11-25", {"name": "demo"}, False)


def test_an_owner_whose_epoch_was_overtaken_changes_nothing(hold: Hold) -> None:
    McpSession.objects.filter(pk=hold.session_id).update(epoch=hold.epoch + 1)
    before = row(hold)
    assert not lifecycle.connecting(hold, 1, 0)
    assert not lifecycle.backing_off(hold, FAILURE, 5)
    assert not lifecycle.release(hold)
    assert row(hold).version == before.version


def test_a_state_is_never_reached_from_one_that_does_not_lead_to_it(hold: Hold) -> None:
    assert not lifecycle.ready(hold, GREETING)
    assert not lifecycle.disconnecting(hold)
    assert row(hold).state == SessionState.DISCONNECTED


def test_a_failure_is_shown_with_its_step_and_stderr_and_the_time_of_the_next_try(hold: Hold) -> None:
    lifecycle.connecting(hold, 3, 0)
    assert lifecycle.backing_off(hold, FAILURE, 30)
    found = row(hold)
    assert (found.condition, found.attempts) == (SessionCondition.BACKING_OFF, 3)
    assert (found.fault, found.fault_step, found.stderr_tail) == ("process_exited", "handshake", "boom")
    assert found.next_retry_at > found.fault_at


def test_a_session_that_is_ready_again_forgets_its_fault(hold: Hold) -> None:
    lifecycle.connecting(hold, 1, 0)
    lifecycle.backing_off(hold, FAILURE, 1)
    lifecycle.connecting(hold, 2, 0)
    lifecycle.ready(hold, GREETING)
    found = row(hold)
    assert (found.fault, found.fault_detail, found.stderr_tail, found.condition) == ("", "", "", "none")


def test_an_idle_session_stays_open_when_a_call_arrived_meanwhile(hold: Hold) -> None:
    make_call(row(hold))
    assert not lifecycle.close_when_idle(hold)
    assert row(hold).desired == Desired.OPEN


def test_an_idle_session_without_calls_is_not_wanted_any_more(hold: Hold) -> None:
    assert lifecycle.close_when_idle(hold)
    assert row(hold).desired == Desired.CLOSED


def test_a_released_session_that_is_wanted_waits_for_a_worker(hold: Hold) -> None:
    assert lifecycle.release(hold)
    found = row(hold)
    assert (found.owner, found.condition) == (None, SessionCondition.WAITING_WORKER)
    assert make_hold(found, make_worker()).epoch == hold.epoch + 1


def test_a_released_session_of_a_disabled_server_waits_for_nobody(hold: Hold) -> None:
    server = row(hold).server
    server.enabled = False
    server.save()
    lifecycle.release(hold)
    assert row(hold).condition == SessionCondition.NONE


def test_what_no_database_takes_is_taken_out_of_a_servers_words(hold: Hold) -> None:
    lifecycle.connecting(hold, 1, 0)
    hostile = make_greeting(server_info={"na\0me": ["a\0b", "\ud800"]}, instructions="in\0struction")
    assert lifecycle.ready(hold, hostile)
    found = row(hold)
    assert (found.server_info, found.instructions) == ({"name": ["ab", "?"]}, "instruction")


def test_what_was_found_out_is_kept_over_a_loss_and_forgotten_by_a_new_order_to_restart(hold: Hold) -> None:
    lifecycle.connecting(hold, 1, 0)
    lifecycle.ready(hold, GREETING)
    lifecycle.backing_off(hold, FAILURE, 5)
    lifecycle.connecting(hold, 2, 0)
    assert row(hold).remembered == GREETING.remembered
    lifecycle.ready(hold, GREETING)
    lifecycle.disconnected(hold)
    lifecycle.connecting(hold, 1, 1)
    assert row(hold).remembered == {}


def test_the_lists_that_were_cut_are_kept_with_the_limit_that_did_it(hold: Hold) -> None:
    cuts = {"tool": ["list_limit", "Only the first."]}
    lifecycle.catalog_read(hold, 0, ["one"], cuts)
    assert (row(hold).catalog_warnings, row(hold).catalog_cuts) == (["one"], cuts)
