"""Opening and closing sessions leaks nothing on any transport, nor does a call. tests/faults/run_cycles.py repeats
this with 1,000 sessions each."""

import asyncio
import gc
from typing import Any

import pytest

from sessions.mcp.transports.stdio import prepare_loop
from tests.sessions.cycling import (
    KINDS,
    TOGETHER,
    cycle,
    holdings,
    left_behind,
    older_objects_stay,  # noqa: F401  a fixture
    spec_of,
)
from tests.sessions.mcp.transports.making import connected

pytestmark = pytest.mark.integration

CYCLES = 12
CALLS = 20


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_opened_and_closed_leave_no_descriptor_task_thread_or_process(kind: str) -> None:
    prepare_loop(asyncio.get_running_loop())
    with spec_of(kind) as spec:
        await cycle(spec, TOGETHER)  # creates what the process creates only once
        for _ in range(2):  # a thread of an earlier test may start something once, but not in both rounds
            before = holdings()
            await cycle(spec, CYCLES)
            if not (left := await left_behind(before)):
                break
        assert left == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_finished_call_is_freed_without_a_collection_of_garbage(kind: str) -> None:
    with spec_of(kind) as spec:
        async with connected(spec, era="legacy") as made:
            await made.client.call_tool("echo", {"text": "once"})
            await asyncio.sleep(0.1)  # the end of a reply's stream may still be unread
            for _ in range(2):  # a thread of an earlier test may leave some, but not in both rounds
                garbage = await left_by_calls(made.client)
                if garbage < CALLS:
                    break
            assert garbage < CALLS


async def left_by_calls(client: Any) -> int:
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            await client.call_tool("echo", {"text": "again"})
        await asyncio.sleep(0.1)
        return gc.collect()
    finally:
        gc.enable()
