"""The log of a session that this worker owns: server notifications, stderr and what the host did.

Nothing here waits. If a server logs faster than lines are written, the oldest lines are dropped. The log itself states
the exact number of dropped lines: since the previous such line, and in total.
"""

import asyncio
from collections import deque
from typing import Any

from sessions.connections.lifecycle import Lease
from sessions.enums import LogSource
from sessions.host.logs.line import LogBatch, ServerLogLine
from sessions.host.logs.writer import LogWriter

__all__ = ["ServerLog", "ServerLogLine"]

#: a server may log this many lines at once, for example at its start, without losing one
PENDING_LIMIT = 1_000


class ServerLog:
    def __init__(self, writer: LogWriter, lease: Lease) -> None:
        self.lease = lease
        #: done when the lines under way are written or put back
        self.under_way: asyncio.Future[Any] | None = None
        self._writer = writer
        self._pending: deque[ServerLogLine] = deque()
        self._shed = 0
        self._shed_before = 0

    def add(self, line: ServerLogLine) -> None:
        self._pending.append(line.cut())
        self._cut()
        self._writer.wake(self)

    def host(self, text: str, level: str = "info") -> None:
        """Add a line from the host itself."""
        self.add(ServerLogLine(LogSource.HOST, level, text))

    def shed(self, count: int) -> None:
        """`count` lines were dropped before they reached this log."""
        self._shed += count
        self._writer.wake(self)

    async def close(self) -> None:
        """Write the waiting lines."""
        await self._writer.finish(self)

    # --- for the writer ----------------------------------------------------------------------------------------------
    @property
    def waits(self) -> bool:
        return bool(self._pending or self._shed)

    def take(self, most: int | None = None) -> LogBatch:
        """Take the oldest lines, up to `most`; without it all of them."""
        count = len(self._pending) if most is None else min(most, len(self._pending))
        lines = [self._pending.popleft() for _ in range(count)]
        shed, self._shed = self._shed, 0
        self._shed_before += shed
        return LogBatch(lines, shed, [*self._shed_notice(shed, lines), *lines])

    def put_back(self, taken: LogBatch) -> None:
        """Put back lines that could not be written."""
        self._shed_before -= taken.shed
        self._shed += taken.shed
        self._pending.extendleft(reversed(taken.lines))
        self._cut()

    def _cut(self) -> None:
        while len(self._pending) > PENDING_LIMIT:
            self._pending.popleft()
            self._shed += 1

    def _shed_notice(self, shed: int, lines: list[ServerLogLine]) -> list[ServerLogLine]:
        if not shed:
            return []
        words = "1 line was" if shed == 1 else f"{shed} lines were"
        text = f"{words} dropped: the server exceeded the log rate limit."
        if self._shed_before > shed:
            text += f" {self._shed_before} in total since this worker claimed the session."
        notice = ServerLogLine(LogSource.HOST, "warning", text)
        return [notice if not lines else ServerLogLine(notice.source, notice.level, text, at=lines[0].at)]
