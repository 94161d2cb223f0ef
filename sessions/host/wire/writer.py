"""Writes the recorded wire of all sessions of a host."""

from collections.abc import Sequence

from sessions.host.batch_writer import BatchWriter
from sessions.host.wire.log import WireBatch, WireLog
from sessions.host.wire.store import append_all

#: limit for all sessions together
PENDING_BYTES = 64 * 1024 * 1024


class WireWriter(BatchWriter[WireBatch]):
    rows = 1_000
    share = 500
    # A commit for each call would cost more than its rows: within a second many calls share one.
    flush_seconds = 1.0
    pause_seconds = 0.1
    # Under load, a batch waits long for its turn and is written within milliseconds, so its duration says nothing.
    rest = 0.0

    #: bytes that wait in all logs
    pending_bytes = 0

    def has_room(self) -> bool:
        return self.pending_bytes < PENDING_BYTES

    def append(self, batches: Sequence[tuple[WireLog, WireBatch]]) -> None:
        append_all(batches)

    def written(self, batches: Sequence[tuple[WireLog, WireBatch]]) -> None:
        for source, taken in batches:
            source.newest = taken.newest or source.newest
