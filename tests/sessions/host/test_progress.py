"""What is kept of a call's progress."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

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
    await asyncio.wait(progress._writing)
    progress.close()
    task = await database.write(ServerTask.objects.get)
    assert task.message == f"{MASK} and {MASK}"
