"""What the audit writer does itself on SQLite: it takes turns with the writers of other processes, and it makes a commit
durable after it has released the database.

SQLite has one write lock for all processes. By default, it holds this lock while the disk writes (synchronous=FULL),
and a process that finds it taken sleeps for up to 100 ms between two attempts. And the commit that fills the log waits
until all of it is copied into the database file (an SQLite *checkpoint*).
"""

import fcntl
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from servers.threads import started

log = structlog.get_logger("mcpadmin.audit")
FULL = 2
NORMAL = 1
WAIT_SECONDS = 2.0
LOOK_SECONDS = 0.0005
#: how long a writer skips turns after a wait that timed out
ALONE_SECONDS = 30.0
#: from the first commit until the log is copied
COPY_SECONDS = 2.0
#: a log with more pages is restarted, which requires that no writer is active
LONG_LOG = 4_000
#: pages that may be copied while writers wait, and how often the rest is copied before that
FEW, TRIES = 200, 3
#: pages after which a commit copies the log itself, because nothing else did
NOT_COPIED = 64_000


class DurableLog:
    """The log of one connection in WAL mode with synchronous=FULL. From now on its commits are written, but not synced:
    call `sync` after each, and report nothing to the callers before it has returned.

    A sync of the log covers every earlier commit of every process, so no later one can survive a power failure without
    it (https://www.sqlite.org/wal.html, section 2.2).
    """

    def __init__(self, path: Path, cursor: Any) -> None:
        self._path = path
        cursor.execute(f"PRAGMA synchronous={NORMAL}")
        cursor.execute(f"PRAGMA wal_autocheckpoint={NOT_COPIED}")

    @classmethod
    def of(cls, database: str, cursor: Any) -> "DurableLog | None":
        """None if this connection does not promise durable commits (as in tests), or has no such log."""
        # SQLite resolves symbolic links: its log is next to the real file.
        mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
        promised = cursor.execute("PRAGMA synchronous").fetchone()[0] >= FULL
        return cls(Path(f"{os.path.realpath(database)}-wal"), cursor) if mode == "wal" and promised else None

    def sync(self) -> None:
        """Raises OSError: then it is unknown what a power failure would leave."""
        # Opened each time: the log is a different file after all processes have closed their last connection.
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            getattr(os, "fdatasync", os.fsync)(file)  # macOS has no fdatasync
        finally:
            os.close(file)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class WriteTurn:
    """A lock between the audit writers of all processes: a waiter checks again after a millisecond at most, not after
    the 100 ms of SQLite's own waiting.

    It only orders writers: SQLite's own lock protects the data, even from writers that do not take turns. So a process
    that hangs during its turn (stopped, or paused with its container) delays another one once, for WAIT_SECONDS.
    """

    def __init__(self, database: str) -> None:
        self._file = open(f"{database}-turn", "ab", opener=_private)  # noqa: SIM115  # as long as the process
        self._alone_until = 0.0

    def take(self) -> None:
        now = time.monotonic()
        deadline = now + WAIT_SECONDS
        while now >= self._alone_until and not self._taken():
            time.sleep(LOOK_SECONDS)  # flock can wait, but not with a deadline
            now = time.monotonic()
            if now > deadline:
                self._alone_until = now + ALONE_SECONDS

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def leave(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


class LogCopier:
    """Copies the log into the database file alongside the writers, with its own thread and connection."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._turn = WriteTurn(database)
        self._thread: threading.Thread | None = None

    def written(self) -> None:
        """Call after a commit. Never waits."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._copy_soon, name="log-copier", daemon=True)
            self._thread = thread if started(thread) else None  # the next commit tries again

    def _copy_soon(self) -> None:
        time.sleep(COPY_SECONDS)
        try:
            self.copy()
        except sqlite3.Error as problem:  # the next commit tries again
            log.warning("audit.log_not_copied", problem=str(problem))

    def copy(self) -> None:
        """Raises sqlite3.Error. Writers wait only if the log is long, and only while its last few pages are copied."""
        with closing(sqlite3.connect(self._database, timeout=0.0, isolation_level=None)) as connection:
            for _ in range(TRIES):
                pages, left = _copied(connection)
                if pages < LONG_LOG or left == 0:
                    return
                if left <= FEW:
                    break
            self._turn.take()
            try:
                _copied(connection)
            finally:
                self._turn.leave()


def _copied(connection: sqlite3.Connection) -> tuple[int, int]:
    """The pages of the log, and how many of them were not copied: they are new, or a reader needs them."""
    _, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages, pages - done
