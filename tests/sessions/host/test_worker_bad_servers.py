"""A misbehaving server gets a final state and a clear message through a real worker, and other sessions are
unharmed."""

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from servers.audit.record import SYSTEM
from servers.enums import TransportKind
from sessions.connections import commands
from sessions.enums import CallState, Desired, SessionCondition
from sessions.models import Call, McpSession
from tests.peers.peers import peer_command, run_peer
from tests.sessions.host.harness import (
    Effects,
    WorkerProcess,
    await_ready,
    effect_session,
    ended,
    eventually,
    is_ready,
    wake,
)
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def evil_url() -> Iterator[str]:
    with run_peer("evil") as url:
        yield url


def http_session(url: str, slug: str = "evil") -> McpSession:
    return make_session(slug, transport=TransportKind.STREAMABLE_HTTP, command="", url=url)


def requests_to(url: str, path: str) -> int:
    with urllib.request.urlopen(f"{url}/seen") as answer:
        return sum(one["path"] == path for one in json.load(answer))


def in_condition(session: McpSession, condition: SessionCondition) -> McpSession:
    rows = McpSession.objects.filter(pk=session.pk, condition=condition)
    return eventually(rows.first, 20, f"never {condition}: {McpSession.objects.values().get(pk=session.pk)}")


def test_a_server_that_wants_a_credential_waits_for_a_person(shared_worker: WorkerProcess, evil_url: str) -> None:
    row = in_condition(http_session(f"{evil_url}/401"), SessionCondition.NEEDS_AUTH)
    assert (row.fault, row.next_retry_at, row.attempts) == ("unauthorized", None, 1)


def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(
    shared_worker: WorkerProcess, evil_url: str
) -> None:
    """Retry-After wins over the worker's own ceiling, which is 1 s in these tests."""
    row = in_condition(http_session(f"{evil_url}/429"), SessionCondition.BACKING_OFF)
    assert row.fault == "rate_limited"
    assert (row.next_retry_at - row.fault_at).total_seconds() > 5


def test_calls_that_wait_do_not_override_when_a_server_says_to_come_back(
    shared_worker: WorkerProcess, evil_url: str
) -> None:
    session = http_session(f"{evil_url}/429")
    in_condition(session, SessionCondition.BACKING_OFF)
    before = requests_to(evil_url, "429")
    for _ in range(2):
        wake(make_call(session, "shout", text="now"))
        time.sleep(1.5)
    assert requests_to(evil_url, "429") == before
    assert in_condition(session, SessionCondition.BACKING_OFF).attempts == 1


def test_a_refused_credential_is_tried_again_because_a_firewall_may_have_refused_it(
    shared_worker: WorkerProcess, evil_url: str
) -> None:
    with transaction.atomic():
        session = http_session(f"{evil_url}/403")
        session.server.values.create(kind="header", name="Authorization", plain="Bearer right")
    row = in_condition(session, SessionCondition.BACKING_OFF)
    assert (row.fault, row.next_retry_at is not None) == ("forbidden", True)
    eventually(lambda: McpSession.objects.get(pk=session.pk).attempts > 1, 20, "never tried again")


def test_a_call_that_needs_a_credential_ends_neither_the_session_nor_the_call_that_runs(
    shared_worker: WorkerProcess, evil_url: str
) -> None:
    session = http_session(f"{evil_url}/locked")
    await_ready(session)
    slow = make_call(session, "slow", text="done")
    wake(slow)
    eventually(lambda: Call.objects.get(pk=slow.pk).sent_at, 20, "the call was never sent")
    locked = make_call(session, "locked")
    wake(locked)
    refused = ended(locked)
    assert (refused.state, refused.fault) == (CallState.FAILED, "unauthorized")
    assert ended(slow).state == CallState.SUCCEEDED
    assert is_ready(session)


def test_html_instead_of_mcp_is_said_so(shared_worker: WorkerProcess, evil_url: str) -> None:
    session = http_session(f"{evil_url}/html")
    row = in_condition(session, SessionCondition.BACKING_OFF)
    assert row.fault == "not_mcp"


def test_a_result_over_the_message_limit_fails_and_other_sessions_go_on(
    shared_worker: WorkerProcess, effects: Effects
) -> None:
    command, arguments = peer_command("evil:big")
    big = make_session("big", command=command, arguments=arguments)
    other = effect_session(effects)
    await_ready(big)
    await_ready(other)
    large, small = make_call(big, "big"), make_call(other, "echo", text="unharmed")
    wake(large)
    wake(small)
    done = ended(large)
    assert (done.state, done.fault) == (CallState.FAILED, "message_limit")
    assert "may have run" in done.detail
    assert ended(small).state == CallState.SUCCEEDED


def test_a_wanted_session_opens_at_once_by_its_task(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    McpSession.objects.update(desired=Desired.CLOSED)
    commands.open_session(SYSTEM, session)
    await_ready(session)
    commands.close_session(SYSTEM, session)
    eventually(lambda: McpSession.objects.get(pk=session.pk).owner is None)
    commands.reconnect(SYSTEM, session)
    await_ready(session)


def test_an_outcome_waits_for_a_locked_database_and_is_not_lost(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    call = make_call(session, "slow", seconds=1)
    wake(call)
    eventually(lambda: effects.count("slow"))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        eventually(lambda: "host.database_away" in shared_worker.output, 30, shared_worker.output[-2000:])
    assert ended(call).state == CallState.SUCCEEDED
    again = make_call(session, "echo", text="after the lock")
    eventually(lambda: is_ready(session))
    wake(again)
    assert ended(again).state == CallState.SUCCEEDED


def test_a_registration_that_mcpadmin_itself_cannot_load_is_said_so_and_tried_again(
    shared_worker: WorkerProcess,
) -> None:
    """As one that another version stored. Without an end it would be taken and given back, each time without a word."""
    row = in_condition(make_session("odd", network_access="nowhere"), SessionCondition.BACKING_OFF)
    assert row.fault == "internal_error"
    eventually(lambda: McpSession.objects.get(pk=row.pk).attempts > row.attempts, 20, "never tried again")
