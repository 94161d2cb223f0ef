"""A worker process heals its sessions, and the rows show it: pause, breaker, retry, hanging peers, processes."""

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from servers.audit.record import Actor
from servers.enums import AuditAction, TransportKind
from servers.models import AuditEvent
from sessions.calls import session_pausing
from sessions.connections.process_page import excess
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.mcp.core.errors import Fault
from sessions.models import ConnectionEvent, LogLine, McpSession
from tests.peers.peers import start_peer
from tests.sessions.host.conftest import ShareWorker
from tests.sessions.host.harness import (
    EFFECT_SERVER,
    Effects,
    WorkerProcess,
    await_ready,
    command_line,
    descendants,
    effect_session,
    ended,
    eventually,
    is_ready,
    scaled,
    wake,
)
from tests.sessions.host.make import make_call, make_session

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
ADA = Actor(None, "ada")


def paused(session: McpSession) -> McpSession:
    rows = McpSession.objects.filter(pk=session.pk, owner=None, condition=SessionCondition.PAUSED)
    return eventually(rows.first, 20, "the session was never given back")


def server_process(worker: WorkerProcess) -> int:
    """The pid of the effect server itself, not of a wrapper."""

    def look() -> list[int]:
        return [pid for pid in descendants(worker.pid) if command_line(pid).split("\0")[1:2] == [str(EFFECT_SERVER)]]

    return eventually(look)[-1]


def session_behind(script: str, effects: Effects, era: str = "auto") -> McpSession:
    """A session of a server that this shell script starts. In one transaction, because a worker already runs."""
    with transaction.atomic():
        session = effect_session(effects)
        server = session.server
        server.command, server.arguments, server.era = "/bin/sh", ["-c", script, server.command], era
        server.readable_paths = [str(EFFECT_SERVER)]  # a shell's script does not show what it runs
        server.save()
    return session


def lost(session: McpSession) -> AuditEvent | None:
    events = AuditEvent.objects.filter(action=AuditAction.SESSION_LOST, server_uid=session.server.uid)
    return events.order_by("-seq").first()


# --- pause -----------------------------------------------------------------------------------------------------------
def test_a_pause_lets_the_call_in_flight_end_and_keeps_the_session_closed(
    share_worker: ShareWorker, effects: Effects
) -> None:
    share_worker()
    session = effect_session(effects)
    await_ready(session)
    call = make_call(session, "slow", seconds=1.5)
    wake(call)
    eventually(lambda: effects.count("slow"))
    assert session_pausing.pause(ADA, session)
    assert ended(call).state == CallState.SUCCEEDED
    assert paused(session).state == SessionState.DISCONNECTED
    assert session_pausing.resume(ADA, session)
    await_ready(session)
    assert effects.count("started") == 2
    titles = [event.title or event.state for event in ConnectionEvent.objects.all()]
    assert titles == ["ready", "Taken", "Resume", "disconnected", "Pause", "ready", "Taken"]


