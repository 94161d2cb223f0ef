"""What is kept of a call's progress."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.secret import MASK, Secret
from sessions.calls import claims
from sessions.connections.lifecycle import Lease
from sessions.host.answer_redaction import Redactor
from sessions.host.calls.progress import CallProgress
from sessions.host.db import Database
from sessions.mcp.core.tasks import Status, TaskState
from sessions.models import Call, McpSession, ServerTask
from tests.sessions.host.make import make_call, make_hold, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lease(valkey: Path) -> Lease:
    return make_hold(make_session())


@pytest.fixture
def call(lease: Lease) -> claims.PendingCall:
    found = claims.read_pending_call(make_call(McpSession.objects.get()).uid)
    assert found is not None
    assert claims.claim(found, lease)
    return found


@pytest.fixture
def database() -> Iterator[Database]:
    db = Database()
    yield db
    db.stop()


async def recorded(progress: CallProgress) -> None:
    if (writing := progress._record._writing) is not None:
        await writing


async def test_a_secret_in_a_progress_message_is_masked(
    database: Database, call: claims.PendingCall, lease: Lease
) -> None:
    progress = CallProgress(database, call, lease, Redactor([Secret("hunter2-hunter2")]))
    progress(1.0, 2.0, f"hunter2-hunter2 and ghp_{'A' * 36}")
    progress.close()
    saved = await database.write(Call.objects.get)  # after the progress, which is saved without waiting
    assert saved.progress_message == f"{MASK} and {MASK}"


async def test_a_secret_in_the_status_message_of_a_task_is_masked(
    database: Database, call: claims.PendingCall, lease: Lease
) -> None:
    progress = CallProgress(database, call, lease, Redactor([Secret("hunter2-hunter2")]))
    progress.task(TaskState("t1", Status.WORKING, f"hunter2-hunter2 and ghp_{'A' * 36}"))
    await recorded(progress)
    progress.close()
    task = await database.write(ServerTask.objects.get)
    assert task.message == f"{MASK} and {MASK}"


class Away(Database):
    """Takes writes only once it is `back`; counts those that came."""

    def __init__(self) -> None:
        super().__init__()
        self.back, self.waiting, self.written = asyncio.Event(), 0, 0

    async def persist(self, fn: Any, *_: Any, **__: Any) -> Any:
        self.waiting += 1
        await self.back.wait()
        self.waiting -= 1
        self.written += 1
        return await super().persist(fn)


async def test_polls_of_a_task_that_is_as_before_write_nothing(call: claims.PendingCall, lease: Lease) -> None:
    db = Away()
    db.back.set()
    progress = CallProgress(db, call, lease, Redactor([]))
    for number in range(50):
        progress.task(TaskState("t1", Status.WORKING, "at work", updated_at=str(number)))
        await recorded(progress)
    progress.task(TaskState("t1", Status.INPUT_REQUIRED))
    await recorded(progress)
    progress.close()
    assert db.written == 2
    assert (await db.write(ServerTask.objects.get)).status == Status.INPUT_REQUIRED
    db.stop()


async def test_while_the_database_is_away_only_the_newest_state_of_a_task_waits(
    call: claims.PendingCall, lease: Lease
) -> None:
    db = Away()
    progress = CallProgress(db, call, lease, Redactor([]))
    for number in range(50):
        progress.task(TaskState("t1", Status.WORKING, f"step {number}"))
        await asyncio.sleep(0)
        assert db.waiting <= 1
    db.back.set()
    await recorded(progress)
    progress.close()
    assert db.written == 2
    assert (await db.write(ServerTask.objects.get)).message == "step 49"
    db.stop()
