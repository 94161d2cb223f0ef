"""Long fault run: calls and owners survive outages of Redis and the database. `make faults`"""

import pytest

from tests.faults.outages import database_locked, redis_outages
from tests.faults.size import FULL, judge

pytestmark = [pytest.mark.up, pytest.mark.deadline(1_800)]


async def test_redis_killed_wiped_and_away_under_load_loses_no_call() -> None:
    judge(await redis_outages(FULL))


async def test_a_locked_database_refuses_calls_in_time_and_moves_no_session() -> None:
    judge(await database_locked(FULL))
