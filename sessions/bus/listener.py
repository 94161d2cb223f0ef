"""Who hears what a group is told: one task of one loop, that outlives Redis."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from channels.layers import get_channel_layer

LAYER_SECONDS: Final = 2.0
#: between two attempts to join the group while Redis is away
REJOIN_SECONDS: Final = 1.0
#: after a message that is none; Redis being away shows at joining only
STRANGE_SECONDS: Final = 0.01
log = structlog.get_logger(__name__)


class Listener:
    """`hear` gets each message; it must neither wait nor trust what it is given. `joined`: what was said before is lost."""

    def __init__(self, group: str, hear: Callable[[dict[str, Any]], None], joined: Callable[[], None]) -> None:
        self._group, self._hear, self._joined = group, hear, joined
        self._channel: str | None = None

    async def run(self) -> None:
        """Until cancelled."""
        layer = get_channel_layer()
        while True:
            try:
                self._channel = self._channel or await self._join(layer)
                self._hear(await layer.receive(self._channel))
            except Exception as problem:  # the listener must outlive whatever the layer raises
                log.warning("bus.not_heard", group=self._group, problem=type(problem).__name__)
                await asyncio.sleep(REJOIN_SECONDS if self._channel is None else STRANGE_SECONDS)

    async def _join(self, layer: Any) -> str:
        """A channel of our own in the group."""
        async with asyncio.timeout(LAYER_SECONDS):
            channel: str = await layer.new_channel("listener.")
            await layer.group_add(self._group, channel)
        self._joined()
        return channel
