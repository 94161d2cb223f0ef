"""What the supervisor of a session waits for, and what does not wait for it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from servers.packages import commands
from sessions.connections.lifecycle import Lease, Transition
from sessions.host import session_supervisor
from sessions.host.launch import Launch
from sessions.host.logs.writer import LogWriter
from sessions.host.packages.start import PackageStart
from sessions.host.reconnect_delays import ceilings
from sessions.host.session_supervisor import SessionSupervisor
from sessions.host.shared import Shared
from sessions.host.subscriptions.notification_counts import CountWriter
from sessions.host.wire.writer import WireWriter
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.registry import HttpSpec, StdioSpec
from tests.sessions.mcp.transports.making import LOCAL


class Tokens:
    """The authorization of a server. Its token request is pending until the token is `saved`."""

    def __init__(self) -> None:
        self.asked, self.settling, self.saved = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def trial(self, operation: str, *, interactive: bool = True) -> Any:
        return self

    async def headers(self, verb: str, url: str) -> Mapping[str, str]:
        self.asked.set()
        await asyncio.Event().wait()
        return {}

    async def settle(self) -> None:
        self.settling.set()
        await self.saved.wait()


class Database:
    """Makes every change, and reads this launch."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    async def persist(self, fn: Callable[[], Any], events: object = None) -> Transition:
        return Transition.MADE

    async def write(self, fn: Callable[[], Any], *_: object, **__: object) -> None:
        """Discards the write."""

    async def read(self, job: Callable[[], Any]) -> Launch:
        return self._launch

    def post(self, fn: Callable[[], Any]) -> None:
        """The same."""


@pytest.fixture
async def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server that is never sent a request, because there is no token for it."""
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def launch(tokens: Tokens, port: int) -> Launch:
    spec = HttpSpec(f"http://127.0.0.1:{port}/mcp", policy=LOCAL, authorization=tokens)
    return Launch(spec, Limits(), Timeouts(), "legacy", "", float("inf"), ())


def shared_by(database: Any) -> Shared:
    writers = (LogWriter(database), WireWriter(database), CountWriter(database))
    return Shared(*writers, ceilings(), lambda _: None, lambda: None)


def supervisor_of(launch: Launch, shared: Shared | None = None) -> SessionSupervisor:
    database: Any = Database(launch)
    desired: Any = SimpleNamespace(
        open=True, requested=False, paused=False, restart_requested=0, restart_done=0, refresh_done=0, recording="off"
    )
    lease = Lease(1, uuid4(), 1, uuid4(), "Files", "shared", 1, uuid4(), 1)
    return SessionSupervisor(lease, desired, database, shared or shared_by(database))


@pytest.mark.parametrize("seconds", [60.0, 0.0])
async def test_a_worker_that_stops_waits_for_a_token_request_as_long_as_its_time_allows(
    launch: Launch, tokens: Tokens, seconds: float
) -> None:
    supervisor = supervisor_of(launch)
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(20):
        await tokens.asked.wait()
        supervisor._shared.drain(seconds)
        supervisor.look()
        if seconds:
            await tokens.settling.wait()
            assert not running.done()
            tokens.saved.set()
        await running


ENGINE = """#!/bin/sh
echo asked > "$ASKED"
exec sleep 1000
"""


@pytest.fixture
async def silent() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """The port of a server that accepts connections and answers nothing, and whether it was reached."""
    reached = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], reached


async def test_a_server_that_does_not_answer_keeps_the_others_from_opening_for_seconds_only(
    launch: Launch, tokens: Tokens, silent: tuple[int, asyncio.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_supervisor, "SLOT_SECONDS", 0.2)
    port, reached = silent
    shared = shared_by(Database(launch))
    shared.gate = asyncio.Semaphore(1)
    unanswered = replace(launch, spec=HttpSpec(f"http://127.0.0.1:{port}/mcp", policy=LOCAL))
    running = [asyncio.create_task(supervisor_of(unanswered, shared).run())]
    try:
        async with asyncio.timeout(20):
            await reached.wait()
            running.append(asyncio.create_task(supervisor_of(launch, shared).run()))
            await tokens.asked.wait()
        assert not running[0].done()
    finally:
        tokens.saved.set()
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_a_session_that_waits_for_a_registry_takes_no_slot_from_the_others(
    launch: Launch, tokens: Tokens, tmp_path: Path
) -> None:
    engine, asked = tmp_path / "docker", tmp_path / "asked"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    os.mkfifo(asked)
    command = commands.read(str(engine), ["run", "-i", "notes"])
    assert command is not None
    package = PackageStart(command, tmp_path / "packages", 1_000)
    spec = StdioSpec(str(engine), ("run", "-i", "notes"), env=lambda: {"ASKED": str(asked), "PATH": os.defpath})
    shared = shared_by(Database(launch))
    shared.gate = asyncio.Semaphore(1)
    running = [asyncio.create_task(supervisor_of(replace(launch, spec=spec, package=package), shared).run())]
    try:
        async with asyncio.timeout(20):
            await asyncio.to_thread(asked.read_text)
            running.append(asyncio.create_task(supervisor_of(launch, shared).run()))
            await tokens.asked.wait()
    finally:
        tokens.saved.set()
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
