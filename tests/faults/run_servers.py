"""Long fault run: the product survives servers that flap, go silent and flood. `make faults`"""

import pytest

from tests.faults.flood import flood
from tests.faults.servers import flap, half_open
from tests.faults.size import FULL, judge

pytestmark = [pytest.mark.up, pytest.mark.deadline(2_400)]


async def test_a_server_that_dies_a_thousand_times_costs_nothing_that_stays() -> None:
    judge(await flap(FULL))


async def test_a_connection_that_leads_nowhere_is_found_in_time() -> None:
    judge(await half_open(FULL))


async def test_a_flooding_server_leaves_its_neighbour_alone() -> None:
    judge(await flood(FULL))
