"""The log of a server: its notifications, its stderr and what the host did, as a numbered ring of KEPT rows.

Lines are written in batches. What a server sends faster than the database takes is shed, oldest first, and the exact
number of lines shed stands in the ring itself.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max
from django.utils import timezone

from sessions import bus
from sessions.domain.lifecycle import Hold, held, storable
from sessions.enums import LogSource
from sessions.host.db import Database, DatabaseAway
from sessions.models import LogLine

KEPT = 2_000
PENDING_LIMIT = 1_000
FLUSH_SECONDS = 0.2
LINE_CHARS = 8_000
#: trimming each time would cost a DELETE a batch
TRIM_EVERY = 100
#: cards of calls that hear at once of their new lines; the others show them with their next change
CALLS_TOLD = 32
LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


@dataclass(frozen=True, slots=True)
class Line:
    source: LogSource
    level: str
    text: str
    logger: str = ""
    call_uid: UUID | None = None
    at: datetime = field(default_factory=timezone.now)

    def row(self, server_id: int, seq: int) -> LogLine:
        return LogLine(
            server_id=server_id,
            seq=seq,
            at=self.at,
            source=self.source,
            level=self.level if self.level in LEVELS else "info",
            logger=storable(self.logger, 200),
            text=storable(self.text, LINE_CHARS),
            call_uid=self.call_uid,
        )


class ServerLog:
    """The log of one session that this worker holds."""

    def __init__(self, db: Database, hold: Hold) -> None:
        self._db = db
        self._hold = hold
        self._pending: deque[Line] = deque()
        self._shed = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, line: Line) -> None:
        """From the loop; never waits."""
        if len(self._pending) >= PENDING_LIMIT:
            self._pending.popleft()
            self._shed += 1
        self._pending.append(line)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush_later())

    def host(self, text: str, level: str = "info") -> None:
        """A line of our own."""
        self.add(Line(LogSource.HOST, level, text))

    def shed(self, count: int) -> None:
        """`count` lines were dropped before they came here."""
        self._shed += count

    async def close(self) -> None:
        """Write what waits."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self._flush()

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        while self._pending:
            await self._flush()
            await asyncio.sleep(FLUSH_SECONDS)
        self._task = None

    async def _flush(self) -> None:
        lines, shed = list(self._pending), self._shed
        self._pending.clear()
        self._shed = 0
        if lines or shed:
            writing = asyncio.ensure_future(self._write(lines, shed))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:  # whoever closes us waits for what is on its way
                await asyncio.wait({writing})
                raise

    async def _write(self, lines: list[Line], shed: int) -> None:
        told = [*lines, Line(LogSource.HOST, "warning", _shed_words(shed))] if shed else lines
        try:
            await self._db.write(partial(append, self._hold, told))
        except DatabaseAway:
            self._shed += len(lines) + shed


def _shed_words(count: int) -> str:
    lines = "1 line was" if count == 1 else f"{count} lines were"
    return f"{lines} dropped: the server sent more than the log takes."


def append(hold: Hold, lines: list[Line]) -> None:
    """Number and store `lines` in the current transaction, if the session is still ours."""
    if not held(hold).exists():
        return
    newest = LogLine.objects.filter(server_id=hold.server_id).aggregate(Max("seq"))["seq__max"] or 0
    last = newest + len(lines)
    LogLine.objects.bulk_create([line.row(hold.server_id, seq) for seq, line in enumerate(lines, newest + 1)])
    if newest // TRIM_EVERY != last // TRIM_EVERY:
        trim(hold.server_id, last)
    transaction.on_commit(lambda: _announce(hold.server_uid, last, {line.call_uid for line in lines}))


def _announce(server_uid: UUID, last: int, calls: set[UUID | None]) -> None:
    bus.log_appended(server_uid, last)
    for uid in [uid for uid in calls if uid is not None][:CALLS_TOLD]:
        bus.publish(f"call.{uid}", None, "call")


def trim(server_id: int, last: int) -> None:
    LogLine.objects.filter(server_id=server_id, seq__lte=last - KEPT).delete()


def trim_all() -> int:
    """Cut every ring that is longer than KEPT, whatever left it so. Returns the number of rings cut."""
    long = LogLine.objects.values_list("server_id").annotate(last=Max("seq"), lines=Count("id")).filter(lines__gt=KEPT)
    found = list(long.values_list("server_id", "last"))
    for server_id, last in found:
        trim(server_id, last)
    return len(found)
