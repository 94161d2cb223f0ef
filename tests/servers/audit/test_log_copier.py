"""SQLite's log is copied into the database file beside the writers, so that no commit has to."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from servers.audit.sqlite import LONG_LOG, LogCopier

PAGE = 4_096


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "log.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("CREATE TABLE rows (text BLOB)")
        yield connection


def pages(connection: sqlite3.Connection, count: int) -> None:
    connection.execute("INSERT INTO rows VALUES (zeroblob(?))", (count * PAGE,))


def log_bytes(tmp_path: Path) -> int:
    return (tmp_path / "log.sqlite3-wal").stat().st_size


def test_a_copied_log_begins_again_and_does_not_grow(writing: sqlite3.Connection, tmp_path: Path) -> None:
    copier = LogCopier(str(tmp_path / "log.sqlite3"))
    pages(writing, LONG_LOG + 100)
    longest = log_bytes(tmp_path)
    for _ in range(3):
        copier.copy()
        pages(writing, 50)
    assert log_bytes(tmp_path) == longest


def test_it_copies_beside_a_writer_that_has_not_committed(writing: sqlite3.Connection, tmp_path: Path) -> None:
    pages(writing, LONG_LOG + 100)
    size = (tmp_path / "log.sqlite3").stat().st_size
    writing.execute("BEGIN IMMEDIATE")
    pages(writing, 10)
    LogCopier(str(tmp_path / "log.sqlite3")).copy()
    assert (tmp_path / "log.sqlite3").stat().st_size >= size + LONG_LOG * PAGE
    writing.execute("COMMIT")
    assert writing.execute("SELECT COUNT(*) FROM rows").fetchone() == (2,)


def test_a_commit_is_done_although_no_thread_can_copy_the_log(
    writing: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("servers.audit.sqlite.COPY_SECONDS", 0.0)
    copier = LogCopier(str(tmp_path / "log.sqlite3"))
    pages(writing, 10)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        copier.written()
    copier.written()
    assert copier._thread is not None
    copier._thread.join(10)
    assert (tmp_path / "log.sqlite3").stat().st_size >= 10 * PAGE


def test_a_commit_asks_for_the_copy_once_until_it_is_made(
    writing: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servers.audit.sqlite.COPY_SECONDS", 0.05)
    copier = LogCopier(str(tmp_path / "log.sqlite3"))
    pages(writing, 10)
    copier.written()
    thread = copier._thread
    copier.written()
    assert copier._thread is thread
    assert thread is not None
    thread.join(10)
    assert (tmp_path / "log.sqlite3").stat().st_size >= 10 * PAGE
