"""Every scene of the hostile peers runs over every transport that it applies to. The call ends with exactly the
expected fault, memory stays bounded, and a healthy session in the same loop answers correctly throughout."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from sessions.mcp.core.errors import Fault
from sessions.mcp.core.events import EventsDropped, RequestRefused
from sessions.mcp.core.input_requests import InputRequest
from sessions.mcp.core.jsonrpc import INTERNAL_ERROR
from sessions.mcp.core.limits import MIB, Limits
from sessions.mcp.core.results import Timeouts
from tests.peers.hostile import scenarios
from tests.peers.hostile.calls import CALLS, FLOOD
from tests.peers.hostile.lists import LISTS
from tests.peers.hostile.scenarios import Scene
from tests.sessions.mcp.hostile.playing import (
    LASTING,
    PATIENT,
    SHORT,
    Neighbour,
    Outcome,
    baits_taken,
    hostile_http,
    neighbour,
    play,
    spec_of,
)
from tests.sessions.mcp.transports.making import connected

one_loop = pytest.mark.asyncio(loop_scope="module")

#: MiB by which a scene may raise our peak memory: in general, and in scenes with lists
GROWTH, GROWTH_OF_A_LIST = 32.0, 96.0
#: where the default limit would only make the test slower
LIMITS: dict[str, dict[str, Any]] = {
    "comments": {"stream_bytes": 2 * MIB},
    "empty-events": {"stream_bytes": 1 * MIB},
    "many-data-lines": {"sse_event_bytes": 2 * MIB},
    "endless-rounds": {"rounds": 2},
}


def played() -> Iterator[Any]:
    """Each scene over each transport. Short: each scene over one of its transports, and each row of the threat model
    over each transport that it applies to."""
    rows: set[tuple[str, str]] = set()
    short: set[tuple[str, str]] = set()
    for scene in scenarios.SCENES:
        chosen = next((transport for transport in scene.over if (scene.row, transport) not in rows), scene.over[0])
        rows.add((scene.row, chosen))
        short.add((scene.name, chosen))
    for scene, transport in scenarios.played():
        if (scene.row, transport) not in rows:
            rows.add((scene.row, transport))
            short.add((scene.name, transport))
        marks = [pytest.mark.long] * ((scene.name, transport) not in short)
        yield pytest.param(scene, transport, id=f"{scene.row}-{scene.name}-{transport}", marks=marks)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with hostile_http() as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside() -> AsyncIterator[Neighbour]:
    async with neighbour() as healthy:
        yield healthy


@one_loop
@pytest.mark.parametrize(("scene", "transport"), list(played()))
async def test_a_hostile_server_harms_its_own_call_only(
    scene: Scene, transport: str, base: str, beside: Neighbour
) -> None:
    limits, timeouts = Limits(**LIMITS.get(scene.name, {})), _timeouts(scene)
    usable = transport not in scene.ends
    async with asyncio.timeout(90):
        outcome = await play(transport, scene.name, base, beside, limits=limits, timeouts=timeouts, usable=usable)
    expected = scene.others.get(transport, scene.fault)
    assert (outcome.limited_by or outcome.fault) == expected, outcome
    assert outcome.usable == usable, outcome
    assert outcome.healthy > 0
    if not expected and not scene.lists:
        assert outcome.text == scene.text
    if scene.big:
        assert outcome.growth <= (GROWTH_OF_A_LIST if scene.lists else GROWTH), outcome
    _check_the_rest(scene.name, transport, outcome)


def _timeouts(scene: Scene) -> Timeouts:
    if scene.fault == "total_deadline":
        return LASTING
    return SHORT if scene.short else PATIENT


def _check_the_rest(name: str, transport: str, outcome: Outcome) -> None:
    """Check what only some scenes require."""
    events = outcome.events
    if name == "log-flood":
        assert EventsDropped.fault is Fault.EVENT_LIMIT
        assert events["LogMessage"] + outcome.dropped == FLOOD, "each is delivered or counted as dropped"
    elif name == "progress-flood":
        assert outcome.progress == FLOOD, "a caller sees all of its progress"
        assert events["Progress"] + outcome.dropped == FLOOD
    elif name == "answers-twice" and transport in scenarios.DUPLEX:
        assert events["ProtocolViolation"] == 1
    elif name == "foreign-ids":
        assert events["ProtocolViolation"] == 7
    elif name in ("progress-of-others", "progress-beyond-numbers"):
        assert events.get("Progress", 0) == (1 if name == "progress-beyond-numbers" else 0)
    elif name == "hostile-schemas":
        assert outcome.items == 6


@one_loop
async def test_nothing_that_a_server_named_was_fetched(base: str, beside: Neighbour) -> None:
    for name in ("phishing", "hostile-schemas"):
        assert (await play("http_sse", name, base, beside)).usable
    assert await asyncio.to_thread(baits_taken, base) == 0


def test_every_row_of_the_threat_model_is_played() -> None:
    assert {scene.row for scene in scenarios.SCENES} == set(scenarios.ROWS)


def test_every_scenario_of_the_peers_is_in_the_table() -> None:
    assert {scene.name for scene in scenarios.SCENES} >= set(CALLS) | set(LISTS)


@one_loop
@pytest.mark.parametrize("transport", scenarios.MANY)
async def test_of_a_flood_of_questions_only_as_many_as_allowed_reach_a_person(
    transport: str, base: str, beside: Neighbour
) -> None:
    asked: list[InputRequest] = []

    async def never(question: InputRequest) -> dict[str, Any]:
        asked.append(question)
        return await asyncio.get_running_loop().create_future()

    limits = Limits(open_server_requests=4, server_requests_per_minute=10)
    spec = spec_of(transport, "sampling-flood", base, limits)
    async with connected(spec, capabilities=None, answers={"sampling/createMessage": never}) as made:
        result = await made.client.call_tool("evil", {})
        await beside.ask()
        assert result.content == [{"type": "text", "text": "right"}]
        assert len(asked) == 4
        refused = made.of(RequestRefused)
        assert len([event for event in refused if event.code == INTERNAL_ERROR]) >= 1_900
