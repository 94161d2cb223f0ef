"""The log of a session that this worker holds: its notifications, its stderr and what the host did.

Nothing here waits. What a server sends faster than the log takes is shed, oldest first, and the exact number of lines
shed stands in the log itself: since the line before, and in all.
"""

import asyncio
from collections import deque

from sessions.domain.lifecycle import Hold
from sessions.enums import LogSource
from sessions.host.log_line import Line, Taken
from sessions.host.log_writer import LogWriter

__all__ = ["Line", "ServerLog"]

#: a server may say so much at once (when it starts) without losing a line
PENDING_LIMIT = 1_000


class ServerLog:
    def __init__(self, writer: LogWriter, hold: Hold) -> None:
        self.hold = hold
        #: done when the lines that are on their way are written, or back
        self.under_way: asyncio.Future[None] | None = None
        self._writer = writer
        self._pending: deque[Line] = deque()
        self._shed = 0
        self._shed_before = 0

    def add(self, line: Line) -> None:
        self._pending.append(line)
        self._cut()
        self._writer.wake(self)

    def host(self, text: str, level: str = "info") -> None:
        """A line of our own."""
        self.add(Line(LogSource.HOST, level, text))

    def shed(self, count: int) -> None:
        """`count` lines were dropped before they came here."""
        self._shed += count
        self._writer.wake(self)

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.finish(self)

    # --- for the writer ----------------------------------------------------------------------------------------------
    @property
    def waits(self) -> bool:
        return bool(self._pending or self._shed)

    def take(self, most: int | None = None) -> Taken:
        """The oldest lines; all of them without `most`."""
        count = len(self._pending) if most is None else min(most, len(self._pending))
        lines = [self._pending.popleft() for _ in range(count)]
        shed, self._shed = self._shed, 0
        self._shed_before += shed
        return Taken(lines, shed, [*self._confession(shed, lines), *lines])

    def put_back(self, taken: Taken) -> None:
        """They could not be written."""
        self._shed_before -= taken.shed
        self._shed += taken.shed
        self._pending.extendleft(reversed(taken.lines))
        self._cut()

    def _cut(self) -> None:
        while len(self._pending) > PENDING_LIMIT:
            self._pending.popleft()
            self._shed += 1

    def _confession(self, shed: int, lines: list[Line]) -> list[Line]:
        if not shed:
            return []
        words = "1 line was" if shed == 1 else f"{shed} lines were"
        text = f"{words} dropped: the server sent more than the log takes."
        if self._shed_before > shed:
            text += f" {self._shed_before} in all since this worker took the session."
        said = Line(LogSource.HOST, "warning", text)
        return [said if not lines else Line(said.source, said.level, text, at=lines[0].at)]
