"""The request behind a response: its headers, its body, and the moment when the agent disconnects."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from servers import limits
from servers.agents.addresses import PREFIX
from sessions.mcp.core import jsonrpc
from sessions.mcp.server.refusals import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Disconnected(Exception):
    """The agent disconnected before its request had arrived."""


class Connection:
    """`scope`: of ASGI, with `client_ip` and `backlog` added by our web server."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.slug = str(scope["path"]).removeprefix(PREFIX).strip("/")
        self.headers: Mapping[str, str] = _joined(scope["headers"])
        self.address = str(scope.get("client_ip") or (scope.get("client") or [""])[0])
        self.backlog: Callable[[], int] = scope.get("backlog", lambda: 0)
        self.request_id = uuid.uuid4().hex
        self.closed = False
        #: which part of mcpadmin its response is waiting for, for the log; empty while it may legitimately take long
        self.step = ""
        self._receive = receive
        self._callbacks: list[Callable[[], None]] = []

    async def body(self) -> bytes:
        """Read the whole body. Raises Refusal (413) and Disconnected."""
        most, parts, size = limits.number("agent_body_bytes"), [], 0
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:18]) > most:
            raise _too_large()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    async def watch(self) -> None:
        """Run until the agent disconnects. Call it after the whole body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.closed = True
        for callback in self._callbacks:
            callback()

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)


def _joined(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Join repeated headers as described in RFC 9110."""
    found: dict[str, str] = {}
    for raw_name, raw_value in lines:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _too_large() -> Refusal:
    return Refusal(413, jsonrpc.INVALID_REQUEST, f"The request is too large. {limits.stated('agent_body_bytes')}")


def too_many_values() -> Refusal:
    words = f"The request contains too many JSON values. {limits.stated('agent_body_values')}"
    return Refusal(413, jsonrpc.INVALID_REQUEST, words)
