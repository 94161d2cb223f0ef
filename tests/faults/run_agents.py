"""Long fault run: agents call while every part of mcpadmin is killed. `make faults ARGS=agents`"""

import pytest

from tests.faults.agents import kill_under_agents
from tests.faults.size import FULL, judge

pytestmark = [pytest.mark.up, pytest.mark.deadline(1_800)]


async def test_no_program_has_anything_done_twice_and_each_learns_what_became_of_its_calls() -> None:
    judge(await kill_under_agents(FULL))
