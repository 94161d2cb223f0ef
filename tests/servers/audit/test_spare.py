"""The transactions of the retention take as many rows as fit into their time."""

import time
from collections.abc import Iterator

import pytest

from servers.audit import writer as writing
from servers.audit.spare import BATCH_SECONDS, FEWEST, MOST, Batches

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


def test_a_slow_transaction_makes_the_next_one_small_and_fast_ones_make_it_grow_slowly() -> None:
    batches = Batches(1_000)
    batches.write(lambda: time.sleep(10 * BATCH_SECONDS))
    slow = batches.size
    assert FEWEST <= slow <= 100
    batches.write(lambda: None)
    assert slow <= batches.size <= slow + slow // 4
    for _ in range(60):
        batches.write(lambda: None)
    assert batches.size <= MOST


def test_one_that_fails_changes_nothing() -> None:
    batches = Batches(100)
    with pytest.raises(ValueError, match="no"):
        batches.write(lambda: int("no"))
    assert (batches.size, batches.held) == (100, 0.0)
