"""Work in the background of a worker: its server may be deleted while it runs."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from servers.models import Server
from sessions.host.db import Database
from sessions.host.loop import unheard
from sessions.models import LogLine

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def deleted() -> int:
    server = Server.objects.create(name="Gone", slug="gone")
    key = server.pk
    server.delete()
    return key


def left_alone(work: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> str:
    """The log after a task wrote this and its result was never read."""

    async def write() -> None:
        asyncio.get_running_loop().set_exception_handler(unheard)
        database = Database()
        task = asyncio.create_task(database.persist(work))
        await asyncio.wait({task})
        del task
        gc.collect()
        database.stop()

    asyncio.run(write())
    return caplog.text


def test_a_write_for_a_deleted_server_ends_in_one_line_without_a_traceback(
    deleted: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    said = left_alone(
        lambda: LogLine.objects.create(server_id=deleted, seq=1, at=timezone.now(), level="info", text="late"), caplog
    )
    assert "host.rows_deleted" in said
    assert "Traceback" not in said
    assert "never retrieved" not in said


def test_any_other_fault_that_no_one_waits_for_is_in_the_log_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept: dict[str, str] = {}
    said = left_alone(lambda: kept["missing"], caplog)
    assert "never retrieved" in said
    assert "KeyError" in said
