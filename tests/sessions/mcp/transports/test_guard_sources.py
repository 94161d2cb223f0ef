"""Addresses that a server supplies, in redirects and in the `endpoint` event, never open an internal socket (R3)."""

import ipaddress

import pytest

from sessions.mcp.core.errors import McpError
from sessions.mcp.transports.egress import Allow, OutboundPolicy
from sessions.mcp.transports.registry import Spec

from .making import http, unconnected
from .scripted_http import Asked, Line, Peer, scripted_http
from .scripted_sse import SseServer
from .test_egress import Listener, listener

__all__ = ["listener"]
pytestmark = pytest.mark.integration

INTERNAL = [
    "127.0.0.1",
    "2130706433",
    "0x7f.1",
    "127.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "ok@127.0.0.1",
    "0",
]


def only(peer: Peer) -> OutboundPolicy:
    """Allow only the test's server, and nothing else on this machine."""
    port = int(peer.url.rpartition(":")[2].partition("/")[0])
    return OutboundPolicy(allow=(Allow(ipaddress.ip_network("127.0.0.0/8"), port),))


async def refused(spec: Spec, listener: Listener) -> None:
    client = unconnected(spec)
    with pytest.raises(McpError):
        await client.connect()
    await client.close()
    assert await listener.reached_only_by_us()


@pytest.mark.parametrize("kind", ["http", "http_sse"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_reaches_nothing_internal(status: int, kind: str, listener: Listener) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(status, Location=f"http://localhost:{listener.port}/mcp")

    async with scripted_http(script) as peer:
        more = {"kind": kind} if kind == "http_sse" else {}
        await refused(http(peer.url, policy=only(peer), **more), listener)
        assert peer.asked


@pytest.mark.parametrize("host", INTERNAL)
@pytest.mark.parametrize("kind", ["http", "http_sse"])
async def test_no_spelling_in_a_redirect_reaches_anything_internal(host: str, kind: str, listener: Listener) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(307, Location=f"http://{host}:{listener.port}/mcp")

    async with scripted_http(script) as peer:
        more = {"kind": kind} if kind == "http_sse" else {}
        await refused(http(peer.url, policy=only(peer), **more), listener)
        assert peer.asked


@pytest.mark.parametrize("host", INTERNAL)
async def test_no_spelling_in_an_endpoint_event_reaches_anything_internal(host: str, listener: Listener) -> None:
    server = SseServer(endpoint=f"http://{host}:{listener.port}/messages")
    async with scripted_http(server.script) as peer:
        await refused(http(peer.url, policy=only(peer), kind="http_sse"), listener)
        assert server.opened
