"""Long fault run: workers are killed at random instants with calls in flight. `make faults`"""

import pytest

from tests.faults.frozen_worker import freeze_workers
from tests.faults.size import FULL, judge
from tests.faults.worker_kills import kill_workers, kill_workers_at_real_times

pytestmark = [pytest.mark.up, pytest.mark.deadline(2_400)]


async def test_no_call_runs_twice_and_each_has_its_end_whenever_a_worker_dies() -> None:
    judge(await kill_workers(FULL))


async def test_a_worker_that_was_stalled_and_was_overtaken_sends_nothing_any_more() -> None:
    judge(await freeze_workers(FULL))


async def test_at_real_times_every_call_of_a_dead_worker_has_its_end_within_thirty_seconds() -> None:
    judge(await kill_workers_at_real_times(FULL))
