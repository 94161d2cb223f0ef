"""A child process as a server: how it is started and called, and how its death is reported."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from sessions.mcp.core.errors import Fault, LaunchError, NotReady, ProtocolError, TransportError
from sessions.mcp.core.events import DiagnosticLine, ProtocolViolation
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio import Isolation, isolation

from .making import connected, script, unconnected
from .processes import children
from .stdio_calls import call

pytestmark = pytest.mark.integration


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


async def test_a_command_that_exits_at_once_is_reported_with_its_code_and_last_words() -> None:
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


async def test_a_server_that_writes_its_messages_over_several_lines_is_given_up_with_that_reason() -> None:
    events: list[object] = []
    client = unconnected(script("first_words", "indented"), events)  # type: ignore[arg-type]  # a wider list is fine
    with pytest.raises(TransportError) as caught:
        await client.connect()
    assert caught.value.fault is Fault.STDOUT_NOISE
    assert "writes one message over several lines" in caught.value.detail
    told = [event for event in events if isinstance(event, DiagnosticLine) and event.stream == "stdio"]
    assert [event.text for event in told] == [
        "The server writes one message over several lines. Each message must be one line of JSON."
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_prints_the_messages_it_gets_is_used_and_its_lines_are_shown(era: str) -> None:
    async with connected(script("server", era, "logs-messages")) as made:
        assert made.connected.era == era
        assert await call(made, "echo", text="x") == "x"
        shown = [event.text for event in made.of(DiagnosticLine)]
    for start in ("<-- {", "[2026-11-28 12:00:00] {", "[INFO] answering {", "{time: 12"):
        assert any(line.startswith(start) and "tools/call" in line for line in shown), start
    assert '{"event": "start", "pid": 7}' in shown
    assert made.of(ProtocolViolation) == []


async def test_a_server_dead_after_the_probe_is_started_afresh_and_used() -> None:
    async with connected(script("server", "dies-at-probe"), timeouts=Timeouts(probe=0.3)) as made:
        assert "process_exited" in made.connected.decided_by
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
    """In a PID namespace the wrapper keeps the pipe open, so only the deadline reveals it."""
    client = unconnected(script("first_words", "closes-output"), era="legacy", timeouts=Timeouts(initialize=1.5))
    with pytest.raises(TransportError) as caught:
        await client.connect()
    wrapped = (await isolation()) in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER)
    assert caught.value.fault is (Fault.TIMEOUT if wrapped else Fault.CONNECTION_LOST)
