"""A modern HTTP server whose listen streams the test controls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, Script, scripted_http

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
EVERYTHING: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}


@dataclass
class Listened:
    """One listen request, as the server sees it."""

    asked: Asked
    line: Line
    #: set when the client hangs up
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wished(self) -> dict[str, Any]:
        requested: dict[str, Any] = self.asked.message["params"]["notifications"]
        return requested

    async def acknowledge(self, subset: Any = None) -> None:
        notifications = self.wished if subset is None else subset
        await self.notify("subscriptions/acknowledged", notifications=notifications)

    async def notify(self, method: str, of: Any = None, **params: Any) -> None:
        """`of` is an id to send in place of the request's own."""
        meta = {SUBSCRIPTION_ID: self.asked.id if of is None else of}
        message = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": meta}}
        await self.line.event(message)

    async def finish(self) -> None:
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: self.asked.id}}
        await self.line.event({"jsonrpc": "2.0", "id": self.asked.id, "result": result})
        await self.line.end()
        self.ended.set()

    async def cancel(self) -> None:
        await self.notify("cancelled", requestId=self.asked.id)
        self.ended.set()

    def drop(self) -> None:
        self.line.reset()
        self.ended.set()


class Feeds:
    """`capabilities` is what the server declares. Each (code, status) in `refusals` refuses one listen request;
    later requests become streams."""

    def __init__(self, capabilities: dict[str, Any] | None = None) -> None:
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.refusals: list[tuple[int, int]] = []
        self.streams: asyncio.Queue[Listened] = asyncio.Queue()
        #: by method: results, error codes, and scripts of the test
        self.answers: dict[str, dict[str, Any]] = {}
        self.refusals_of: dict[str, int] = {}
        self.acts: dict[str, Script] = {}
        self.peer = Peer("")
        #: number of server/discover requests
        self.discovered = 0

    async def next(self, *, acknowledge: bool = True) -> Listened:
        """The client's next listen request."""
        async with asyncio.timeout(30):
            listened = await self.streams.get()
        if acknowledge:
            await listened.acknowledge()
        return listened

    async def script(self, asked: Asked, line: Line) -> None:
        if asked.method == "server/discover":
            self.discovered += 1
            await line.result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities})
        elif asked.method == "subscriptions/listen" and self.refusals:
            code, status = self.refusals.pop(0)
            await line.error(asked, code, status)
        elif asked.method == "subscriptions/listen":
            await self._listen(asked, line)
        elif asked.method in self.acts:
            await self.acts[asked.method](asked, line)
        elif asked.method in self.refusals_of:
            await line.error(asked, self.refusals_of[asked.method])
        elif asked.method in self.answers:
            await line.result(asked, self.answers[asked.method])
        else:
            await line.error(asked, -32601, 404)

    async def _listen(self, asked: Asked, line: Line) -> None:
        await line.stream()
        listened = Listened(asked, line)
        self.streams.put_nowait(listened)
        hung_up = asyncio.create_task(line.hang())
        ended = asyncio.create_task(listened.ended.wait())
        try:
            await asyncio.wait({hung_up, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if hung_up.done():
                listened.gone.set()
            for task in (hung_up, ended):
                task.cancel()
            await asyncio.gather(hung_up, ended, return_exceptions=True)


@asynccontextmanager
async def feeding(feeds: Feeds) -> AsyncIterator[str]:
    """Run the server; yields its URL."""
    async with scripted_http(feeds.script) as peer:
        feeds.peer = peer
        yield peer.url
