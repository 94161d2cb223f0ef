"""Opening and closing sessions leaves nothing behind, whatever the transport; nor does a call. The same with 1,000
sessions each: tests/faults/run_cycles.py."""

import asyncio
import gc

import pytest

from sessions.transports.stdio import prepare_loop
from tests.sessions.cycling import KINDS, TOGETHER, cycle, holdings, left_behind, spec_of
from tests.sessions.transports.making import connected

pytestmark = pytest.mark.integration

CYCLES = 200
CALLS = 50


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_opened_and_closed_leave_no_descriptor_task_thread_or_process(kind: str) -> None:
    prepare_loop(asyncio.get_running_loop())
    with spec_of(kind) as spec:
        await cycle(spec, TOGETHER)  # what is made once for the process
        before = holdings()
        await cycle(spec, CYCLES)
        assert await left_behind(before) == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_finished_call_is_freed_without_a_collection_of_garbage(kind: str) -> None:
    with spec_of(kind) as spec:
        async with connected(spec, era="legacy") as made:
            await made.client.call_tool("echo", {"text": "once"})
            await asyncio.sleep(0.1)  # the tail of a reply's stream may still be read
            gc.collect()
            gc.disable()
            try:
                for _ in range(CALLS):
                    await made.client.call_tool("echo", {"text": "again"})
                await asyncio.sleep(0.1)
                assert gc.collect() < CALLS
            finally:
                gc.enable()
