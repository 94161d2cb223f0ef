"""On SQLite the audit writer syncs its commits itself, and takes turns with the writers of other processes."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from servers.audit import commit, sqlite, writer
from servers.audit.sqlite import NORMAL, DurableLog, WriteTurn
from servers.models import Server

SECONDS = 20.0


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "one.sqlite3")
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE line (text)")
        made.commit()
    return path


@pytest.fixture
def durable(database: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as made:
        made.execute("PRAGMA synchronous=FULL")
        yield made


def test_the_database_leaves_the_sync_of_a_durable_commit_to_the_writer(
    database: str, durable: sqlite3.Connection
) -> None:
    log = DurableLog.of(database, durable.cursor())
    assert log is not None
    assert durable.execute("PRAGMA synchronous").fetchone() == (NORMAL,)
    durable.execute("INSERT INTO line VALUES ('a')")
    durable.commit()
    log.sync()


def test_a_log_that_cannot_be_synced_is_an_error(database: str, durable: sqlite3.Connection) -> None:
    log = DurableLog.of(database, durable.cursor())
    Path(f"{database}-wal").unlink(missing_ok=True)
    assert log is not None
    with pytest.raises(OSError, match="No such file"):
        log.sync()


@pytest.mark.parametrize("pragma", ["synchronous=OFF", "synchronous=NORMAL", "journal_mode=DELETE"])
def test_a_connection_that_promises_less_is_left_as_it_is(
    database: str, durable: sqlite3.Connection, pragma: str
) -> None:
    durable.execute(f"PRAGMA {pragma}")
    before = durable.execute("PRAGMA synchronous").fetchone()
    assert DurableLog.of(database, durable.cursor()) is None
    assert durable.execute("PRAGMA synchronous").fetchone() == before


def test_a_second_writer_waits_until_the_first_has_left_its_turn(database: str) -> None:
    first, second, order = WriteTurn(database), WriteTurn(database), []
    first.take()

    def wait() -> None:
        second.take()
        order.append("second")
        second.leave()

    waiting = threading.Thread(target=wait)
    waiting.start()
    order.append("first")
    first.leave()
    waiting.join(SECONDS)
    assert order == ["first", "second"]


def test_a_writer_that_is_stalled_in_its_turn_holds_up_another_one_only_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WAIT_SECONDS", 0.01)
    still, other = WriteTurn(database), WriteTurn(database)
    still.take()
    other.take()
    monkeypatch.setattr(sqlite, "WAIT_SECONDS", 3600.0)
    other.take()  # without the memory of the first time this would wait for an hour
    still.leave()


def test_a_writer_that_died_in_its_turn_holds_up_no_other(database: str) -> None:
    dead = WriteTurn(database)
    dead.take()
    del dead  # the kernel releases the lock with the descriptor, as when the process is killed
    WriteTurn(database).take()


@pytest.mark.django_db(transaction=True)
def test_whether_a_change_was_made_is_unknown_when_the_disk_refuses_the_sync(
    durable: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = writer.Writer()
    try:
        product.submit_and_wait(lambda: None)  # opens the writer's connection
        monkeypatch.setattr(commit, "_log", DurableLog(tmp_path / "gone-wal", durable.cursor()))
        with pytest.raises(writer.AuditUnavailable, match="Check whether the change was made") as refusal:
            product.submit_and_wait(lambda: Server.objects.create(slug="a", name="A"))
        assert Server.objects.filter(slug="a").exists()
        assert not refusal.value.unchanged
    finally:
        product.stop()


def test_the_log_of_a_database_behind_a_symbolic_link_is_synced(tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite3"
    link.symlink_to("real.sqlite3")
    connection = sqlite3.connect(link)
    connection.execute("PRAGMA journal_mode=WAL")
    log = DurableLog.of(str(link), connection.cursor())
    connection.execute("CREATE TABLE t (id)")
    assert log is not None
    log.sync()
    connection.close()
