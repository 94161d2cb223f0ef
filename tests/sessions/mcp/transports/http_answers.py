"""Wrong answers to a request, and a call that receives one."""

from typing import Any

import pytest

from sessions.mcp.core.errors import McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.state import State

from .making import SMALL, connected, http
from .scripted_http import Asked, Line, Script, legacy, modern, scripted_http

OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}
ERAS = [pytest.param(legacy, id="legacy"), pytest.param(modern, id="modern")]


async def fail_call(
    script: Script, *, limits: Limits = SMALL, then_fine: bool = True, **more: Any
) -> tuple[McpError, Any]:
    """The error of one call against this script, and the peer. The session must stay usable."""
    async with scripted_http(script) as peer:
        async with connected(http(peer.url, limits=limits), **more) as made:
            with pytest.raises(McpError) as caught:
                await made.client.call_tool("t", {"a": 1})
            assert made.client.in_flight == 0
            if then_fine:
                await made.client.ping()
                assert made.client.state is State.READY
        return caught.value, peer


async def html(asked: Asked, line: Line) -> None:
    await line.reply(200, b"<!doctype html>", "text/html; charset=utf-8")


async def empty(asked: Asked, line: Line) -> None:
    await line.reply(200, b"")


async def rubbish(asked: Asked, line: Line) -> None:
    await line.reply(200, b"this is } not { JSON \x00\xff")


async def reset(asked: Asked, line: Line) -> None:
    line.reset()


async def no_http(asked: Asked, line: Line) -> None:
    await line.raw(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
    line.reset()


#: messages that cannot be an answer, whatever they were meant to be
NO_ANSWERS = [
    '{"jsonrpc":"2.0","method":"notifications/message","params":["started"]}',
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":NaN,"error":1}}',
    '{"jsonrpc":"2.0","id":null,"method":"notifications/tools/list_changed","params":[]}',
    '{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}',
    '{"jsonrpc":"2.0","method":7}',
    '{"jsonrpc":"2.0"}',
    "{}",
]
#: the same in a stream of events, where each event counts as a message
NO_ANSWERS_OF_A_STREAM = [*NO_ANSWERS, "ping", "[DONE]", "null", "[]"]
