"""An MCP client for one server: joins the protocol machine to a transport in one event loop.

(signatures first; bodies follow)
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from .protocol.capabilities import Implementation
from .protocol.errors import McpError
from .protocol.events import Event
from .protocol.limits import Limits
from .protocol.results import Connected, Listing, Step, Timeouts, ToolResult
from .protocol.state import State
from .transports.base import Transport

BeforeSend = Callable[[int, str], Awaitable[None]]
OnProgress = Callable[[float, float | None, str | None], None]


class Client:
    """One live handle on one server. Not reusable: after `close()` or a loss make a new one.

    All methods belong to the loop in which `connect()` ran. `on_event` is called from the reader: it must
    return at once (put into a bounded queue). Every method raises McpError only (and CancelledError).
    """

    closed: "asyncio.Future[McpError | None]"
    """Done when the connection is over: the reason of a loss, or None after `close()`. Never raises."""

    def __init__(
        self,
        open_transport: Callable[[], Awaitable[Transport]],
        *,
        client_info: Implementation,
        capabilities: Mapping[str, Any],
        limits: Limits = Limits(),
        timeouts: Timeouts = Timeouts(),
        era: Literal["auto", "legacy", "modern"] = "auto",
        on_event: Callable[[Event], None],
    ) -> None: ...

    @property
    def state(self) -> State: ...

    async def connect(self, on_step: Callable[[Step], None] | None = None) -> Connected:
        """Open the transport, settle the era and revision. Steps: resolve, connect, handshake."""

    async def list_tools(self) -> Listing: ...
    async def list_resources(self) -> Listing: ...
    async def list_resource_templates(self) -> Listing: ...
    async def list_prompts(self) -> Listing: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        before_send: BeforeSend | None = None,
        input_schema: Mapping[str, Any] | None = None,
        tag: Any = None,
    ) -> ToolResult:
        """`before_send(n, reason)` is awaited right before the bytes of attempt n leave (n from 1; reason
        "first", "session_gone", "header_mismatch"). `tag` comes back in Progress and LateAnswer events.
        Cancelling the awaiting task cancels the request at the server as the era wants it."""

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> dict[str, Any]: ...
    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], *, timeout: float | None = None
    ) -> dict[str, Any]: ...
    async def complete(
        self,
        ref: Mapping[str, Any],
        argument: Mapping[str, str],
        context: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    async def ping(self, *, timeout: float | None = None) -> float:
        """Seconds of one round trip (legacy: ping; modern: server/discover)."""

    async def close(self) -> None: ...
