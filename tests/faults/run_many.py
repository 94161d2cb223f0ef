"""Long fault run: one worker serves 1,000 HTTP and 200 stdio sessions. `make faults`"""

import pytest

from tests.faults.many import many_sessions
from tests.faults.size import FULL, judge

pytestmark = [pytest.mark.up, pytest.mark.deadline(1_200)]


async def test_twelve_hundred_sessions_are_open_within_a_minute_and_gone_within_ten_seconds() -> None:
    judge(await many_sessions(FULL))
