"""The topic of one call: decides when the call's row is read for a frame (each state, a late result, progress).
`call_frames` makes the frames."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from sessions.hints.hint_rows import first_row, is_passing
from sessions.live.frames import Frame
from sessions.live.streams import WINDOW_SECONDS, Dirty, Row, SnapshotStream, TopicSubscription
from sessions.live.topics import Topic

#: a page reads log lines with the call, and sees the end of a visit by its item in the inbox
_FOR_AGENTS = ("log", "visit")
#: a state marked as passing is rendered only after this delay: by then most calls have ended
PASSING_SECONDS = 0.25
log = structlog.get_logger(__name__)


class CallStream(SnapshotStream):
    """`read_progress` renders the progress that a hint carries."""

    window = 0.0  # a result is sent without delay

    def __init__(
        self,
        topic: Topic,
        read: Callable[[set[Dirty], SnapshotStream], Awaitable[list[Frame]]],
        read_progress: Callable[[Row, SnapshotStream], Awaitable[Frame | None]],
    ) -> None:
        super().__init__(topic, read)
        self._read_progress = read_progress
        self._over = False
        self._progress: Row | None = None
        self._progress_task: asyncio.Task[None] | None = None

    def follow(self, subscription: TopicSubscription) -> None:
        """Add a listener that already has the row at its cursor."""
        self.subscriptions.add(subscription)
        self.idle_since = None
        self.version = max(self.version, subscription.cursor or 0)

    def hint(self, hint: dict[str, Any]) -> None:
        if hint["kind"] == "progress":
            self._later(_progress_row(hint.get("rows")))
        elif hint["kind"] in _FOR_AGENTS or self._knows(hint):
            return
        elif is_passing(hint.get("rows")):
            asyncio.get_running_loop().call_later(PASSING_SECONDS, self._look, hint)
        else:
            super().hint(hint)

    def _knows(self, hint: dict[str, Any]) -> bool:
        seq = hint.get("seq")
        return isinstance(seq, int) and seq <= self.version

    def _look(self, hint: dict[str, Any]) -> None:
        if not self._knows(hint):
            super().hint(hint)

    def _note(self, frame: Frame) -> None:
        super()._note(frame)
        self._over = frame.final

    def _later(self, row: Row | None) -> None:
        """Progress is lossy: only the newest in each window is sent."""
        if row is None or not self.subscriptions:
            return
        self._progress = row
        if self._progress_task is None or self._progress_task.done():
            self._progress_task = asyncio.create_task(self._send_progress())

    async def _send_progress(self) -> None:
        while self._progress is not None and not self._over:
            row, self._progress = self._progress, None
            try:
                frame = await self._read_progress(row, self)
            except Exception:  # lossy by nature: the next progress retries
                log.exception("live.progress_failed", topic=self.topic.name)
                frame = None
            if frame is not None and not self._over:
                for subscription in self.subscriptions:
                    if subscription.live:
                        subscription.offer(frame)
            await asyncio.sleep(WINDOW_SECONDS)

    async def close(self) -> None:
        await super().close()
        if self._progress_task is not None:
            self._progress_task.cancel()
            await asyncio.gather(self._progress_task, return_exceptions=True)


def _progress_row(rows: Any) -> Row | None:
    """Keep only valid fields: anyone who can write to Redis can publish anything."""
    row = first_row(rows)
    done, total, text = row.get("progress"), row.get("total"), row.get("message")
    if not isinstance(done, int | float) and not text:
        return None
    return {
        "progress": done if isinstance(done, int | float) else None,
        "total": total if isinstance(total, int | float) else None,
        "message": text[:500] if isinstance(text, str) else None,
    }
