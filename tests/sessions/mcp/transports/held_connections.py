"""Clients whose requests do not get a connection yet."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sessions.mcp.transports.egress import Connector


@dataclass
class Held:
    """`wanted` has an entry for each request that waits."""

    wanted: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)
    let: asyncio.Event = field(default_factory=asyncio.Event)


def hold_connections(monkeypatch: pytest.MonkeyPatch) -> Held:
    """From now on each request needs a connection of its own, which is not made before `let` is set."""
    held, made = Held(), Connector._create_connection

    async def create(self: Connector, req: Any, traces: Any, timeout: Any) -> Any:
        held.wanted.put_nowait(req.method)
        await held.let.wait()
        return await made(self, req, traces, timeout)

    async def none_to_reuse(*_: object) -> None:
        """As if all had been idle for too long."""

    monkeypatch.setattr(Connector, "_create_connection", create)
    monkeypatch.setattr(Connector, "_get", none_to_reuse)
    return held
