"""Servers that start slowly, for example because their launcher installs them first, are ready at the first attempt and
in the right era.

A real start takes 12 to 90 s. Here each second is 10 ms, both for the launcher and for the probe's timeout.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.core.events import DiagnosticLine
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.registry import StdioSpec
from tests.peers.peers import peer_command

from .making import SCRIPTS, FlowSecrets, connected, unconnected
from .stdio_calls import call

pytestmark = pytest.mark.integration

LAUNCHER = Path(__file__).parents[3] / "peers" / "late_start.py"
SCALE = 0.01
#: 5 s (scaled) for the probe; the rest is far more than this machine needs
TIMEOUTS = Timeouts(probe=5 * SCALE, silence=60, initialize=60, request=60, tool=60)


def slow(seconds: float, manner: str, command: str, *args: str, log: Path | None = None) -> StdioSpec:
    """A server behind the launcher. `log` gets a line for each start."""
    if log is not None:
        noted = f'echo started >> "{log}"; exec "$@"'
        return StdioSpec("/bin/sh", ("-c", noted, "sh", *_launched(seconds, manner, command, *args)))
    program, *rest = _launched(seconds, manner, command, *args)
    return StdioSpec(program, tuple(rest))


def _launched(seconds: float, manner: str, command: str, *args: str) -> list[str]:
    return [sys.executable, str(LAUNCHER), str(seconds * SCALE), manner, command, *args]


def scripted(*ways: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / "server.py"), *ways]


def starts(log: Path) -> int:
    return len(log.read_text().splitlines())


def era_of(made: FlowSecrets) -> str:
    return str(made.connected.era)


@pytest.mark.parametrize("manner", ["silent", "chatty", "noisy"])
@pytest.mark.parametrize(
    "seconds", [12, pytest.param(24, marks=pytest.mark.long), pytest.param(45, marks=pytest.mark.long), 90]
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_that_starts_slowly_is_ready_at_the_first_try_in_its_era(
    era: str, seconds: float, manner: str, tmp_path: Path
) -> None:
    ways = ["modern", "no-initialize"] if era == "modern" else []
    spec = slow(seconds, manner, *scripted(*ways), log=tmp_path / "starts")
    async with connected(spec, timeouts=TIMEOUTS) as made:
        assert era_of(made) == era
        assert made.connected.remember is not None
        if era == "legacy":
            assert await call(made, "echo", text="there") == "there"
    assert starts(tmp_path / "starts") == 1


@pytest.mark.parametrize(
    ("peer", "era"),
    [
        ("sdk1", "legacy"),
        pytest.param("sdk1_9", "legacy", marks=pytest.mark.long),
        pytest.param("sdk1_12", "legacy", marks=pytest.mark.long),
        ("ts", "legacy"),
        pytest.param("everything", "legacy", marks=pytest.mark.long),  # on the SDK of the one above
        ("sdk2", "modern"),
        ("ts2", "modern"),
        pytest.param("fastmcp", "modern", marks=pytest.mark.long),
    ],
)
async def test_a_slow_server_on_each_sdk_is_ready_at_the_first_try_in_its_era(
    peer: str, era: str, tmp_path: Path
) -> None:
    command, args = peer_command(peer)
    spec = slow(45, "chatty", command, *args, log=tmp_path / "starts")
    async with connected(spec, timeouts=TIMEOUTS) as made:
        assert era_of(made) == era
        assert made.connected.remember is not None
        assert (await made.client.list_tools()).items
    assert starts(tmp_path / "starts") == 1


@pytest.mark.parametrize("peer", [pytest.param("sdk1_2", marks=pytest.mark.long), "sdk1_8"])
async def test_a_slow_server_that_an_unknown_request_kills_is_started_once_more_and_used(
    peer: str, tmp_path: Path
) -> None:
    command, args = peer_command(peer)
    async with connected(slow(24, "silent", command, *args, log=tmp_path / "starts"), timeouts=TIMEOUTS) as made:
        assert era_of(made) == "legacy"
        assert (await made.client.list_tools()).items
    assert starts(tmp_path / "starts") == 2


async def test_fifteen_servers_that_start_together_are_all_ready_at_the_first_try_in_their_eras(
    tmp_path: Path,
) -> None:
    eras = ["modern", "legacy", "legacy"] * 5

    async def era(number: int) -> str:
        ways = ["modern", "no-initialize"] if eras[number] == "modern" else []
        async with connected(
            slow(12, "silent", *scripted(*ways), log=tmp_path / f"{number}"), timeouts=TIMEOUTS
        ) as made:
            return era_of(made)

    assert await asyncio.gather(*map(era, range(15))) == eras
    assert [starts(tmp_path / f"{number}") for number in range(15)] == [1] * 15


async def test_an_era_that_a_time_out_decided_is_used_and_not_remembered() -> None:
    async with connected(slow(0, "silent", *scripted("ignores-probe")), timeouts=TIMEOUTS) as made:
        assert (era_of(made), made.connected.remember) == ("legacy", None)
        assert "none to server/discover" in made.connected.decided_by
        assert await call(made, "echo", text="there") == "there"


async def test_a_child_that_says_nothing_on_stdout_lives_until_the_connect_time_out_and_is_started_once(
    tmp_path: Path,
) -> None:
    events: list[Any] = []
    brief = Timeouts(probe=0.05, silence=1.5, initialize=1.5)
    script = [sys.executable, str(SCRIPTS / "first_words.py"), "silent"]
    client = unconnected(slow(1, "chatty", *script, log=tmp_path / "starts"), events, timeouts=brief)
    with pytest.raises(TransportError) as caught:
        await client.connect()
    assert caught.value.fault is Fault.TIMEOUT
    assert "raise its connect timeout" in caught.value.detail
    assert "set its era to legacy" in caught.value.detail
    assert DiagnosticLine("stderr", "fetching package 10 of 10") in events
    assert starts(tmp_path / "starts") == 1


async def test_a_modern_server_that_refuses_initialize_before_it_answers_the_probe_is_modern() -> None:
    patient = replace(TIMEOUTS, probe=0.5)  # many times what lies between the refusal and the answer, on any machine
    async with connected(slow(0, "silent", *scripted("modern", "late-discovery")), timeouts=patient) as made:
        assert era_of(made) == "modern"
