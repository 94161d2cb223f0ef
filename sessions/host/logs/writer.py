"""Writes the log lines of all sessions of a host."""

from collections.abc import Sequence
from typing import Protocol

from sessions.connections.lifecycle import Lease
from sessions.host.batch_writer import BatchWriter, Source
from sessions.host.logs.line import LogBatch
from sessions.host.logs.store import append_all


class SessionLog(Source[LogBatch], Protocol):
    """The log of one session."""

    lease: Lease


class LogWriter(BatchWriter[LogBatch]):
    def append(self, batches: Sequence[tuple[SessionLog, LogBatch]]) -> None:
        append_all([(source.lease, taken.to_write) for source, taken in batches if taken.to_write])