def test_a_pause_that_is_taken_back_in_time_costs_nothing(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker()
    session = effect_session(effects)
    before = await_ready(session)
    call = make_call(session, "slow", seconds=2.5)
    wake(call)
    eventually(lambda: effects.count("slow"))
    session_pausing.pause(ADA, session)
    session_pausing.resume(ADA, session)
    again = make_call(session, "echo", text="still here")
    wake(again)
    assert ended(again).state == CallState.SUCCEEDED
    assert ended(call).state == CallState.SUCCEEDED
    assert McpSession.objects.get(pk=session.pk).epoch == before.epoch
    assert effects.count("started") == 1


# --- breaker and retry -----------------------------------------------------------------------------------------------
def test_a_server_that_keeps_failing_opens_the_breaker_and_a_person_closes_it(
    share_worker: ShareWorker, effects: Effects, tmp_path: Path
) -> None:
    share_worker(**scaled(0.1, ceiling=60))
    mended = tmp_path / "mended"
    script = f'test -e {mended} || exit 3; exec "$0" {EFFECT_SERVER}'
    session = session_behind(script, effects)
    waiting = McpSession.objects.filter(pk=session.pk, condition=SessionCondition.FAILING)
    row = eventually(waiting.first, 30, "the breaker never opened")
    assert row.attempts > 5
    newest, before = ConnectionEvent.objects.all()[:2]
    assert (newest.condition, before.condition) == (SessionCondition.FAILING, SessionCondition.BACKING_OFF)
    assert (before.repeats, newest.attempt) == (5, row.attempts)
    mended.touch()
    assert session_pausing.retry(ADA, session)
    await_ready(session, 20)


# --- a waiting call ---------------------------------------------------------------------------------------------------
#: the breaker opens soon, and the next attempt is then ten minutes away
FAR_AWAY = scaled(0.2, ceiling=600) | {"MCPADMIN_RECONNECT_EARLY_CEILING_SECONDS": "3000"}


def broken_session(effects: Effects, tmp_path: Path) -> McpSession:
    """A session of a server that cannot start until the file `mended` exists; each attempt adds a line to `tries`."""
    script = f'date +%s.%N >> {tmp_path}/tries; test -e {tmp_path}/mended || exit 3; exec "$0" {EFFECT_SERVER}'
    return session_behind(script, effects, era="legacy")  # no probe, which would start it twice


def far_from_the_next_try(session: McpSession) -> McpSession:
    waiting = McpSession.objects.filter(pk=session.pk, condition=SessionCondition.FAILING)
    return eventually(waiting.first, 60, "the breaker never opened")


def test_a_call_that_waits_is_a_reason_to_try_now(share_worker: ShareWorker, effects: Effects, tmp_path: Path) -> None:
    share_worker(**FAR_AWAY)
    session = broken_session(effects, tmp_path)
    far_from_the_next_try(session)
    (tmp_path / "mended").touch()
    call = make_call(session, "echo", text="hello")
    wake(call)
    assert ended(call, 30).state == CallState.SUCCEEDED


def test_however_many_calls_wait_there_is_one_try_a_second_and_the_breaker_stays_open(
    share_worker: ShareWorker, effects: Effects, tmp_path: Path
) -> None:
    share_worker(**FAR_AWAY)
    session = broken_session(effects, tmp_path)
    before = far_from_the_next_try(session).attempts
    for _ in range(30):
        wake(make_call(session, "echo", text="hello"))
    tried = McpSession.objects.filter(pk=session.pk, condition=SessionCondition.FAILING, attempts__gt=before)
    assert eventually(tried.first, 30).next_retry_at is not None
    wake(make_call(session, "echo", text="hello"))
    eventually(tried.filter(attempts__gt=before + 1).first, 30)
    times = [float(line) for line in (tmp_path / "tries").read_text().split()][before:]
    # a try notes its time when its process has started, which takes a busy machine longer now and then
    assert [later - earlier for earlier, later in pairwise(times) if later - earlier < 0.6] == []


# --- hanging peers ---------------------------------------------------------------------------------------------------
def test_a_server_process_that_hangs_is_found_and_started_again(share_worker: ShareWorker, effects: Effects) -> None:
    worker = share_worker(**scaled(0.25))
    session = effect_session(effects)
    await_ready(session)
    os.kill(server_process(worker), signal.SIGSTOP)
    assert eventually(lambda: lost(session), 60, "nobody noticed")
    assert ConnectionEvent.objects.filter(detail__contains="did not answer 2 pings").exists()
    eventually(lambda: effects.count("started") == 2 and is_ready(session), 20)


def test_a_server_behind_a_url_that_hangs_is_found_and_comes_back(share_worker: ShareWorker) -> None:
    share_worker(**scaled(0.25))
    peer = start_peer("sdk1", "all")
    try:
        session = make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url=peer.url)
        await_ready(session, 30)
        os.kill(peer.process.pid, signal.SIGSTOP)
        assert eventually(lambda: lost(session), 60, "nobody noticed")
        os.kill(peer.process.pid, signal.SIGCONT)
        await_ready(session, 60)
    finally:
        os.kill(peer.process.pid, signal.SIGCONT)
        peer.stop()


