"""Delivers events to the owner, rate-limited because the server causes most of them."""

import asyncio
import logging
from collections.abc import Callable

from ..core.events import (
    Event,
    EventsDropped,
    Following,
    FollowingLost,
    LateAnswer,
    ListChanged,
    ListKind,
    NotDelivered,
    Progress,
    StateChanged,
)
from ..core.flow import TokenBucket
from ..core.limits import Limits
from ..core.session import Session
from ..core.state import Trigger
from .pending_request import PendingRequest

log = logging.getLogger(__name__)

#: a drop is reported with the next event, or after this time if none comes
DROP_REPORT_SECONDS = 1.0
#: our own events, and those of one message of ours: never dropped because the server sends too many
_OWN = frozenset({StateChanged, Following, FollowingLost, LateAnswer})


class EventSink:
    def __init__(self, session: Session, limits: Limits, on_event: Callable[[Event], None]) -> None:
        self._session = session
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(limits.events_per_second, limits.events_burst)
        #: called with every event, including those dropped for the owner
        self.listeners: list[Callable[[Event], None]] = []
        self._drop_report: asyncio.TimerHandle | None = None
        #: the lists of dropped events: nothing else would show that they changed
        self._dropped_lists: set[ListKind] = set()

    def move(self, trigger: Trigger, reason: str = "") -> None:
        for event in self._session.move(trigger, reason):
            self.emit(event)

    def emit(self, event: Event) -> None:
        """Deliver an event; those that the server causes are rate-limited, our own state changes are not."""
        if type(event) is Progress:
            self._progressed(event)
        for on_event in self.listeners:
            on_event(event)
        if not _is_ours(event) and not self._bucket.allow(self._loop.time()):
            if type(event) is ListChanged:
                self._dropped_lists.add(event.kind)
            if self._drop_report is None:
                self._drop_report = self._loop.call_later(DROP_REPORT_SECONDS, self._report_dropped)
            return
        self.flush_dropped()
        self._deliver(event)

    @property
    def shedding(self) -> bool:
        """Whether events are being dropped: transports read such a server less often."""
        return self._bucket.dropping(self._loop.time())

    def flush_dropped(self) -> None:
        dropped = self._bucket.take_dropped()
        if dropped:
            self._deliver(EventsDropped(dropped))
        while self._dropped_lists:
            self._deliver(ListChanged(self._dropped_lists.pop()))

    def _report_dropped(self) -> None:
        self._drop_report = None
        self.flush_dropped()

    def _deliver(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the event handler failed")

    def _progressed(self, event: Progress) -> None:
        pending = self._session.find(event.request_id)
        waiting: PendingRequest | None = pending.waiter if pending is not None else None
        if waiting is None or waiting.spec.on_progress is None:
            return
        waiting.extend(self._loop.time())
        try:
            waiting.spec.on_progress(event.progress, event.total, event.message)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the progress handler failed")


def _is_ours(event: Event) -> bool:
    return type(event) in _OWN or (type(event) is NotDelivered and bool(event.key))
