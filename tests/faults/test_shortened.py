"""Shortened fault runs pass, quickly enough for every change. `make faults` runs the full ones.

That the checkers find what a run without a safeguard leaves is long: test_checkers.py plants each fault in the history
of a run.
"""

import pytest

from tests.faults.agents import kill_under_agents
from tests.faults.field import set_up
from tests.faults.frozen_worker import freeze_workers, without_fence
from tests.faults.many import many_sessions
from tests.faults.outages import NODES, database_locked, redis_outages_of
from tests.faults.servers import flap, half_open
from tests.faults.size import SHORT, judge
from tests.faults.web_kills import kill_web
from tests.faults.worker_kills import kill_workers_of, without_claims

pytestmark = pytest.mark.up


async def test_neither_an_outage_of_redis_nor_a_killed_worker_loses_a_call_or_makes_a_duplicate() -> None:
    """One after the other on the same product, whose start takes longer than either."""
    async with set_up("Redis killed, wiped, away; worker SIGKILL", SHORT, workers=NODES) as field:
        judge(await redis_outages_of(field, SHORT))
        judge(await kill_workers_of(field, SHORT))


@pytest.mark.long
async def test_the_checkers_report_duplicates_when_the_claim_is_switched_off() -> None:
    found = {line.partition(":")[0] for line in await without_claims(SHORT)}
    assert "more_effects_than_attempts" in found


@pytest.mark.long
async def test_a_worker_that_was_stalled_and_was_overtaken_sends_nothing_any_more() -> None:
    judge(await freeze_workers(SHORT))


@pytest.mark.long
async def test_the_checkers_report_an_overtaken_owner_when_the_epoch_is_ignored() -> None:
    expected, found = {"sends_under_an_overtaken_epoch", "stdio servers alive"}, set[str]()
    for _ in range(3):  # whether the worker wakes while it still has something to send is a matter of moments
        found |= {line.partition(":")[0] for line in await without_fence(SHORT)}
        if expected <= found:
            return
    assert expected <= found


@pytest.mark.long
async def test_a_locked_database_refuses_calls_and_moves_no_session() -> None:
    judge(await database_locked(SHORT))


@pytest.mark.long
async def test_every_browser_sees_each_event_once_although_the_web_process_dies() -> None:
    judge(await kill_web(SHORT))


@pytest.mark.long
async def test_a_server_that_keeps_dying_costs_nothing_that_stays() -> None:
    judge(await flap(SHORT))


@pytest.mark.long
async def test_a_peer_that_says_nothing_any_more_is_found() -> None:
    judge(await half_open(SHORT))


@pytest.mark.long
async def test_many_sessions_leave_nothing_when_their_worker_is_killed() -> None:
    judge(await many_sessions(SHORT))


@pytest.mark.long
async def test_each_program_learns_what_became_of_its_calls_although_every_part_is_killed() -> None:
    judge(await kill_under_agents(SHORT))
