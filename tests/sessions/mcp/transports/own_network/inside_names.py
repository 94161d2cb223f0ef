"""DNS names whose address changes, under every transport, redirect, endpoint event and webhook."""

import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from servers.secret import Secret
from sessions.host.subscriptions.webhook_sender import attempt
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec, Spec, WebSocketSpec
from sessions.subscriptions.webhooks import Claimed

from ..making import unconnected
from ..scripted_http import Asked, Line, Script, legacy, scripted_http
from ..scripted_sse import SseServer
from ..scripted_websocket import scripted_websocket
from .answers import EACH, TRIES
from .conftest import Tls
from .names import Names
from .wall import PUBLIC, Wall

NAME = "turning.here.test"
KINDS = ["http", "https", "http_sse", "websocket", "wss"]
BOTH = pytest.mark.parametrize("kind", KINDS)


def closing(script: Script) -> Script:
    """Close the connection after each request, so that each needs a new lookup."""

    async def once(asked: Asked, line: Line) -> None:
        setattr(line, "reply", partial(line.reply, Connection="close"))  # noqa: B010 - for this request only
        await script(asked, line)
        raise ConnectionResetError

    return once


async def no_call(asked: Asked, line: Line) -> None:
    await line.error(asked, -32601)


@asynccontextmanager
async def public_server(kind: str, tls: Tls, script: Script | None = None) -> AsyncIterator[None]:
    """A server of this kind of transport at the public address."""
    secure = kind in ("https", "wss")
    where: dict[str, Any] = {"host": PUBLIC, "port": 443 if secure else 8080, "reuse_port": True}
    async with AsyncExitStack() as stack:
        if kind in ("websocket", "wss"):
            await stack.enter_async_context(scripted_websocket(tls=tls.server if secure else None, **where))
        else:
            usual = SseServer().script if kind == "http_sse" else legacy(no_call)
            context = {"ssl": tls.server} if secure else {}
            await stack.enter_async_context(scripted_http(closing(script or usual), **where, **context))
        yield


def spec(kind: str, context: ssl.SSLContext, host: str = NAME) -> Spec:
    """The spec as the product makes it, with its default policy."""
    common: dict[str, Any] = {"policy": OutboundPolicy(), "tls": context}
    if kind in ("websocket", "wss"):
        return WebSocketSpec(f"wss://{host}/mcp" if kind == "wss" else f"ws://{host}:8080/mcp", **common)
    url = f"https://{host}/mcp" if kind == "https" else f"http://{host}:8080/mcp"
    return HttpSpec(url, **common, kind="http_sse" if kind == "http_sse" else "auto")


async def use(one: Spec, *, look_first: bool) -> Fault | None:
    """Connect and list tools as a session does; return the fault that ended it."""
    client = unconnected(one)
    try:
        await client.connect((lambda step: None) if look_first else None)
        await client.list_tools()
    except McpError as error:
        return error.fault
    finally:
        await client.close()
    return None


@EACH
@BOTH
@pytest.mark.parametrize("look_first", [True, False], ids=["looked", "straight"])
async def test_a_name_that_turns_inside_is_refused_from_then_on(
    kind: str, answers: list[list[str]], look_first: bool, names: Names, wall: Wall, tls: Tls
) -> None:
    names.zone[NAME] = answers
    async with public_server(kind, tls):
        faults = [await use(spec(kind, tls.client), look_first=look_first) for _ in range(TRIES)]
    assert faults[-1] is Fault.ADDRESS_REFUSED, faults
    assert set(faults) <= {None, Fault.DNS_FAILED, Fault.ADDRESS_REFUSED}
    assert await wall.reached() == set()


@BOTH
async def test_a_server_whose_name_stays_public_is_used(kind: str, names: Names, wall: Wall, tls: Tls) -> None:
    """The control: only the addresses make the difference."""
    names.zone[NAME] = [[PUBLIC]]
    async with public_server(kind, tls):
        assert await use(spec(kind, tls.client), look_first=True) is None
    assert names.lookups(NAME) >= 1


@BOTH
async def test_the_wall_sees_who_is_let_through(kind: str, names: Names, wall: Wall, tls: Tls) -> None:
    """The control of the counting: without a guard the internal address is reached."""
    names.zone[NAME] = [["10.0.0.5"]]
    opened = spec(kind, tls.client)
    object.__setattr__(opened, "policy", OutboundPolicy(allow_private=True))
    assert await use(opened, look_first=False) is not None
    assert await wall.reached() == {f"10.0.0.5 {443 if kind in ('https', 'wss') else 8080}"}


@EACH
@pytest.mark.parametrize("kind", ["http", "http_sse"])
async def test_a_redirect_to_a_name_that_turns_inside_reaches_nothing(
    kind: str, answers: list[list[str]], names: Names, wall: Wall, tls: Tls
) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(307, Location=f"http://{NAME}:8080/mcp/again")

    names.zone[NAME] = answers
    async with public_server(kind, tls, script):
        for host in (NAME, "mcp.here.test", *[NAME] * TRIES):
            assert await use(spec(kind, tls.client, host), look_first=False) is not None
    assert await wall.reached() == set()


@EACH
async def test_an_endpoint_event_with_a_name_that_turns_inside_reaches_nothing(
    answers: list[list[str]], names: Names, wall: Wall, tls: Tls
) -> None:
    names.zone[NAME] = answers
    server = SseServer(endpoint=f"http://{NAME}:8080/messages")
    async with public_server("http_sse", tls, server.script):
        for host in (*[NAME] * TRIES, "mcp.here.test"):
            await use(spec("http_sse", tls.client, host), look_first=False)
    assert server.opened
    assert await wall.reached() == set()


def message(url: str) -> Claimed:
    return Claimed(1, uuid.uuid4(), 1, url, b"{}", Secret("whsec_MDEyMzQ1Njc4OWFiY2RlZg=="))


@EACH
async def test_a_webhook_to_a_name_that_turns_inside_reaches_nothing(
    answers: list[list[str]], names: Names, wall: Wall, tls: Tls, settings: Any
) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(307, Location="http://internal.test:8080/")

    settings.ALLOW_LOOPBACK, settings.ALLOWED_NETWORKS = False, []
    names.zone[NAME] = answers
    async with public_server("http", tls, script):
        outcomes = [await attempt(message(f"http://{NAME}:8080/hook")) for _ in range(TRIES)]
    assert "outbound guard blocks" in outcomes[-1].detail
    assert not any(outcome.delivered for outcome in outcomes)
    assert (await wall.reached(), names.lookups("internal.test")) == (set(), 0)
