"""Servers that answer the probe as real ones do, and a client that opens them."""

from typing import Any

import pytest

from sessions.mcp.core.errors import McpError
from sessions.mcp.core.results import Connected
from sessions.mcp.core.state import State

from .making import connected, http, unconnected
from .scripted_http import Asked, Line, Peer, Script, legacy, scripted_http

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def error_body(code: int, message: str = "no", *, identity: Any = None, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return {"jsonrpc": "2.0", "id": identity, "error": error}


async def no_call(asked: Asked, line: Line) -> None:
    await line.error(asked, -32601)


def probed(answer: Script, then: Script | None = None) -> Script:
    """A server with this answer to the probe, and `then` for everything else."""
    rest = then or legacy(no_call, session="5e55")

    async def script(asked: Asked, line: Line) -> None:
        await (answer if asked.method == "server/discover" else rest)(asked, line)

    return script


async def opened(script: Script, **more: Any) -> tuple[Connected, Peer]:
    spec_more = more.pop("spec", {})
    async with scripted_http(script) as peer, connected(http(peer.url, **spec_more), **more) as made:
        assert made.client.state is State.READY
        return made.connected, peer


async def refused(script: Script, **more: Any) -> tuple[McpError, Peer]:
    async with scripted_http(script) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(http(peer.url), **more).connect()
    return caught.value, peer


async def python_1_9_stateless(asked: Asked, line: Line) -> None:
    await line.error(asked, -32602, data="")


async def page(asked: Asked, line: Line) -> None:
    await line.reply(200, b"<!doctype html>", "text/html")


async def page_404(asked: Asked, line: Line) -> None:
    await line.reply(404, b"<!doctype html>", "text/html")


def moved_to_slash(then: Script) -> Script:
    async def script(asked: Asked, line: Line) -> None:
        if asked.path == "/mcp":
            await line.reply(307, kind="", Location="/mcp/")
        else:
            await then(asked, line)

    return script


def refusing(status: int, kind: str = "text/plain", body: bytes = b"no", get: Script | None = None) -> Script:
    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET" and get is not None:
            await get(asked, line)
        else:
            await line.reply(status, body, kind)

    return script


async def unsupported(asked: Asked, line: Line) -> None:
    await line.error(asked, -32022, 400, {"supported": ["2026-07-28"], "requested": "2025-11-25"})


async def unknown(asked: Asked, line: Line) -> None:
    await line.error(asked, -32601, 404)
