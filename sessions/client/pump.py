"""Requests in flight over one transport: what is sent, what comes back, what never comes back.

A request waits in its caller's own task; answers are handed over in the reader's callback. No task and no queue
stands between.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..protocol import methods
from ..protocol.asked import ServerRequest, Withdrawn
from ..protocol.correlation import Deadline, Pending
from ..protocol.errors import Fault, McpError, ProtocolError, TransportError
from ..protocol.events import DiagnosticLine, Event, LogMessage, ProtocolViolation
from ..protocol.jsonrpc import RequestId
from ..protocol.limits import Limits
from ..protocol.rounds import ASKING_BACK
from ..protocol.session import Answered, Outgoing, Session
from ..protocol.versions import Era
from ..transports.base import Transport
from .asides import Asides
from .deadlines import Deadlines, Wait
from .flight import Ask, Flight, OnProgress
from .telling import Telling

__all__ = ["Ask", "OnProgress", "Pump"]

_OUT_OF_TIME = (Fault.TIMEOUT, Fault.TOTAL_DEADLINE)

#: our requests for whose sake a server may ask something
_MAY_ASK = ASKING_BACK | {methods.TASKS_RESULT}
#: seconds that a message which nobody waits for (reply, cancellation) may take to leave
_SIDE_MESSAGE = 5.0
#: seconds that an answer to a request of the server may take to leave: it may be as large as a message
_REPLY = 30.0


def _unheard(_: object) -> None:
    """Nobody listens yet."""


def _unheard_feed() -> None:
    """Nobody listens yet."""


class Pump(Telling):
    """Implements transports.base.Receiver. `on_loss` is called once when the transport says it is lost."""

    def __init__(
        self, session: Session, limits: Limits, on_event: Callable[[Event], None], on_loss: Callable[[McpError], None]
    ) -> None:
        super().__init__(session, limits, on_event)
        self._on_loss = on_loss
        self._deadlines = Deadlines(self._loop)
        self._transport: Transport | None = None
        self._asides = Asides(
            self._send_aside, self._aside_dropped, at_once=limits.open_server_requests, seconds=_SIDE_MESSAGE
        )
        self._on_first_sign: Callable[[], None] | None = None
        #: why no request can be made any more
        self.over: McpError | None = None
        #: called for requests of the server, for its cancellations of them, and when a request of ours is given up
        self.on_asked: Callable[[ServerRequest], None] = _unheard
        self.on_withdrawn: Callable[[RequestId], None] = _unheard
        self.on_given_up: Callable[[RequestId], None] = _unheard
        #: why what the server says by itself does not reach us (empty: it does), and whether that is being mended
        self.feed_lost: tuple[str, bool] = ("", True)
        self.on_feed: Callable[[], None] = _unheard_feed
        #: loop time of the last message of the peer
        self.heard_at = self._loop.time()

    @property
    def transport(self) -> Transport:
        if self._transport is None:
            raise AssertionError("no transport attached")
        return self._transport

    @property
    def has_transport(self) -> bool:
        return self._transport is not None

    def attach(self, transport: Transport) -> None:
        """Use this transport from now on; an earlier one must be closed already."""
        self._transport = transport
        self.over = None

    # -- out

    async def exchange(self, ask: Ask) -> tuple[RequestId, dict[str, Any]]:
        """Send a request and wait for its result. Raises McpError; when cancelled, cancels it at the server."""
        if self.over is not None:
            raise self.over.again(may_have_run=False)
        pending, outgoing = self._session.request(
            ask.method,
            ask.params,
            tag=ask.tag,
            wants_progress=ask.on_progress is not None,
            mirrored=ask.mirrored,
            identity=ask.identity,
            meta=ask.meta,
        )
        outgoing.before_repeat = ask.before_repeat
        pending.waiter = flight = Flight(ask, outgoing, self._loop.create_future())
        try:
            answered = await self._fly(flight)
        except BaseException as exc:  # cancellation and the caller's own errors must end the request as well
            self._give_up(pending, flight, exc)
            raise
        finally:
            flight.scope = None
            pending.waiter = None  # an answer knows its request: the circle would hold both until a collection
        if answered.error is not None:
            raise answered.error
        assert answered.result is not None  # noqa: S101  exactly one of the two is set
        return pending.id, answered.result

    async def _fly(self, flight: Flight) -> Answered:
        ask = flight.ask
        if ask.before is not None:
            await ask.before()
            if flight.future.done():
                return flight.future.result()
        flight.deadline = Deadline.starting(self._loop.time(), ask.idle, ask.total)
        try:
            with self._deadlines.at(flight.deadline.expires_at) as flight.scope:
                await self._send(flight)
                return await flight.future
        except TimeoutError:
            raise flight.out_of_time(flight.deadline) from None

    async def _send(self, flight: Flight) -> None:
        try:
            await self.transport.send(flight.outgoing)
        except McpError:
            # The answer may have come before its stream broke, or over another stream.
            if not flight.future.done():
                raise

    def _give_up(self, pending: Pending, flight: Flight, exc: BaseException) -> None:
        """The caller stops waiting: remember the id for a late answer, and tell the server if it may listen."""
        outgoing = flight.outgoing
        self.on_given_up(pending.id)
        stopped = isinstance(exc, asyncio.CancelledError) or getattr(exc, "fault", None) in _OUT_OF_TIME
        duplex_or_legacy = not self.transport.exchange or self._session.era is Era.LEGACY
        open_still = outgoing.left and not outgoing.answered and stopped and duplex_or_legacy
        self._session.give_up(pending, late_answer=open_still)
        if open_still and pending.method not in (methods.INITIALIZE, methods.DISCOVER) and self.over is None:
            reason = "cancelled" if isinstance(exc, asyncio.CancelledError) else "timed out"
            self.aside(self._session.cancellation(pending, reason))

    async def notify(self, method: str) -> None:
        """Send a notification within the time of a side message."""
        try:
            async with asyncio.timeout(_SIDE_MESSAGE):
                await self.transport.send(self._session.notification(method))
        except TimeoutError:
            raise TransportError(
                Fault.TIMEOUT, f"The server did not take {method} in time.", may_have_run=True
            ) from None

    async def reply(self, outgoing: Outgoing) -> None:
        """Send the answer to a request of the server. McpError when it was not taken."""
        try:
            async with asyncio.timeout(_REPLY):
                await self.transport.send(outgoing)
        except TimeoutError:
            raise TransportError(Fault.TIMEOUT, "The server did not take it in time.", may_have_run=True) from None

    def aside(self, outgoing: Outgoing) -> None:
        """Send what nobody waits for: bounded, and dropped with a word when the bound is reached."""
        if self.over is None:
            self._asides.add(outgoing)

    async def _send_aside(self, outgoing: Outgoing) -> None:
        await self.transport.send(outgoing)

    def _aside_dropped(self) -> None:
        self.tell(ProtocolViolation("More answers and cancellations wait to be sent than allowed; one was dropped."))

    def stop_asides(self) -> None:
        self._asides.stop()

    @contextmanager
    def holding(self, identity: RequestId | None) -> Iterator[Any]:
        """While a question of the server is being answered: the idle time of the request that it belongs to stands
        still. Yields the tag of that request. Without `identity` (a duplex stream does not tell) it may be any
        that is able to ask back; the tag is known only where there is just one."""
        able = self._able(identity)
        flights: list[Flight] = [one.waiter for one in able]
        for flight in flights:
            flight.hold(self._loop.time())
        try:
            yield able[0].tag if len(able) == 1 else None
        finally:
            for flight in flights:
                flight.release(self._loop.time())

    def _able(self, identity: RequestId | None) -> list[Pending]:
        """Requests on their way that the server may speak of by itself: the one named, else any of them."""
        pending = self._session.find(identity) if identity is not None else None
        able = [pending] if pending else [one for one in self._session.every() if one.method in _MAY_ASK]
        return [one for one in able if one.waiter is not None and one.waiter.outgoing.left]

    def on_first_sign(self, act: Callable[[], None] | None) -> None:
        """Call `act` once when anything comes from the peer, a line of stderr too."""
        self._on_first_sign = act

    def postpone(self, identity: RequestId, seconds: float) -> None:
        """Give a request in flight this much time from now on (never more than it had)."""
        pending = self._session.find(identity)
        if pending is not None and pending.waiter.scope is not None:
            scope: Wait = pending.waiter.scope
            when = self._loop.time() + seconds
            scope.reschedule(min(when, scope.when() or when))

    def lift_deadline(self, identity: RequestId) -> None:
        """The request was taken up and may last as long as it wants (subscriptions/listen)."""
        pending = self._session.find(identity)
        if pending is not None and pending.waiter is not None:
            pending.waiter.until(None)

    # -- in: transports.base.Receiver

    def message(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> None:
        self._sign()
        self.heard_at = self._loop.time()
        try:
            inputs = self._session.receive(data, answering, status)
        except ProtocolError as exc:
            self._unreadable(exc, data, answering)
            return
        for item in inputs:
            if type(item) is Answered:
                self._resolve(item, answering)
            elif type(item) is Outgoing:
                self.aside(item)
            elif type(item) is ServerRequest:
                self.on_asked(item)
            elif type(item) is Withdrawn:
                self.on_withdrawn(item.id)
            elif type(item) is LogMessage:
                self.tell(self._attributed(item, answering))
            else:
                self.tell(item)  # type: ignore[arg-type]  # mypy does not narrow a union by `type(x) is`

    def _attributed(self, message: LogMessage, answering: Outgoing | None) -> LogMessage:
        """To the request on whose stream it came; on a duplex stream to the only one that it can be about."""
        if answering is not None:
            about = [self._session.find(answering.id)] if answering.id is not None else []
        else:
            about = [] if self.transport.exchange else [*self._able(None)]
        return replace(message, tag=about[0].tag) if len(about) == 1 and about[0] is not None else message

    def _resolve(self, answered: Answered, answering: Outgoing | None) -> None:
        flight: Flight = answered.pending.waiter
        flight.resolve(answered)
        if flight.outgoing is not answering and flight.outgoing.on_answered is not None:
            flight.outgoing.on_answered()

    def _unreadable(self, error: ProtocolError, data: bytes, answering: Outgoing | None) -> None:
        pending = self._session.take(answering.id) if answering is not None else None
        if pending is not None:
            self._resolve(Answered(pending, None, error), answering)
        elif answering is None:
            self.broken(error, data)

    def broken(self, error: McpError, head: bytes) -> None:
        """Fail the one request that the message seems to answer; on a duplex stream, where that stays unknown,
        nobody may wait for ever: the connection is given up."""
        self.tell(ProtocolViolation(error.detail))
        pending = self._session.attribute(head)
        if pending is not None:
            self._resolve(Answered(pending, None, error), None)
        elif not self.transport.exchange:
            self._on_loss(error)

    def line(self, stream: str, text: str) -> None:
        self._sign()
        self.tell(DiagnosticLine(stream, text))

    def feed(self, lost: str, *, retried: bool = True) -> None:
        before, self.feed_lost = self.feed_lost, (lost, retried)
        if before != self.feed_lost:
            self.on_feed()

    def lost(self, error: McpError) -> None:
        self._on_loss(error)

    def _sign(self) -> None:
        if self._on_first_sign is not None:
            act, self._on_first_sign = self._on_first_sign, None
            act()

    def fail_all(self, error: McpError) -> None:
        """End every request in flight, and refuse new ones."""
        self.over = error
        for pending in self._session.drain():
            flight: Flight = pending.waiter
            own = error.again(may_have_run=error.may_have_run and flight.outgoing.left)
            self._resolve(Answered(pending, None, own), None)
