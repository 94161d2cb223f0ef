"""Long fault run: two hundred browsers miss nothing while the web process is killed. `make faults`"""

import pytest

from tests.faults.size import FULL, judge
from tests.faults.web_kills import kill_web

pytestmark = [pytest.mark.up, pytest.mark.deadline(2_400)]


async def test_every_browser_sees_each_event_once_whenever_the_web_process_dies() -> None:
    judge(await kill_web(FULL))
