"""Children: how they start, speak, fail and end. Every server here is a real process."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from sessions.protocol.errors import Fault, LaunchError, McpError, NotReady, ProtocolError, TransportError
from sessions.protocol.events import (
    DiagnosticLine,
    EventsDropped,
    LateAnswer,
    LogMessage,
    ProtocolViolation,
    RequestRefused,
)
from sessions.protocol.limits import Limits
from sessions.protocol.results import Timeouts
from sessions.protocol.state import State
from sessions.transports.registry import StdioSpec
from sessions.transports.stdio import Isolation, isolation, prepare_loop

from .making import SMALL, Made, connected, script, unconnected
from .processes import children, descendants, gone

pytestmark = pytest.mark.integration


def text(result: object) -> str:
    return str(result.content[0]["text"])  # type: ignore[attr-defined]  # ToolResult of our own servers


async def call(made: Made, name: str, **arguments: object) -> str:
    return text(await made.client.call_tool(name, arguments))


async def test_a_call_goes_to_the_child_and_comes_back() -> None:
    async with connected(script("server")) as made:
        assert made.connected.transport == "stdio"
        assert made.connected.server_info == {"name": "script", "version": "1"}
        assert await call(made, "echo", text="a\u2028b\nc ü") == "a\u2028b\nc ü"
        assert made.client.in_flight == 0


async def test_a_child_gets_four_names_of_ours_and_what_was_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "canary")
    monkeypatch.setenv("TZ", "UTC")
    spec = script("server", env=lambda: {"TOKEN": "t0k3n", "HOME": "/nowhere"})
    assert "t0k3n" not in repr(spec)
    async with connected(spec) as made:
        env = json.loads(await call(made, "env"))
    assert set(env) <= {"PATH", "HOME", "LANG", "TZ", "TOKEN", "LC_CTYPE"}
    assert (env["TOKEN"], env["HOME"], env["TZ"]) == ("t0k3n", "/nowhere", "UTC")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (StdioSpec("no-such-command-anywhere"), Fault.COMMAND_NOT_FOUND),
        (StdioSpec("/no/such/file"), Fault.COMMAND_NOT_FOUND),
        (StdioSpec(""), Fault.COMMAND_NOT_FOUND),
        (StdioSpec(__file__), Fault.SPAWN_FAILED),
        (StdioSpec(sys.executable, cwd="/no/such/folder"), Fault.SPAWN_FAILED),
        (StdioSpec(sys.executable, ("a\0b",)), Fault.SPAWN_FAILED),
        (StdioSpec("python3", env=lambda: {"PATH": "/no/such/folder"}), Fault.COMMAND_NOT_FOUND),
    ],
)
async def test_a_command_that_cannot_start_has_its_own_fault(spec: StdioSpec, fault: Fault) -> None:
    before = children()
    client = unconnected(spec)
    with pytest.raises(LaunchError) as caught:
        await client.connect()
    assert (caught.value.fault, caught.value.may_have_run) == (fault, False)
    assert client.state is State.DISCONNECTED
    assert client.closed.result() is caught.value
    assert children() == before


async def test_a_relative_command_is_found_from_its_working_directory(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).parent}/stdio_scripts/server.py\n")
    program.chmod(0o755)
    async with connected(StdioSpec("./serve", cwd=str(tmp_path))) as made:
        assert await call(made, "echo", text="here") == "here"


async def test_a_command_that_exits_at_once_is_told_with_its_code_and_last_words() -> None:
    client = unconnected(script("first_words", "exit"))
    with pytest.raises(TransportError) as caught:
        await client.connect()
    error = caught.value
    assert (error.fault, error.exit_code, error.stderr_tail) == (Fault.PROCESS_EXITED, 3, "no licence found")


async def test_a_server_that_prints_to_stdout_is_given_up_with_that_reason() -> None:
    events: list[object] = []
    client = unconnected(script("first_words", "noise"), events)  # type: ignore[arg-type]  # a wider list is fine
    with pytest.raises(TransportError) as caught:
        await client.connect()
    assert caught.value.fault is Fault.STDOUT_NOISE
    assert DiagnosticLine("stdout", "log line 0") in events


async def test_a_server_dead_after_the_probe_is_started_afresh_and_used() -> None:
    async with connected(script("server", "dies-at-probe"), timeouts=Timeouts(probe=0.3)) as made:
        assert "timeout" in made.connected.decided_by
        assert await call(made, "echo", text="x") == "x"


async def test_one_byte_that_is_no_utf8_ends_the_wait_at_once() -> None:
    client = unconnected(script("first_words", "not-utf8"), era="legacy")
    with pytest.raises(ProtocolError) as caught:
        await client.connect()
    assert caught.value.fault is Fault.INVALID_MESSAGE


async def test_a_child_that_exits_during_a_call_fails_it_with_code_and_stderr() -> None:
    async with connected(script("server")) as made:
        slow = asyncio.create_task(made.client.call_tool("hang", {}))
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("exit", {})
        error = caught.value
        assert (error.fault, error.exit_code, error.may_have_run) == (Fault.PROCESS_EXITED, 7, True)
        assert "dying words" in error.stderr_tail
        with pytest.raises(TransportError):
            await slow
        reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.PROCESS_EXITED
        assert made.client.state is State.DISCONNECTED
        with pytest.raises(NotReady):
            await made.client.call_tool("echo", {})


async def test_a_child_that_closes_its_output_is_lost() -> None:
    """In a PID namespace the wrapper holds the pipe open, so that only the deadline tells."""
    client = unconnected(script("first_words", "closes-output"), era="legacy", timeouts=Timeouts(initialize=1.5))
    with pytest.raises(TransportError) as caught:
        await client.connect()
    wrapped = (await isolation()) in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER)
    assert caught.value.fault is (Fault.TIMEOUT if wrapped else Fault.CONNECTION_LOST)


async def test_a_result_over_the_limit_fails_its_call_alone() -> None:
    async with connected(script("server", limits=SMALL)) as made:
        other = asyncio.create_task(made.client.call_tool("sleep", {"seconds": 0.3}))
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("oversized", {"bytes": 200_000})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.MESSAGE_LIMIT, True)
        assert text(await other) == "slept"
        assert await call(made, "echo", text="still here") == "still here"


async def test_a_message_over_the_limit_that_names_no_request_ends_the_session() -> None:
    async with connected(script("server", limits=SMALL)) as made:
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("anonymous-oversized", {"bytes": 200_000})
        assert caught.value.fault is Fault.MESSAGE_LIMIT
        reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":"\xff"}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":' + "[" * 5000 + "]" * 5000 + "}}", Fault.DEPTH_LIMIT),
        ('{"jsonrpc":"2.0","id":ID,"result":"no object"}', Fault.INVALID_MESSAGE),
    ],
)
async def test_an_unreadable_answer_fails_its_call_at_once_and_alone(line: str, fault: Fault) -> None:
    async with connected(script("server")) as made:
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("broken", {"line": line})
        assert (caught.value.fault, caught.value.may_have_run) == (fault, True)
        assert made.of(ProtocolViolation)
        assert await call(made, "echo", text="alive") == "alive"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_cancelling_the_task_tells_the_server_which_request(era: str) -> None:
    async with connected(script("server", era)) as made:
        assert made.connected.era == era
        waiting = asyncio.create_task(made.client.call_tool("hang", {}))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made.client.in_flight == 0
        for _ in range(50):
            cancelled = json.loads(await call(made, "cancelled"))
            if cancelled:
                break
        assert cancelled[0][0] == "cancelled"


async def test_a_call_out_of_time_is_cancelled_at_the_server_and_its_answer_is_late() -> None:
    async with connected(script("server")) as made:
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("sleep", {"seconds": 0.6}, timeout=0.1, tag="my call")
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, True)
        await call(made, "sleep", seconds=0.8)
        assert [kind for kind, _ in json.loads(await call(made, "cancelled"))] == ["cancelled"]
        assert [event.tag for event in made.of(LateAnswer)] == ["my call"]


async def test_progress_keeps_a_call_alive_beyond_its_idle_time_but_not_beyond_the_total() -> None:
    async with connected(script("server")) as made:
        seen: list[float] = []
        result = await made.client.call_tool(
            "progress", {}, timeout=0.4, on_progress=lambda value, total, message: seen.append(value)
        )
        assert text(result) == "done"
        assert seen == [1.0, 2.0, 3.0]
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool(
                "progress", {}, timeout=0.4, total_timeout=0.3, on_progress=lambda value, total, message: None
            )
        assert caught.value.fault is Fault.TOTAL_DEADLINE


async def test_an_intent_that_cannot_be_written_sends_nothing() -> None:
    async def refuse(attempt: int, reason: str) -> None:
        raise RuntimeError("the ledger is locked")

    async with connected(script("server")) as made:
        with pytest.raises(RuntimeError, match="locked"):
            await made.client.call_tool("exit", {}, before_send=refuse)
        assert made.client.in_flight == 0
        assert await call(made, "echo", text="alive") == "alive"


async def test_each_attempt_is_announced_before_its_bytes_leave() -> None:
    attempts: list[tuple[int, str]] = []

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))

    async with connected(script("server")) as made:
        result = await made.client.call_tool("echo", {"text": "x"}, before_send=note)
    assert attempts == [(1, "first")]
    assert result.attempts == 1


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
async def test_what_was_not_declared_is_refused_during_a_call(method: str) -> None:
    async with connected(script("server")) as made:
        reply = json.loads(await call(made, "ask", method=method))
        assert reply["error"]["code"] == -32601
        assert made.of(RequestRefused) == [RequestRefused(method, -32601)]


async def test_a_flood_of_notifications_is_cut_counted_and_harms_no_call() -> None:
    limits = Limits(events_per_second=10, events_burst=20)
    async with connected(script("server", limits=limits)) as made:
        assert await call(made, "flood", lines=5_000) == "flooded"
    logs = len(made.of(LogMessage))
    dropped = sum(event.count for event in made.of(EventsDropped))
    assert 20 <= logs < 1_000
    assert logs + dropped == 5_000


async def test_a_flood_of_stderr_waits_for_us_and_harms_no_call() -> None:
    async with connected(script("server")) as made:
        await call(made, "chatter")
        await asyncio.sleep(2)
        before = int(await call(made, "chattered"))
        await asyncio.sleep(2)
        after = int(await call(made, "chattered"))
    # Read at full speed it would be hundreds of megabytes a second.
    assert 0 < after - before < 16 * 1024 * 1024


async def test_a_handler_that_fails_does_not_stop_the_reader() -> None:
    def fail(event: object) -> None:
        raise RuntimeError("the owner's own fault")

    client = unconnected(script("server"))
    client._pump._on_event = fail  # the constructor's argument, exchanged here to fail from the start
    try:
        await client.connect()
        assert text(await client.call_tool("echo", {"text": "alive"})) == "alive"
    finally:
        await client.close()


async def test_a_silent_server_is_lost_after_two_missed_pings() -> None:
    timeouts = Timeouts(keepalive_idle=0.2, keepalive_answer=0.2, keepalive_misses=2)
    async with connected(script("server", "mute"), timeouts=timeouts) as made:
        async with asyncio.timeout(10):
            reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.CONNECTION_LOST


async def test_an_answering_server_stays_through_many_silences() -> None:
    timeouts = Timeouts(keepalive_idle=0.05, keepalive_answer=5)
    async with connected(script("server"), timeouts=timeouts) as made:
        await asyncio.sleep(0.6)
        assert made.client.state is State.READY
        assert await made.client.ping() > 0


async def test_closing_ends_the_child_and_fails_what_waits() -> None:
    before = children()
    async with connected(script("server")) as made:
        waiting = asyncio.create_task(made.client.call_tool("hang", {}))
        await asyncio.sleep(0.1)
        assert children() > before
        await made.client.close()
        with pytest.raises(NotReady) as caught:
            await waiting
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.CLOSED, True)
        assert made.client.closed.result() is None
        await made.client.close()
    assert children() == before


async def test_a_child_that_does_not_read_blocks_nobody_else_and_is_bounded_by_deadlines() -> None:
    async with connected(script("server")) as other:
        before = children()
        async with connected(script("server")) as made:
            for child in children() - before:
                for pid in descendants(child):
                    os.kill(pid, signal.SIGSTOP)
            big = {"text": "x" * 4_000_000}
            results = await asyncio.gather(
                *(made.client.call_tool("echo", big, timeout=0.5) for _ in range(4)), return_exceptions=True
            )
            assert [getattr(result, "fault", None) for result in results] == [Fault.TIMEOUT] * 4
            assert await call(other, "echo", text="alive") == "alive"


async def test_a_stubborn_child_is_killed_with_everything_it_started() -> None:
    client = unconnected(script("first_words", "stubborn"), era="legacy", timeouts=Timeouts(initialize=1.0))
    connecting = asyncio.create_task(client.connect())
    before = children()
    family: set[int] = set()
    for _ in range(100):
        await asyncio.sleep(0.02)
        family = {pid for child in children() - before for pid in descendants(child)}
        if len(family) >= 2:
            break
    with pytest.raises(McpError):
        await connecting
    assert children() <= before
    if (await isolation()) in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER):
        assert len(family) >= 2
        assert all([await gone(pid) for pid in family])


async def test_a_cancelled_connect_leaves_no_child() -> None:
    before = children()
    connecting = asyncio.create_task(unconnected(script("first_words", "silent")).connect())
    await asyncio.sleep(0.3)
    assert children() > before
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert children() == before


async def test_no_descriptor_is_left_after_many_sessions() -> None:
    async def one() -> None:
        async with connected(script("server")) as made:
            await call(made, "echo", text="x")

    await one()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        await one()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_children_are_watched_without_a_thread_each_once_the_loop_is_prepared() -> None:
    await isolation()
    prepare_loop(asyncio.get_running_loop())
    try:
        threads = len(os.listdir("/proc/self/task"))
        async with connected(script("server")) as made:
            assert await call(made, "echo", text="x") == "x"
            assert len(os.listdir("/proc/self/task")) == threads
    finally:
        if sys.version_info < (3, 12):
            asyncio.set_child_watcher(None)


WORKER = """
import asyncio, sys
from tests.sessions.transports.making import script, unconnected
async def main():
    client = unconnected(script("first_words", "stubborn"), era="legacy")
    task = asyncio.create_task(client.connect())
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_when_the_worker_is_killed_nothing_of_the_child_survives() -> None:
    if (await isolation()) not in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER):
        pytest.skip("this machine allows no PID namespace")
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER)
    family: set[int] = set()
    deadline = time.monotonic() + 30
    while len(family) < 4 and time.monotonic() < deadline:  # setpriv becomes unshare; server; grandchild
        await asyncio.sleep(0.1)
        family = descendants(worker.pid)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    assert len(family) >= 4
    assert all([await gone(pid) for pid in family - {worker.pid}])
