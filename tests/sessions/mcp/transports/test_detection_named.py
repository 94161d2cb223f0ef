"""The error -32022 over HTTP names the server's revisions, and the client uses one that it supports, whichever
request was refused."""

from typing import Any

import pytest

from sessions.mcp.core.errors import IncompatibleVersion

from .making import connected, http, unconnected
from .scripted_http import INITIALIZED, Asked, Line, Script, legacy, scripted_http

pytestmark = pytest.mark.integration


def refusing_all_but(revision: str, *, status: int = 400, discovers: bool = True) -> Script:
    """A server of one legacy revision, which it names to a client that asks for another."""
    as_usual = legacy(lambda asked, line: line.result(asked, {"content": []}))

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "server/discover" and discovers:
            await line.error(asked, -32022, status, {"supported": [revision], "requested": "2026-07-28"})
        elif asked.method == "initialize" and asked.message["params"]["protocolVersion"] != revision:
            requested = asked.message["params"]["protocolVersion"]
            await line.error(asked, -32022, status, {"supported": [revision], "requested": requested})
        elif asked.method == "initialize":
            await line.result(asked, INITIALIZED | {"protocolVersion": revision})
        else:
            await as_usual(asked, line)

    return script


def asked_for(peer: Any) -> list[str]:
    return [one.message["params"]["protocolVersion"] for one in peer.asked if one.method == "initialize"]


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("discovers", [True, False])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_legacy_revision_that_the_server_names_is_used(revision: str, discovers: bool, status: int) -> None:
    async with scripted_http(refusing_all_but(revision, status=status, discovers=discovers)) as peer:
        async with connected(http(peer.url)) as made:
            assert made.connected.revision == revision
        assert asked_for(peer)[-1] == revision
        assert len(asked_for(peer)) <= 2


async def test_a_server_that_names_only_what_no_one_speaks_is_incompatible_and_says_so() -> None:
    async with scripted_http(refusing_all_but("2023-01-01")) as peer:
        with pytest.raises(IncompatibleVersion, match="2023-01-01"):
            await unconnected(http(peer.url)).connect()
