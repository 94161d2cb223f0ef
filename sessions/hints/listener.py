"""Receives the messages of one group: one task of one loop, which outlives Redis."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from sessions.hints.outage import outage

LAYER_SECONDS: Final = 2.0
#: between two attempts to join the group while Redis is away
REJOIN_SECONDS: Final = 1.0
#: after a malformed message; a Redis outage shows only when joining
STRANGE_SECONDS: Final = 0.01
log = structlog.get_logger(__name__)


class Listener:
    """`received` gets each message; it must neither wait nor trust it. `joined`: earlier messages are lost."""

    def __init__(self, group: str, received: Callable[[dict[str, Any]], None], joined: Callable[[], None]) -> None:
        self._group, self._received, self._joined = group, received, joined
        self._channel: str | None = None

    @property
    def channel(self) -> str:
        """Our own channel, which exists as long as this process listens; empty before the first join."""
        return self._channel or ""

    async def run(self) -> None:
        """Until cancelled."""
        layer = get_channel_layer()
        while True:
            try:
                self._channel = self._channel or await self._join(layer)
                self._received(await layer.receive(self._channel))
            except (RedisError, OSError) as problem:
                outage.noticed(problem)
                await asyncio.sleep(REJOIN_SECONDS)
            except Exception as problem:  # the listener must outlive whatever the layer raises
                log.warning("hints.not_received", group=self._group, problem=type(problem).__name__)
                await asyncio.sleep(REJOIN_SECONDS if self._channel is None else STRANGE_SECONDS)

    async def _join(self, layer: Any) -> str:
        """A channel of our own in the group."""
        async with asyncio.timeout(LAYER_SECONDS):
            channel: str = await layer.new_channel("listener.")
            await layer.group_add(self._group, channel)
        self._joined()
        return channel
