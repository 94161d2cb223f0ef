"""Lets the open session follow tasks whose call has ended without an answer, because its worker or session was lost, or
because the call gave up."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from sessions.calls import server_tasks
from sessions.calls.claims import CallOutcome
from sessions.calls.server_tasks import Orphan
from sessions.connections.lifecycle import Lease
from sessions.host.answer_redaction import Redactor
from sessions.host.calls import outcomes
from sessions.host.calls.task_record import TaskRecord
from sessions.host.db import Database, DatabaseAway, RowsOrphaned
from sessions.mcp.client import Client, TaskOptions, TaskState
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.errors import Fault, McpError, ProtocolError, RpcError
from sessions.models.server_task import FOLLOWED_FOR

log = structlog.get_logger(__name__)

#: between two unprompted looks at the rows, while there are any: a wake-up may be lost
LOOK_SECONDS: Final = 60.0
#: before a task that could not be followed is tried again, or rows that could not be read are read again
RETRY_SECONDS: Final = 2.0
#: these say how the task ended; any other failure is the connection's, and the next session tries again
_ENDS: Final = frozenset({Fault.TASK_CANCELLED, Fault.TASK_LOST, Fault.INPUT_REFUSED, Fault.INPUT_NOT_OFFERED})


class OrphanedTasks:
    def __init__(
        self, db: Database, lease: Lease, client: Client, redactor: Redactor, is_open: Callable[[], bool]
    ) -> None:
        self._db, self._lease, self._client, self._redactor, self._is_open = db, lease, client, redactor, is_open
        self._following: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._cancelling: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        #: set when the rows may have changed
        self._news = asyncio.Event()

    @property
    def following(self) -> bool:
        return bool(self._following)

    def look(self) -> asyncio.Task[None]:
        """Call when the session opens, when a call ends without an answer, and when a person cancels. The returned task
        ends when none is left."""
        self._news.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="mcp orphaned tasks")
        return self._running

    def over(self) -> None:
        """The session has ended."""
        self._news.set()

    async def _run(self) -> None:
        """Runs until none is left or the session ends. Ending a session does not cancel them at the server."""
        while self._is_open():
            self._news.clear()
            try:
                rows = await self._db.read(partial(server_tasks.orphans, self._lease.session_id))
            except DatabaseAway:
                await self._wait_for_news(RETRY_SECONDS)
                continue
            if not rows and not self._following and not self._news.is_set():
                return
            for orphan in rows:
                self._take_up(orphan)
            await self._wait_for_news(LOOK_SECONDS)

    async def _wait_for_news(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _take_up(self, orphan: Orphan) -> None:
        pk = orphan.call.pk
        if pk not in self._following:
            follower = asyncio.create_task(self._follow(orphan), name="mcp orphaned task")
            self._following[pk] = follower
            follower.add_done_callback(partial(self._ended, pk))
        if orphan.cancel and pk not in self._cancelled:
            self._cancelled.add(pk)
            cancelling = asyncio.create_task(self._cancel(orphan), name="mcp orphaned task cancel")
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)

    def _ended(self, pk: int, _: asyncio.Task[None]) -> None:
        self._following.pop(pk, None)
        self._news.set()

    async def _follow(self, orphan: Orphan) -> None:
        try:
            outcome = await self._outcome(orphan)
            if outcome is not None:
                row = await outcomes.packed(self._db, outcome)
                await self._db.persist(partial(server_tasks.ended, orphan.call, self._lease, outcome, row), list)
                return
        except RowsOrphaned:  # the server has been deleted, and its calls with it
            return
        except Exception:  # a bug of ours must not end the other tasks
            log.exception("host.task_follower_failed", call=str(orphan.call.uid))
        await asyncio.sleep(RETRY_SECONDS)

    async def _outcome(self, orphan: Orphan) -> CallOutcome | None:
        """None if it could not be followed: this session tries again, or a later one does."""
        call = orphan.call
        masks = outcomes.ResultMasks.of(call, self._lease, self._redactor)
        record = TaskRecord(self._db, call, self._lease)

        def seen(state: TaskState) -> None:
            record(replace(state, message=masks.text(state.message)))

        await self._db.persist(partial(server_tasks.followed, call, self._lease))
        try:
            result = await self._client.resume_task(
                orphan.task_id,
                options=TaskOptions(on_task=seen),
                total_timeout=FOLLOWED_FOR.total_seconds(),
                tag=call,
            )
        except McpError as error:
            if isinstance(error, RpcError | ProtocolError) or error.fault in _ENDS:
                return await outcomes.of_failure(error, masks)
            log.info("host.task_not_followed", call=str(call.uid), fault=str(error.fault))
            return None
        make = partial(outcomes.of_result, result.raw, masks, modern=False)  # the result of a task requires no input
        return await outcomes.of_answer(result.raw, make)

    async def _cancel(self, orphan: Orphan) -> None:
        call = orphan.call
        try:
            await self._client.cancel_task(orphan.task_id)
        except McpError as error:
            log.info("host.task_not_cancelled", call=str(call.uid), fault=str(error.fault))
            if isinstance(error, RpcError) and error.code == jsonrpc.INVALID_PARAMS:
                return  # it is over, or no longer known: the next poll shows which
            if isinstance(error, RpcError | ProtocolError) or error.permanent:
                why = outcomes.ResultMasks.of(call, self._lease, self._redactor).text(error.detail)
                with suppress(RowsOrphaned):
                    await self._db.persist(partial(server_tasks.not_cancelled, call, self._lease, why))
            self._cancelled.discard(call.pk)  # after a temporary failure, the next look tries again
