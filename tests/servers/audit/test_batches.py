"""The transactions of the retention take as many rows as fit into their time."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from servers.audit import commit
from servers.audit import writer as writing
from servers.audit.batches import BATCH_SECONDS, FEWEST, MOST, Batches, in_turn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


def test_a_slow_transaction_makes_the_next_one_small_and_fast_ones_make_it_grow_slowly() -> None:
    batches = Batches(1_000)
    batches.each(range(FEWEST), lambda part: time.sleep(10 * BATCH_SECONDS))
    slow = batches.size
    assert FEWEST <= slow <= 100
    batches.each(range(slow), lambda part: None)
    assert slow <= batches.size <= slow + slow // 4
    for _ in range(60):
        batches.each(range(batches.size), lambda part: None)
    assert batches.size <= MOST


class Noted(Batches):
    """Counts its transactions."""

    count = 0

    def _held(self, rows: int, seconds: float) -> None:
        super()._held(rows, seconds)
        self.count += 1


def test_a_transaction_whose_time_is_over_ends_and_the_next_one_goes_on_where_it_stopped() -> None:
    batches, parts = Noted(40), []

    def slow(part: Sequence[int]) -> None:
        parts.append(part)
        time.sleep(2 * BATCH_SECONDS)

    batches.each(range(40), slow)
    assert [key for part in parts for key in part] == list(range(40))
    assert batches.count == len(parts)
    assert [len(parts[0]), max(map(len, parts[1:])) <= 5] == [20, True]  # no more than fits, even with the same keys


def test_one_that_fails_changes_nothing() -> None:
    batches = Batches(100)
    with pytest.raises(ValueError, match="no"):
        batches.each(range(3), lambda part: int("no"))
    assert (batches.size, batches.held) == (100, 0.0)


def test_no_one_waits_for_the_disk_in_the_thread_that_commits_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that removes has its rows written, and a work that must be durable is still synced by the writer."""
    threads: list[str] = []

    class Log:
        def sync(self) -> None:
            threads.append(threading.current_thread().name)

    writing.writer().submit_and_wait(lambda: None)
    monkeypatch.setattr(commit, "_log", Log())
    Batches(3).each(range(3), lambda part: None)
    assert threads == [threading.current_thread().name]
    writing.writer().submit_and_wait(lambda: None)
    assert threads[1:] == ["audit-writer"]
    in_turn(lambda: None, lambda _: [], durable=False)  # what may have events
    assert threads[2:] == ["audit-writer"]
