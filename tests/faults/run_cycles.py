"""Long fault run: 1,000 sessions opened and closed on each transport leak nothing. `make faults`"""

import asyncio

import pytest

from sessions.mcp.transports.stdio import prepare_loop
from tests.sessions.cycling import KINDS, TOGETHER, cycle, holdings, left_behind, spec_of

CYCLES = 1_000
pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thousand_sessions_one_after_another_leave_nothing_behind(kind: str) -> None:
    prepare_loop(asyncio.get_running_loop())
    with spec_of(kind) as spec:
        await cycle(spec, TOGETHER)  # creates what a process creates once
        before = holdings()
        await cycle(spec, CYCLES)
        assert await left_behind(before) == {}
