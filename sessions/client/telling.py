"""Events on their way to the owner: bounded, because the server causes most of them."""

import asyncio
import logging
from collections.abc import Callable

from ..protocol.events import Event, EventsDropped, Following, FollowingLost, Progress, StateChanged
from ..protocol.flow import TokenBucket
from ..protocol.limits import Limits
from ..protocol.session import Session
from ..protocol.state import Trigger
from .flight import Flight

log = logging.getLogger(__name__)

#: a drop is told with the next event, and after this time when none comes
OWN_UP_SECONDS = 1.0
#: what we say ourselves: never dropped because the server says too much
_OWN = frozenset({StateChanged, Following, FollowingLost})


class Telling:
    def __init__(self, session: Session, limits: Limits, on_event: Callable[[Event], None]) -> None:
        self._session = session
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(limits.events_per_second, limits.events_burst)
        #: called with every event, also with those that are too many for the owner
        self.heeding: list[Callable[[Event], None]] = []
        self._owning_up: asyncio.TimerHandle | None = None

    def move(self, trigger: Trigger, reason: str = "") -> None:
        for event in self._session.move(trigger, reason):
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Hand on an event; what the server causes is bounded, our own state changes are not."""
        if type(event) is Progress:
            self._progressed(event)
        for heed in self.heeding:
            heed(event)
        if type(event) not in _OWN and not self._bucket.allow(self._loop.time()):
            if self._owning_up is None:
                self._owning_up = self._loop.call_later(OWN_UP_SECONDS, self._own_up)
            return
        self.flush_dropped()
        self._hand_on(event)

    @property
    def shedding(self) -> bool:
        """Whether events are being dropped: transports read such a server less often."""
        return self._bucket.dropping(self._loop.time())

    def flush_dropped(self) -> None:
        dropped = self._bucket.take_dropped()
        if dropped:
            self._hand_on(EventsDropped(dropped))

    def _own_up(self) -> None:
        self._owning_up = None
        self.flush_dropped()

    def _hand_on(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the event handler failed")

    def _progressed(self, event: Progress) -> None:
        pending = self._session.find(event.request_id)
        flight: Flight | None = pending.waiter if pending is not None else None
        if flight is None or flight.ask.on_progress is None:
            return
        flight.extend(self._loop.time())
        try:
            flight.ask.on_progress(event.progress, event.total, event.message)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the progress handler failed")
