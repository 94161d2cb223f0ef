"""A worker process opens sessions with real servers, keeps them, and closes them as the rows demand."""

import os
import signal
import sys

import pytest
from django.db import transaction
from django.db.models import F

from servers.enums import AuditAction, ConnectionPolicy, TransportKind
from servers.models import AuditEvent, Definition, Server
from sessions import hints
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import Call, LogLine, McpSession
from tests.peers.peers import closed_port
from tests.sessions.host.harness import (
    Effects,
    WorkerProcess,
    alive,
    await_ready,
    command_line,
    descendants,
    effect_session,
    ended,
    eventually,
    is_ready,
    wake,
)
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.integration


def failed(session: McpSession, fault: str) -> McpSession:
    rows = McpSession.objects.filter(pk=session.pk, fault=fault)
    return eventually(rows.first, 20, f"never {fault}: {McpSession.objects.values().get(pk=session.pk)}")


def closed(session: McpSession) -> McpSession:
    rows = McpSession.objects.filter(pk=session.pk, owner=None, state=SessionState.DISCONNECTED)
    return eventually(rows.first, 20, "the session was never closed")


def test_a_wanted_session_becomes_ready_and_shows_what_its_server_is(
    shared_worker: WorkerProcess, effects: Effects
) -> None:
    session = effect_session(effects)
    row = await_ready(session)
    assert (row.server_info["name"], row.instructions, row.era) == ("effects", "Try echo.", "legacy")
    assert (row.fault, row.condition, row.owner.node) == ("", "none", "w1@test")
    tools = Definition.objects.filter(server=session.server, removed_at=None)
    eventually(lambda: tools.filter(key="echo").exists())
    assert AuditEvent.objects.filter(action=AuditAction.SESSION_READY, server_uid=session.server.uid).count() == 1
    eventually(lambda: LogLine.objects.filter(source="server", level="warning", logger="effects").exists())
    seqs = list(LogLine.objects.order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_session_that_is_not_wanted_any_more_is_closed_and_its_child_ends(
    shared_worker: WorkerProcess, effects: Effects
) -> None:
    session = effect_session(effects)
    owner = await_ready(session).owner
    below = descendants(shared_worker.pid)
    assert below
    McpSession.objects.update(desired=Desired.CLOSED)
    hints.wake_worker(owner.uid, "session", session.uid)
    assert closed(session).condition == SessionCondition.NONE
    assert not any(alive(pid) for pid in below)


def test_closing_a_session_cancels_its_calls_and_says_why(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    call = make_call(session, "slow", seconds=30)
    wake(call)
    eventually(lambda: effects.count("slow"))
    McpSession.objects.update(desired=Desired.CLOSED)
    done = ended(call)
    assert (done.state, done.detail) == (
        "cancelled",
        "Cancelled because the session was closed. The tool may have run.",
    )
    closed(session)
    assert LogLine.objects.filter(source="host", text="Session closed.").exists()


@pytest.mark.long
def test_a_thousand_calls_at_once_wait_in_line_and_all_end(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    with transaction.atomic():
        calls = [make_call(session, "echo", lapses_in=280, text=f"number {number}.") for number in range(1000)]
    for call in calls:
        wake(call)
    eventually(lambda: not Call.objects.filter(finished_at=None).exists(), 240)
    assert Call.objects.filter(state="succeeded").count() == 1000
    assert len({line for line in effects.lines() if line.startswith("echo")}) == effects.count("echo") == 1000


def test_disabling_a_server_closes_its_session_by_the_tick_alone(
    shared_worker: WorkerProcess, effects: Effects
) -> None:
    session = effect_session(effects)
    await_ready(session)
    Server.objects.update(enabled=False)
    closed(session)
    assert effects.count("started") == 1


def test_a_server_that_dies_is_started_again(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    first = await_ready(session)
    call = make_call(session, "die")
    wake(call)
    assert ended(call).state == "outcome_unknown"
    again = eventually(lambda: (row := is_ready(session)) and row.connected_at != first.connected_at and row)
    assert again.epoch == first.epoch
    assert effects.count("started") == 2
    assert effects.count("die") == 1
    assert AuditEvent.objects.filter(action=AuditAction.SESSION_LOST, server_uid=session.server.uid).count() == 1


def test_an_order_to_reconnect_opens_a_new_connection_once(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    first = await_ready(session)
    McpSession.objects.update(restart_requested=F("restart_requested") + 1)
    eventually(lambda: (row := is_ready(session)) and row.connected_at != first.connected_at)
    row = McpSession.objects.get()
    assert (row.restart_requested, row.restart_done) == (1, 1)
    assert effects.count("started") == 2


def test_a_list_that_grows_is_read_again_by_itself(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    tools = Definition.objects.filter(server=session.server)
    eventually(lambda: tools.filter(key="grow").exists())
    call = make_call(session, "grow")
    wake(call)
    assert ended(call).state == "succeeded"
    eventually(lambda: tools.filter(key__startswith="extra-").exists())


def test_a_command_that_does_not_exist_is_tried_again_and_again_and_comes_back_when_mended(
    shared_worker: WorkerProcess, effects: Effects
) -> None:
    session = effect_session(effects)
    Server.objects.update(command="/nowhere/to/be/found")
    row = failed(session, "command_not_found")
    assert (row.condition, row.fault_step) == (SessionCondition.BACKING_OFF, "resolve")
    eventually(lambda: McpSession.objects.filter(attempts__gte=3).exists())
    Server.objects.update(command=sys.executable)
    McpSession.objects.update(restart_requested=F("restart_requested") + 1)
    assert await_ready(session).fault == ""


def test_a_command_that_exits_at_once_is_shown_with_its_last_words(shared_worker: WorkerProcess) -> None:
    code = "import sys; print('no API key given', file=sys.stderr); sys.exit(3)"
    session = make_session(command=sys.executable, arguments=["-c", code])
    row = failed(session, "process_exited")
    assert "no API key given" in row.stderr_tail
    assert row.next_retry_at is not None or row.state == SessionState.CONNECTING


def test_a_url_that_refuses_says_so_at_the_step_where_it_happened(shared_worker: WorkerProcess) -> None:
    url = f"http://127.0.0.1:{closed_port()}/mcp"
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url=url)
    assert failed(session, "connection_refused").fault_step == "connect"


def test_an_unused_session_closes_and_a_call_opens_it_again(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(
        effects, connection_policy=ConnectionPolicy.IDLE_TIMEOUT, idle_timeout_seconds=1, connect_timeout_seconds=20
    )
    await_ready(session)
    assert closed(session).desired == Desired.CLOSED
    call = make_call(session, "echo", text="wake up")
    McpSession.objects.update(desired=Desired.OPEN)
    assert ended(call).state == "succeeded"


def test_a_killed_child_is_noticed_without_any_call(shared_worker: WorkerProcess, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    child = next(pid for pid in descendants(shared_worker.pid) if "effect_server" in command_line(pid))
    os.kill(child, signal.SIGKILL)
    eventually(lambda: effects.count("started") == 2 and is_ready(session))
