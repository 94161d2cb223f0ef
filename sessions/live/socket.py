"""One open socket after its hello, as the hub uses it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from servers.audit.record import Actor
from sessions.live.frames import message
from sessions.live.limits import CALLS_IN_FLIGHT, CloseCode
from sessions.live.outbox import Outbox
from sessions.live.viewers import Viewer

if TYPE_CHECKING:
    from sessions.live.streams import TopicSubscription


class Socket:
    def __init__(
        self,
        viewer: Viewer,
        actor: Actor,
        send: Callable[[str], Awaitable[None]],
        close: Callable[[CloseCode], None],
        backlog: Callable[[], int],
    ) -> None:
        self.viewer, self.actor = viewer, actor
        self.suspended = False
        self.subscriptions: dict[str, TopicSubscription] = {}
        self.calls_in_flight = 0
        self._close = close
        self._outbox = Outbox(send, backlog, lambda: close(CloseCode.TOO_SLOW))

    @property
    def busy(self) -> bool:
        return self.calls_in_flight >= CALLS_IN_FLIGHT

    def put(self, text: str) -> None:
        self._outbox.put(text)

    def send(self, body: dict[str, Any]) -> None:
        self.put(message(body))

    @property
    def has_room(self) -> bool:
        return self._outbox.has_room

    async def room(self) -> None:
        await self._outbox.room()

    def give_up(self, code: CloseCode) -> None:
        """Close from our side and send nothing more."""
        self.suspended = True
        self._close(code)

    async def end(self) -> None:
        await self._outbox.close()
