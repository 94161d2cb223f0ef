"""The row of a task, kept as the server last described it: one write at a time, and none where a poll brings nothing new."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sessions.calls import server_tasks
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.host.db import Database, RowsOrphaned
from sessions.mcp.core.tasks import TaskState


class TaskRecord:
    def __init__(self, db: Database, call: PendingCall, lease: Lease) -> None:
        self._db, self._call, self._lease = db, call, lease
        self._newest: TaskState | None = None
        #: the newest state, until it is being written
        self._unwritten: TaskState | None = None
        self._writing: asyncio.Task[None] | None = None

    def __call__(self, state: TaskState) -> None:
        """`state`: with its secrets masked. While the database is away, only the newest one waits for it."""
        known, self._newest = self._newest, replace(state, raw={})
        if known is not None and (state.status, state.message, state.ttl) == (known.status, known.message, known.ttl):
            return
        self._unwritten = self._newest
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="record task")

    async def _write(self) -> None:
        with suppress(RowsOrphaned):
            while (state := self._unwritten) is not None:
                self._unwritten = None
                await self._db.persist(partial(server_tasks.seen, self._call, self._lease, state))
