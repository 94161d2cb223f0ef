"""Requests in flight over one transport: what is sent, what comes back, what never comes back.

A request waits in its caller's own task; answers are handed over in the reader's callback. No task and no queue
stands between.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..protocol import methods
from ..protocol.correlation import Deadline, Pending
from ..protocol.errors import Fault, McpError, ProtocolError, TransportError
from ..protocol.events import DiagnosticLine, Event, EventsDropped, Progress, ProtocolViolation, StateChanged
from ..protocol.flow import TokenBucket
from ..protocol.headers import Mirrored
from ..protocol.jsonrpc import RequestId
from ..protocol.limits import Limits
from ..protocol.session import Answered, Outgoing, Session
from ..protocol.state import Trigger
from ..protocol.versions import Era
from ..transports.base import Transport

log = logging.getLogger(__name__)

OnProgress = Callable[[float, float | None, str | None], None]

#: seconds that a message which nobody waits for (reply, cancellation) may take to leave
_SIDE_MESSAGE = 5.0


@dataclass(slots=True, eq=False)
class Ask:
    """A request to make. `idle` and `total` are seconds; `before` is awaited right before its bytes leave."""

    method: str
    params: dict[str, Any] | None
    idle: float
    total: float
    identity: RequestId | None = None
    tag: Any = None
    on_progress: OnProgress | None = None
    before: Callable[[], Awaitable[None]] | None = None
    mirrored: tuple[Mirrored, ...] = ()


class _Flight:
    """Someone waits for an answer."""

    __slots__ = ("ask", "deadline", "future", "outgoing", "scope")

    def __init__(self, ask: Ask, outgoing: Outgoing, future: "asyncio.Future[Answered]") -> None:
        self.ask = ask
        self.outgoing = outgoing
        self.future = future
        self.deadline: Deadline | None = None
        self.scope: asyncio.Timeout | None = None

    def resolve(self, answered: Answered) -> None:
        self.outgoing.answered = True
        if not self.future.done():
            self.future.set_result(answered)


class Pump:
    """Implements transports.base.Receiver. `on_loss` is called once when the transport says it is lost."""

    def __init__(
        self, session: Session, limits: Limits, on_event: Callable[[Event], None], on_loss: Callable[[McpError], None]
    ) -> None:
        self._session = session
        self._limits = limits
        self._on_event = on_event
        self._on_loss = on_loss
        self._loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(limits.events_per_second, limits.events_burst)
        self._transport: Transport | None = None
        self._side: set[asyncio.Task[None]] = set()
        self._on_first_sign: Callable[[], None] | None = None
        #: why no request can be made any more
        self.over: McpError | None = None
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
        )
        pending.waiter = flight = _Flight(ask, outgoing, self._loop.create_future())
        try:
            answered = await self._fly(flight)
        except BaseException as exc:  # cancellation and the caller's own errors must end the request as well
            self._give_up(pending, flight, exc)
            raise
        if answered.error is not None:
            raise answered.error
        assert answered.result is not None  # noqa: S101  exactly one of the two is set
        return pending.id, answered.result

    async def _fly(self, flight: _Flight) -> Answered:
        ask = flight.ask
        if ask.before is not None:
            await ask.before()
            if flight.future.done():
                return flight.future.result()
        flight.deadline = Deadline.starting(self._loop.time(), ask.idle, ask.total)
        try:
            async with asyncio.timeout_at(flight.deadline.expires_at) as flight.scope:
                await self._send(flight)
                return await flight.future
        except TimeoutError:
            raise TransportError(
                Fault.TIMEOUT,
                f"The server did not answer {ask.method} in time ({ask.idle:g} s).",
                may_have_run=flight.outgoing.left,
            ) from None

    async def _send(self, flight: _Flight) -> None:
        try:
            await self.transport.send(flight.outgoing)
        except McpError:
            # The answer may have come before its stream broke, or over another stream.
            if not flight.future.done():
                raise

    def _give_up(self, pending: Pending, flight: _Flight, exc: BaseException) -> None:
        """The caller stops waiting: remember the id for a late answer, and tell the server if it may listen."""
        outgoing = flight.outgoing
        stopped = isinstance(exc, asyncio.CancelledError) or getattr(exc, "fault", None) is Fault.TIMEOUT
        duplex_or_legacy = not self.transport.exchange or self._session.era is Era.LEGACY
        open_still = outgoing.left and not outgoing.answered and stopped and duplex_or_legacy
        self._session.give_up(pending, late_answer=open_still)
        if open_still and pending.method not in (methods.INITIALIZE, methods.DISCOVER) and self.over is None:
            reason = "cancelled" if isinstance(exc, asyncio.CancelledError) else "timed out"
            self._send_aside(self._session.cancellation(pending, reason))

    async def notify(self, method: str) -> None:
        """Send a notification within the time of a side message."""
        try:
            async with asyncio.timeout(_SIDE_MESSAGE):
                await self.transport.send(self._session.notification(method))
        except TimeoutError:
            raise TransportError(
                Fault.TIMEOUT, f"The server did not take {method} in time.", may_have_run=True
            ) from None

    def _send_aside(self, outgoing: Outgoing) -> None:
        """Send what nobody waits for: bounded, and dropped with a word when the bound is reached."""
        if len(self._side) >= self._limits.open_server_requests:
            self.tell(
                ProtocolViolation("More answers and cancellations wait to be sent than allowed; one was dropped.")
            )
            return
        task = self._loop.create_task(self._side_message(outgoing), name="mcp side message")
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    async def _side_message(self, outgoing: Outgoing) -> None:
        try:
            async with asyncio.timeout(_SIDE_MESSAGE):
                await self.transport.send(outgoing)
        except (McpError, TimeoutError) as exc:
            log.debug("a side message did not reach the server: %s", exc)

    def stop_asides(self) -> None:
        for task in self._side:
            task.cancel()

    def on_first_sign(self, act: Callable[[], None] | None) -> None:
        """Call `act` once when anything comes from the peer, a line of stderr too."""
        self._on_first_sign = act

    def postpone(self, identity: RequestId, seconds: float) -> None:
        """Give a request in flight this much time from now on (never more than it had)."""
        pending = self._session.find(identity)
        if pending is not None and pending.waiter.scope is not None:
            scope: asyncio.Timeout = pending.waiter.scope
            when = self._loop.time() + seconds
            scope.reschedule(min(when, scope.when() or when))

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
                self._send_aside(item)
            else:
                self.tell(item)  # type: ignore[arg-type]  # mypy does not narrow a union by `type(x) is`

    def _resolve(self, answered: Answered, answering: Outgoing | None) -> None:
        flight: _Flight = answered.pending.waiter
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
            flight: _Flight = pending.waiter
            own = error.again(may_have_run=error.may_have_run and flight.outgoing.left)
            self._resolve(Answered(pending, None, own), None)

    # -- events

    def move(self, trigger: Trigger, reason: str = "") -> None:
        for event in self._session.move(trigger, reason):
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Hand on an event; what the server causes is bounded, our own state changes are not."""
        if type(event) is Progress:
            self._progressed(event)
        if type(event) is not StateChanged and not self._bucket.allow(self._loop.time()):
            return
        self.flush_dropped()
        self._hand_on(event)

    def flush_dropped(self) -> None:
        dropped = self._bucket.take_dropped()
        if dropped:
            self._hand_on(EventsDropped(dropped))

    def _hand_on(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the event handler failed")

    def _progressed(self, event: Progress) -> None:
        pending = self._session.find(event.request_id)
        flight: _Flight | None = pending.waiter if pending is not None else None
        if flight is None or flight.ask.on_progress is None:
            return
        if flight.scope is not None and flight.deadline is not None and not flight.future.done():
            flight.scope.reschedule(flight.deadline.extend(self._loop.time()))
        try:
            flight.ask.on_progress(event.progress, event.total, event.message)
        except Exception:  # the owner's fault must not kill the reader of its own connection
            log.exception("the progress handler failed")
