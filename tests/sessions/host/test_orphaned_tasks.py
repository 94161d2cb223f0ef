"""Tasks that run on at their server without a call that waits for them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from servers.audit.record import Actor
from sessions.calls import server_tasks
from sessions.calls.claims import PendingCall
from sessions.calls.server_tasks import Orphan
from sessions.host.answer_redaction import Redactor
from sessions.host.calls import orphaned_tasks
from sessions.host.calls.orphaned_tasks import OrphanedTasks
from sessions.host.db import DatabaseAway
from sessions.mcp.core.errors import Fault, InvalidRequest, McpError, RpcError, TransportError


class Rows:
    """A database that is away for the first read, and has no orphans."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, job: Callable[[], Any]) -> list[Any]:
        self.reads += 1
        if self.reads == 1:
            raise DatabaseAway("The database is away.")
        return []


@pytest.fixture
def rows() -> Rows:
    return Rows()


def followed(rows: Rows, is_open: Callable[[], bool]) -> OrphanedTasks:
    lease: Any = SimpleNamespace(session_id=1)
    unused: Any = None
    database: Any = rows
    return OrphanedTasks(database, lease, unused, unused, is_open)


async def test_tasks_are_looked_for_again_when_the_database_was_away(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphaned_tasks, "RETRY_SECONDS", 0.0)
    async with asyncio.timeout(10):
        await followed(rows, lambda: True).look()
    assert rows.reads == 2


async def test_the_end_of_the_session_ends_the_wait_for_a_database_that_is_away(rows: Rows) -> None:
    tasks = followed(rows, lambda: rows.reads == 0)
    looking = tasks.look()
    await asyncio.sleep(0)
    tasks.over()
    async with asyncio.timeout(10):
        await looking
    assert rows.reads == 1


class Endless:
    """A server whose task never ends, and the database of its session. A person asked to cancel the task; `refusals` are what
    the server answers to that, one after the other."""

    def __init__(self, *refusals: McpError) -> None:
        call = PendingCall(7, uuid4(), 1, "tools/call", "t", "", "", Actor(1, "ada"))
        self.orphans, self.refusals = [Orphan(call, "t1", cancel=True)], list(refusals)
        self.asked, self.open = 0, True
        self.done = asyncio.Event()
        self.said: list[str] = []

    async def read(self, job: Callable[[], Any]) -> list[Orphan]:
        return self.orphans

    async def persist(self, job: Any, *_: Any) -> None:
        if job.func is server_tasks.not_cancelled:
            self.said.append(job.args[-1])
            self.done.set()

    async def resume_task(self, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    async def cancel_task(self, task_id: str) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self.done.set()

    async def cancelled(self) -> None:
        itself: Any = self
        lease: Any = SimpleNamespace(session_id=1, server_id=1)
        tasks = OrphanedTasks(itself, lease, itself, Redactor(), lambda: self.open)
        looking = tasks.look()
        async with asyncio.timeout(10):
            await self.done.wait()
        await asyncio.sleep(0.1)
        self.open = False
        tasks.over()
        await looking


async def test_a_cancellation_that_did_not_reach_the_server_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_tasks, "LOOK_SECONDS", 0.02)
    server = Endless(TransportError(Fault.TIMEOUT, "No answer.", may_have_run=True))
    await server.cancelled()
    assert (server.asked, server.said) == (2, [])


@pytest.mark.parametrize(
    "refusal", [InvalidRequest("It does not offer it.", Fault.NOT_OFFERED), RpcError(-32603, "It does not offer it.")]
)
async def test_a_cancellation_that_the_server_refuses_is_said_to_be_refused(refusal: McpError) -> None:
    server = Endless(refusal)
    await server.cancelled()
    assert (server.asked, server.said) == (1, ["It does not offer it."])


async def test_the_cancellation_of_a_task_that_is_over_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_tasks, "LOOK_SECONDS", 0.02)
    server = Endless(RpcError(-32602, "It is over."))
    server.done.set()
    await server.cancelled()
    assert (server.asked, server.said) == (1, [])