# --- processes -------------------------------------------------------------------------------------------------------
def test_what_a_servers_process_uses_is_sampled_and_gone_with_it(share_worker: ShareWorker, effects: Effects) -> None:
    worker = share_worker(**scaled(0.1))
    session = effect_session(effects)
    await_ready(session)
    row = eventually(McpSession.objects.exclude(process={}).first, 20, "never sampled")
    names = [process["name"] for process in row.process["rows"]]
    assert row.process["pid"] in descendants(worker.pid)
    assert row.process["count"] == len(names)
    assert row.process["rss"] > 1_000_000
    assert not any(str(EFFECT_SERVER) in name for name in names)
    session_pausing.pause(ADA, session)
    assert paused(session).process == {}


def test_a_server_with_too_many_processes_is_warned_of_once(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker(**scaled(0.1))
    session = session_behind(f'for n in $(seq 101); do sleep 600 & done; exec "$0" {EFFECT_SERVER}', effects)
    await_ready(session)
    row = eventually(McpSession.objects.filter(process__count__gt=100).first, 20, "never counted")
    assert len(row.process["rows"]) == 20
    words = LogLine.objects.filter(text__startswith="The server runs", level="warning")
    eventually(words.exists)
    eventually(lambda: McpSession.objects.get().process_at > row.process_at or None, 20)
    assert words.count() == 1


def test_a_server_that_uses_more_than_it_may_is_ended_and_the_page_says_why(
    share_worker: ShareWorker, effects: Effects
) -> None:
    share_worker(**scaled(0.1), MCPADMIN_STDIO_MEMORY_MIB="1")
    session = effect_session(effects)
    eventually(lambda: lost(session), 30, "it went on")
    refused = eventually(McpSession.objects.filter(fault=Fault.PROCESS_LIMIT, condition="backing_off").first)
    assert refused.fault_detail.endswith("MiB of memory; 1 are allowed.")
    assert eventually(lambda: effects.count("started") > 1, 20, "it was never started again")


def test_a_server_that_takes_more_disk_than_it_may_is_ended_and_the_page_says_why(
    share_worker: ShareWorker, effects: Effects
) -> None:
    share_worker(**scaled(0.1), MCPADMIN_STDIO_DISK_MIB="1")
    session = session_behind(f'head -c 3000000 /dev/zero >"$HOME/filled"; exec "$0" {EFFECT_SERVER}', effects)
    eventually(lambda: lost(session), 30, "it went on")
    refused = eventually(McpSession.objects.filter(fault=Fault.PROCESS_LIMIT, condition="backing_off").first)
    assert "own folders take 3 MiB of disk; 1 are allowed." in refused.fault_detail
    assert eventually(lambda: effects.count("started") > 1, 20, "it was never started again")


@pytest.mark.parametrize(
    ("rss", "count", "words"),
    [
        (3 * 1024**3, 300, ""),
        (5 * 1024**3, 1, "The server used 5,120 MiB of memory; 4,096 are allowed."),
        (1, 301, "The server ran 301 processes; 300 are allowed."),
    ],
    ids=["within", "memory", "processes"],
)
def test_the_limits_of_a_server_process_are_said_with_both_numbers(rss: int, count: int, words: str) -> None:
    assert excess(rss, count) == words


def test_without_limits_a_server_may_use_anything(settings: Any) -> None:
    settings.STDIO_MEMORY_MIB = settings.STDIO_PROCESSES = 0
    assert not excess(1 << 50, 1 << 20)
