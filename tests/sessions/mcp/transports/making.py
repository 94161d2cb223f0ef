"""Creates clients for tests and guarantees that they are closed."""

import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sessions.mcp.client import Client
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.events import Event
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Connected, Timeouts
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec, Spec, StdioSpec, open_transport

SCRIPTS = Path(__file__).parent / "stdio_scripts"
LOCAL = OutboundPolicy(allow_loopback=True)
#: far more than a healthy machine needs, so that only a hang reaches it
PATIENT = Timeouts(probe=30, initialize=60, request=60, tool=60, total=120)


@dataclass
class FlowSecrets:
    client: Client
    connected: Connected
    events: list[Event] = field(default_factory=list)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


def http(url: str, **more: Any) -> HttpSpec:
    return HttpSpec(url, **{"policy": LOCAL, **more})


def script(name: str, *args: str, **more: Any) -> StdioSpec:
    """A throw-away stdio server of stdio_scripts/."""
    return StdioSpec(sys.executable, (str(SCRIPTS / f"{name}.py"), *args), **more)


def unconnected(spec: Spec, events: list[Event] | None = None, **more: Any) -> Client:
    limits = more.pop("limits", None) or spec.limits
    return Client(
        partial(open_transport, spec),
        client_info=Implementation("test", "1"),
        on_event=(events if events is not None else []).append,
        limits=limits,
        **{"timeouts": PATIENT, "capabilities": {}, **more},
    )


@contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """Where connections are neither accepted nor refused: the backlog is full, and nothing accepts from it."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


@asynccontextmanager
async def connected(spec: Spec, **more: Any) -> AsyncIterator[FlowSecrets]:
    events: list[Event] = []
    client = unconnected(spec, events, **more)
    try:
        yield FlowSecrets(client, await client.connect(), events)
    finally:
        await client.close()


SMALL = Limits(message_bytes=64 * 1024, sse_event_bytes=80 * 1024, inflated_bytes=128 * 1024)
