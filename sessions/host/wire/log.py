"""The recorded wire of one session until it is written: bounded by number and size. What does not fit is dropped and
counted."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sessions.connections.lifecycle import Lease
from sessions.enums import WireDirection, WireKind

if TYPE_CHECKING:
    from sessions.host.wire.writer import WireWriter

PENDING_LIMIT = 4_000
PENDING_BYTES = 8 * 1024 * 1024
#: what a row takes besides its texts
ROW_BYTES = 300


@dataclass(slots=True, eq=False)
class WireEntry:
    """A row of the log before it is numbered; its secrets are masked. The fields are those of WireMessage."""

    direction: WireDirection
    kind: WireKind
    connection: int = 0
    transport: str = ""
    exchange: int | None = None
    method: str = ""
    target: str = ""
    rpc_id: str = ""
    call_uid: UUID | None = None
    status: int | None = None
    fault: str = ""
    detail: str = ""
    duration_ms: float | None = None
    size: int = 0
    headers: str = ""
    body: str = ""
    cut: bool = False
    sealed: bytes | None = None
    key_id: str = ""
    uid: UUID | None = None
    at: datetime = field(default_factory=partial(datetime.now, UTC))
    #: the body is encrypted when it is written
    to_seal: bool = False
    #: on its way to the database, so it must not change
    taken: bool = False
    #: bytes that were counted when it was added; an exchange may change until it is taken
    counted: int = 0
    #: the number of its row in the last attempt to write it; whether that was committed may be unknown
    seq: int | None = None

    @property
    def stored_bytes(self) -> int:
        texts = len(self.headers) + len(self.target) + len(self.detail)
        return ROW_BYTES + texts + len(self.body) + len(self.sealed or b"")


@dataclass(slots=True, eq=False)
class WireBatch:
    """`dropped` messages were not recorded before these. After it was appended, `newest` is the last number and position
    of the log."""

    entries: list[WireEntry]
    dropped: int
    to_write: list[WireEntry]
    newest: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        return len(self.entries)


class WireLog:
    def __init__(self, writer: "WireWriter", lease: Lease) -> None:
        self.lease = lease
        self.under_way: asyncio.Future[Any] | None = None
        #: number and position of the newest row, once this owner knows them: no one else writes to this log
        self.newest: tuple[int, int] | None = None
        self._writer = writer
        self._pending: deque[WireEntry] = deque()
        self._bytes = self._dropped = 0

    def has_room(self) -> bool:
        """Whether another message fits. If not, it must be dropped, so it need not be prepared."""
        return len(self._pending) < PENDING_LIMIT and self._bytes < PENDING_BYTES and self._writer.has_room()

    def add(self, entry: WireEntry) -> None:
        self._pending.append(entry)
        entry.counted = entry.stored_bytes
        self._count(entry.counted)
        self._writer.wake(self)

    def drop(self, count: int = 1) -> None:
        self._dropped += count
        self._writer.wake(self)

    async def close(self) -> None:
        """Write the waiting entries."""
        await self._writer.finish(self)

    # --- for the writer ----------------------------------------------------------------------------------------------
    @property
    def waits(self) -> bool:
        return bool(self._pending or self._dropped)

    def take(self, most: int | None = None) -> WireBatch:
        """The oldest entries, up to `most`; without it all of them."""
        count = len(self._pending) if most is None else min(most, len(self._pending))
        entries = [self._pending.popleft() for _ in range(count)]
        for entry in entries:
            entry.taken = True
        self._count(-sum(entry.counted for entry in entries))
        dropped = 0
        if not self._pending:  # they came after all waiting entries
            dropped, self._dropped = self._dropped, 0
        return WireBatch(entries, dropped, [*entries, *_notice(dropped)])

    def put_back(self, taken: WireBatch) -> None:
        """The entries may have been committed anyway: the next batch asks the database for the newest row."""
        self.newest = None
        self._pending.extendleft(reversed(taken.entries))
        self._count(sum(entry.counted for entry in taken.entries))
        self._dropped += taken.dropped
        while len(self._pending) > PENDING_LIMIT:
            self._count(-self._pending.popleft().counted)
            self._dropped += 1

    def _count(self, size: int) -> None:
        self._bytes += size
        self._writer.pending_bytes += size


def _notice(dropped: int) -> list[WireEntry]:
    if not dropped:
        return []
    words = "1 message was" if dropped == 1 else f"{dropped:,} messages were"
    detail = f"{words} not recorded: they arrived faster than they could be written."
    return [WireEntry(WireDirection.RECEIVED, WireKind.DROPPED, detail=detail, size=dropped, taken=True)]
