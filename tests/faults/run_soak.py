"""Long fault run: twenty minutes with a fault every two. `make soak`; SOAK_MINUTES sets another length."""

import pytest

from tests.faults.size import FULL, judge
from tests.faults.soak import soak

pytestmark = [pytest.mark.up, pytest.mark.deadline(3_600)]


async def test_nothing_grows_while_everything_around_breaks() -> None:
    judge(await soak(FULL))
