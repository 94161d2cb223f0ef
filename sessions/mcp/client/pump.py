"""Requests in flight over one transport: sends them, matches their answers, and ends those never answered.

A request waits in its caller's task and the reader's callback hands over the answer, with no task or queue in between.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..core import methods
from ..core.correlation import Pending
from ..core.errors import Fault, HttpError, McpError, NotReady, ProtocolError, RpcError, TransportError
from ..core.events import DiagnosticLine, Event, LogMessage, NotDelivered, ProtocolViolation
from ..core.input_requests import ServerRequest, Withdrawn
from ..core.jsonrpc import RequestId
from ..core.limits import Limits
from ..core.refusals import without_words
from ..core.rounds import ASKING_BACK
from ..core.session import Answered, Outgoing, Session
from ..core.state import State
from ..core.versions import Era
from ..transports.base import Transport
from .deadlines import Deadlines
from .event_sink import EventSink
from .pending_request import OnProgress, PendingRequest, RequestSpec
from .side_queue import SideQueue

__all__ = ["OnProgress", "Pump", "RequestSpec"]

_OUT_OF_TIME = (Fault.TIMEOUT, Fault.TOTAL_DEADLINE)
#: while a session is being opened, only these may be sent
_OPENING_STATES = (State.CONNECTING, State.INITIALIZING)
_OPENING_METHODS = (methods.INITIALIZE, methods.DISCOVER)

#: our requests during which a server may ask something
_MAY_ASK = ASKING_BACK | {methods.TASKS_RESULT}
#: seconds to send a message that no caller waits for (reply, cancellation)
_SIDE_MESSAGE = 5.0
#: seconds to send an answer to a server request: it may be as large as a message
_REPLY = 30.0
#: seconds to wait for the id of a task that no caller waits for
_LINGER = 5.0


def _ignore(_: object) -> None:
    """Nobody listens yet."""


def _ignore_feed() -> None:
    """Nobody listens yet."""


async def _not_again(_: str) -> None:
    raise NotReady("The caller gave up.")


def _cancel_again(task: "asyncio.Task[Any]") -> None:
    if task.cancelling():
        task.uncancel()
        task.cancel()


class Pump(EventSink):
    """Implements transports.base.Receiver. `on_loss` is called once when the transport says it is lost."""

    def __init__(
        self, session: Session, limits: Limits, on_event: Callable[[Event], None], on_loss: Callable[[McpError], None]
    ) -> None:
        super().__init__(session, limits, on_event)
        self._on_loss = on_loss
        self._deadlines = Deadlines(self._loop)
        self._transport: Transport | None = None
        self._side_queue = SideQueue(
            self._send_from_side_queue,
            self._side_message_dropped,
            at_once=limits.open_server_requests,
            seconds=_SIDE_MESSAGE,
        )
        #: requests for a task whose caller gave up
        self._lingering: set[asyncio.Task[None]] = set()
        #: why no more requests can be made
        self.over: McpError | None = None
        #: called for requests of the server, for its cancellations of them, and when a request of ours is given up
        self.on_asked: Callable[[ServerRequest], None] = _ignore
        self.on_withdrawn: Callable[[RequestId], None] = _ignore
        self.on_given_up: Callable[[RequestId], None] = _ignore
        #: why unsolicited messages do not reach us (empty: they do), and whether that is being repaired
        self.feed_lost: tuple[str, bool] = ("", True)
        self.on_feed: Callable[[], None] = _ignore_feed
        #: loop time of the peer's last message
        self.received_at = self._loop.time()

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

    async def exchange(self, spec: RequestSpec) -> tuple[RequestId, dict[str, Any]]:
        """Send a request and wait for its result. Raises McpError; when cancelled, cancels it at the server. An answer that
        came first counts: then the caller is cancelled where it waits next, if it does."""
        # One coroutine from here to the transport: each further one costs as much as writing the request as JSON.
        if self.over is not None:
            raise self.over.again(may_have_run=False)
        pending, outgoing = self._session.request(
            spec.method,
            spec.params,
            tag=spec.tag,
            wants_progress=spec.on_progress is not None,
            mirrored=spec.mirrored if self.transport.exchange else None,
            meta=spec.meta,
            capabilities=spec.on_behalf.capabilities if spec.on_behalf is not None else None,
            log_level=spec.on_behalf.log_level if spec.on_behalf is not None else None,
        )
        outgoing.before_repeat = spec.before_repeat
        pending.waiter = waiting = PendingRequest(self._deadlines, spec, outgoing, self._loop.create_future())
        try:
            if spec.numbered is not None:
                spec.numbered(pending.id)
            if spec.before is not None:
                await spec.before()
            if not waiting.future.done():
                if self._session.state in _OPENING_STATES and spec.method not in _OPENING_METHODS:
                    # The server forgot the session meanwhile: this request would leave without one.
                    raise NotReady("The session is being opened again.", Fault.SESSION_GONE)
                deadline = waiting.begin(self._loop.time())
                try:
                    with waiting:
                        sending = self.transport.send(outgoing)
                        try:
                            await (self._outliving(sending, outgoing) if spec.wants_task else sending)
                        except McpError:
                            # The answer may have come before its stream broke, or over another stream.
                            if not waiting.is_answered:
                                raise
                        await waiting.future
                except TimeoutError:
                    # It may have come in the same moment, or while the transport still cleans up after it.
                    if not waiting.is_answered:
                        raise waiting.out_of_time(deadline) from None
                except asyncio.CancelledError:
                    if not waiting.is_answered:
                        raise
                    self._cancel_later()
            answered = waiting.future.result()
        except BaseException as exc:  # cancellation and the caller's own errors must end the request as well
            self._give_up(pending, waiting, exc)
            raise
        finally:
            pending.waiter = None  # an answer refers to its request: the cycle would hold both until a collection
        if answered.error is not None:
            raise answered.error
        assert answered.result is not None  # noqa: S101  exactly one of the two is set
        return pending.id, answered.result

    async def _outliving(self, sending: Coroutine[Any, Any, None], outgoing: Outgoing) -> None:
        """A request that becomes a task is not cancelled itself, but its task, which only the answer names. So over HTTP,
        where the answer comes on the stream of the request, that stays open a while for a caller that gave up. One that
        had no connection yet is not sent any more."""
        if not self.transport.exchange:
            await sending
            return
        task = self._loop.create_task(sending, name="mcp task request")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if outgoing.left:
                outgoing.before_repeat = _not_again
                self._lingering.add(task)
                task.add_done_callback(self._lingered)
                self._loop.call_later(_LINGER, task.cancel)
            else:
                task.cancel()
            raise

    def _lingered(self, task: "asyncio.Task[None]") -> None:
        self._lingering.discard(task)
        if not task.cancelled():
            task.exception()  # no one waits for it

    def _cancel_later(self) -> None:
        """Cancel the current task again where it waits next, unless it ends before, or leaves the time limit that its
        cancellation belongs to."""
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101  it was just cancelled
        self._loop.call_soon(_cancel_again, task)

    def _give_up(self, pending: Pending, waiting: PendingRequest, exc: BaseException) -> None:
        """The caller stops waiting: remember the id for a late answer, and notify a server that may act on it. A task is
        cancelled by its own id instead (tasks.py)."""
        outgoing = waiting.outgoing
        self.on_given_up(pending.id)
        stopped = isinstance(exc, asyncio.CancelledError) or getattr(exc, "fault", None) in _OUT_OF_TIME
        duplex_or_legacy = not self.transport.exchange or self._session.era is Era.LEGACY
        open_still = outgoing.left and not outgoing.answered and stopped and duplex_or_legacy
        self._session.give_up(pending, late_answer=open_still)
        cancellable = pending.method not in _OPENING_METHODS and not waiting.spec.wants_task
        if open_still and cancellable and self.over is None:
            reason = "cancelled" if isinstance(exc, asyncio.CancelledError) else "timed out"
            self.send_aside(self._session.cancellation(pending, reason))

    async def notify(self, method: str) -> None:
        """Send a notification within the time of a side message."""
        try:
            async with asyncio.timeout(_SIDE_MESSAGE):
                await self.transport.send(self._session.notification(method))
        except TimeoutError:
            raise TransportError(
                Fault.TIMEOUT, f"The server did not accept {method} in time.", may_have_run=True
            ) from None

    async def reply(self, outgoing: Outgoing) -> None:
        """Send the answer to a request of the server. McpError when it was not accepted."""
        try:
            async with asyncio.timeout(_REPLY):
                await self.transport.send(outgoing)
        except TimeoutError:
            raise TransportError(Fault.TIMEOUT, "The server did not accept it in time.", may_have_run=True) from None

    def send_aside(self, outgoing: Outgoing) -> None:
        """Send a message that no caller waits for: bounded; when the bound is reached, drop it and report that."""
        if self.over is None:
            self._side_queue.add(outgoing)

    async def _send_from_side_queue(self, outgoing: Outgoing) -> None:
        await self.transport.send(outgoing)

    def _side_message_dropped(self) -> None:
        self.emit(NotDelivered("Too many responses and cancellations are waiting to be sent; one was dropped."))

    async def flush_side_queue(self, seconds: float) -> None:
        await self._side_queue.flush(seconds)

    def stop_side_queue(self) -> None:
        self._side_queue.stop()

    @contextmanager
    def holding(self, identity: RequestId | None) -> Iterator[Any]:
        """Pause the idle time of the request that a server's question belongs to while we answer it. Yields the tag of
        that request. Without `identity` (a duplex stream does not say which), it may be any that can ask back; the tag
        is known only if there is just one."""
        able = self._able(identity)
        all_waiting: list[PendingRequest] = [one.waiter for one in able]
        for waiting in all_waiting:
            waiting.hold(self._loop.time())
        try:
            yield able[0].tag if len(able) == 1 else None
        finally:
            for waiting in all_waiting:
                waiting.release(self._loop.time())

    def _able(self, identity: RequestId | None) -> list[Pending]:
        """Requests in flight that an unsolicited message may be about: the one named, else any of them."""
        pending = self._session.find(identity) if identity is not None else None
        able = [pending] if pending else [one for one in self._session.every() if one.method in _MAY_ASK]
        return [one for one in able if one.waiter is not None and one.waiter.outgoing.left]

    def owed(self) -> frozenset[RequestId]:
        """The requests that the server may be working on, each within a deadline: not those that it answers from what it
        knows, such as lists, and not while it waits for us."""
        working = (one for one in self._session.every() if one.method in _MAY_ASK)
        return frozenset(one.id for one in working if one.waiter is not None and one.waiter.is_due)

    def lift_deadline(self, identity: RequestId) -> None:
        """The server accepted the request, which may last without limit (subscriptions/listen)."""
        pending = self._session.find(identity)
        if pending is not None and pending.waiter is not None:
            pending.waiter.until(None)

    # -- in: transports.base.Receiver

    def message(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> None:
        self.received_at = self._loop.time()
        try:
            inputs = self._session.receive(data, answering, status)
        except ProtocolError as exc:
            self._unreadable(exc, data, answering)
            return
        for item in inputs:
            if type(item) is Answered:
                self._resolve(item, answering)
            elif type(item) is Outgoing:
                self.send_aside(item)
            elif type(item) is ServerRequest:
                self.on_asked(item)
            elif type(item) is Withdrawn:
                self.on_withdrawn(item.id)
            elif type(item) is LogMessage:
                self.emit(self._attributed(item, answering))
            else:
                self.emit(item)  # type: ignore[arg-type]  # mypy does not narrow a union by `type(x) is`

    def _attributed(self, message: LogMessage, answering: Outgoing | None) -> LogMessage:
        """Attribute it to the request on whose stream it came; on a duplex stream, to the only possible one."""
        if answering is not None:
            about = [self._session.find(answering.id)] if answering.id is not None else []
        else:
            about = [] if self.transport.exchange else [*self._able(None)]
        return replace(message, tag=about[0].tag) if len(about) == 1 and about[0] is not None else message

    def _resolve(self, answered: Answered, answering: Outgoing | None) -> None:
        waiting: PendingRequest = answered.pending.waiter
        waiting.resolve(answered)
        if waiting.outgoing is not answering and waiting.outgoing.on_answered is not None:
            waiting.outgoing.on_answered()

    def _unreadable(self, error: ProtocolError, data: bytes, answering: Outgoing | None) -> None:
        pending = self._session.take(answering.id) if answering is not None else None
        if pending is not None:
            self._resolve(Answered(pending, None, error), answering)
        elif answering is None:
            self.broken(error, data)

    def broken(self, error: McpError, head: bytes, *, unfinished: bool = False) -> bool:
        """Fail the one request that the message seems to answer. If that is unknown on a duplex stream, close the
        connection: otherwise the request would wait for ever."""
        pending = self._session.attribute(head, unfinished=unfinished)
        if pending is None and unfinished:
            return False
        self.emit(ProtocolViolation(without_words(error.detail)))  # its words are for readers of the call alone
        if pending is not None:
            self._resolve(Answered(pending, None, error), None)
        elif not self.transport.exchange:
            if self._session.state is State.READY:  # it ends the calls of everyone, and whose answer it was is unknown
                error.detail = without_words(error.detail)
            self._on_loss(error)
        return True

    def line(self, stream: str, text: str) -> None:
        self.emit(DiagnosticLine(stream, text))

    def feed(self, lost: str, *, retried: bool = True) -> None:
        before, self.feed_lost = self.feed_lost, (lost, retried)
        if before != self.feed_lost:
            self.on_feed()

    def lost(self, error: McpError) -> None:
        self._on_loss(error)

    def fail_all(self, error: McpError) -> None:
        """End every request in flight, and refuse new ones."""
        self.over = error
        for pending in self._session.drain():
            waiting: PendingRequest = pending.waiter
            if pending.method in _OPENING_METHODS or not waiting.outgoing.left:
                own = error.again(may_have_run=waiting.outgoing.left)
            else:
                own = self.ended_while_running(error)
            self._resolve(Answered(pending, None, own), None)

    def ended_while_running(self, error: McpError) -> McpError:
        """The end of the session, for a request that the server may be working on. What ended it may be the answer to
        another request (a refused ping or renewal), which says nothing about this one. On a duplex stream a message that
        cannot be read may be its own answer."""
        shared = self.has_transport and not self.transport.exchange
        others = (HttpError, RpcError) if shared else (HttpError, RpcError, ProtocolError)
        if error.may_have_run and not isinstance(error, others):
            return error.again(may_have_run=True)
        words = f"The session ended while the server worked on the request: {error.detail}"
        return TransportError(Fault.CONNECTION_LOST, words, may_have_run=True)
