"""One open session: its client, its lists, its log and its calls in flight."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from django.utils import timezone

from servers import limits
from sessions.calls import claims
from sessions.connections import lifecycle
from sessions.connections.lifecycle import Failure, Lease
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.authorization.stored_grants import authorized
from sessions.host.calls import outcomes
from sessions.host.calls.orphaned_tasks import OrphanedTasks
from sessions.host.cancelling import cancel_all
from sessions.host.catalog.refresh import Catalog
from sessions.host.db import Database
from sessions.host.desired_state import Roots
from sessions.host.inbox.waiting import Inbox
from sessions.host.launch import Launch
from sessions.host.logs.session_log import ServerLog
from sessions.host.logs.spoken import ServerMessages
from sessions.host.opening import Diagnosis, make_client, roots_for
from sessions.host.packages.start import prepared
from sessions.host.subscriptions.notification_counts import NotificationCounts
from sessions.host.subscriptions.watching import Watching
from sessions.host.wire.log import WireLog
from sessions.host.wire.recorder import WireRecorder
from sessions.mcp.core.capabilities import declares
from sessions.mcp.core.errors import Fault, McpError, TransportError
from sessions.mcp.core.events import (
    DiagnosticLine,
    Event,
    EventsDropped,
    Following,
    FollowingLost,
    LateAnswer,
    ListChanged,
    LogMessage,
    NotDelivered,
    OtherNotification,
    ProtocolViolation,
    RequestRefused,
    ResourceUpdated,
    StateChanged,
)
from sessions.mcp.core.input_requests import ELICITED
from sessions.mcp.core.methods import LIST_CHANGED, TOOLS_CALL
from sessions.mcp.core.results import Connected
from sessions.mcp.core.state import State
from sessions.mcp.core.versions import Era
from sessions.mcp.transports.base import Transport
from sessions.mcp.transports.registry import StdioSpec, open_transport

CONCURRENCY = limits.number("session_calls")
#: calls of one session that may wait for a slot; more stay in their rows until the next tick
LINE_LIMIT = 256
#: then a call gives up its place in the line. It may have ended meanwhile; if not, its row is found again
LINE_SECONDS = 20.0
CLOSE_SECONDS = 15.0
#: the lowest level requested from modern servers, unless a person chose one
LOG_LEVEL = "info"
PING_SECONDS, PING_AFTER_SECONDS = 10.0, 1.0  # not while the lists are being read: that would distort the latency
#: most handshakes end before a page could show them: then the row is not written for them
HANDSHAKE_SECONDS = 1.0
USE_RECORDED_SECONDS = 10.0


class Run(Protocol):
    """A call in flight, as a session sees it."""

    uid: UUID

    def cancel(self, words: str = "") -> None: ...


class OpenSession:
    """`on_room` is called when calls that found the queue full may be tried again, `on_change` when a watched resource
    has a new version."""

    def __init__(
        self,
        db: Database,
        lease: Lease,
        launch: Launch,
        log: ServerLog,
        wire: WireLog,
        counts: NotificationCounts,
        recording: str,
        on_room: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.lease, self.launch, self.log = lease, launch, log
        self.redactor = Redactor(launch.secrets)
        self.recorder = WireRecorder(wire, self.redactor, recording)
        launch = replace(launch, spec=replace(launch.spec, recorder=self.recorder))
        launched = launch.package is None
        self.diagnosis = Diagnosis(self.redactor, step="handshake", hints=launch.hints, launched=launched)
        self.spoken = ServerMessages(log, self.redactor, self.diagnosis)
        self.inbox = Inbox(db, lease, launch, log, self.redactor)
        launch = authorized(launch, db, self.redactor)
        self._authorization = None if isinstance(launch.spec, StdioSpec) else launch.spec.authorization
        self._spec = launch.spec
        self.client = make_client(launch, self._on_event, self.inbox.answers, open_with=self._open_transport)
        self.catalog = Catalog(db, lease, self.client, self.redactor)
        self.watching = Watching(db, lease, self.client, self.redactor, log, counts, on_change, launch.unwatched)
        self._orphaned_tasks = OrphanedTasks(db, lease, self.client, self.redactor, self._is_serving)
        self.runs: set[Run] = set()
        self.accepting = False
        self.over: asyncio.Future[McpError | None] = asyncio.get_running_loop().create_future()
        self._db, self._roots = db, launch.roots
        self._on_room, self._turned_away = on_room, False
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_since = self._record_use_at = self._now()
        self._missed_changes = self.modern = self._logs = False
        self._log_level = ""
        #: era and revision of the session
        self.spoken_revision = ("", "")

    # --- opening and closing -------------------------------------------------------------------------------------
    async def install(self) -> None:
        """Of a server that is a package: install what is not there yet. Raises McpError. Never takes longer than the
        launch allows for connecting."""
        if self.launch.package is not None and isinstance(self._spec, StdioSpec):
            async with self._in_time(f"The package was not installed within {self.launch.connect_seconds:.0f} s."):
                self._spec, _ = await prepared(self._db, self.launch.package, self._spec, self._show_line)

    async def open(self) -> Connected:
        """Raises McpError. Never takes longer than the launch allows."""
        async with self._in_time(f"The session did not open within {self.launch.connect_seconds:.0f} s."):
            connected = await self.client.connect()
        self.client.closed.add_done_callback(lambda future: self._end(future.result()))
        return connected

    @asynccontextmanager
    async def _in_time(self, too_late: str) -> AsyncIterator[None]:
        """A part of the start, of which a page shows what a child writes meanwhile."""
        shown = asyncio.create_task(self.diagnosis.show_start(self._show_start)) if self.launch.is_child else None
        try:
            async with asyncio.timeout(self.launch.connect_seconds):
                yield
        except TimeoutError as exc:
            raise TransportError(Fault.TIMEOUT, too_late, may_have_run=False) from exc
        finally:
            await cancel_all(shown)

    async def _open_transport(self, kind: str = "", url: str = "") -> Transport:
        return await open_transport(self._spec, kind, url)

    def _show_line(self, line: str) -> None:
        self._on_event(DiagnosticLine("stderr", line))

    def _show_start(self, tail: str, hints: Sequence[str]) -> None:
        self._db.post(partial(lifecycle.starting, self.lease, tail))

    def serve(self, connected: Connected, refresh_request: int, watch_request: int, log_level: str = "") -> None:
        """The session is ready and its row says so: accept calls, read the lists, watch resources."""
        self.accepting = True
        self.diagnosis.step = ""
        self.modern = connected.era is Era.MODERN
        self.spoken_revision = (str(connected.era.value), str(connected.revision))
        self._idle_since = self._now()
        self._logs = declares(connected.server_capabilities, "logging")
        self._log_level = log_level
        self.catalog.opened(refresh_request)
        self._spawn(self._measure())
        self.follow_tasks()
        self._spawn(self._ask_for_news(watch_request))

    def follow_tasks(self) -> None:
        """Follow on what runs at the server for calls that have ended without an answer."""
        if self.client.tasks_offer.call and self._is_serving():
            self._hold(self._orphaned_tasks.look())

    def _is_serving(self) -> bool:
        return self.accepting and not self.over.done()

    async def close(self) -> None:
        """End the connection and everything that depends on it. The client ends the calls in flight with an error."""
        self.accepting = False
        self._end(None)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()
        except TimeoutError:
            self.log.host("The connection did not close in time.", "warning")
        await self.inbox.close()
        self.spoken.close()
        await self.catalog.close()
        await self.watching.close()

    async def settle(self, seconds: float) -> None:
        """Before the worker ends: wait until no token request of this session is pending."""
        if self._authorization is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._authorization.settle()

    def suspect(self, error: McpError) -> None:
        """Something outside the connection made the session unusable, for example that its process exceeds a limit."""
        self._end(error)

    def failure(self, error: McpError | None) -> Failure:
        lost = error or TransportError(Fault.CONNECTION_LOST, "The connection was closed.", may_have_run=True)
        return self.diagnosis.failure(lost)

    def _end(self, error: McpError | None) -> None:
        self.watching.over(error)
        if not self.over.done():
            self.over.set_result(error)
            self._orphaned_tasks.over()

    # --- to the server -----------------------------------------------------------------------------------------------
    def take_roots(self, roots: Roots) -> None:
        """Take over the registration's roots. A server that was promised notifications is notified of a change."""
        if roots != self._roots:
            self._roots = roots
            self._spawn(self._notify_roots(roots))

    async def _notify_roots(self, roots: Roots) -> None:
        try:
            known = await self.client.set_roots(roots_for(roots))
        except McpError as error:
            self.log.host(
                masked_words(f"The server could not be notified of its roots: {error.detail}", self.redactor), "warning"
            )
            return
        late = " This session opened without roots; they are declared when it reconnects."
        self.log.host(f"Roots changed: {len(roots)} now.{'' if known or not roots else late}")

    async def _ask_for_news(self, watch_request: int) -> None:
        """A modern server sends log messages and list changes only on request; a legacy one sends both unasked."""
        if self._log_level or self.modern:
            await self._ask_log_level(self._log_level)
        self.watching.serve(watch_request, tuple(LIST_CHANGED.values()) if self.modern else ())

    def take_log_level(self, level: str) -> None:
        """Take over the level that a person chose on the Logs tab."""
        if level != self._log_level:
            self._log_level = level
            self._spawn(self._ask_log_level(level))

    async def _ask_log_level(self, level: str) -> None:
        """A legacy server without a chosen level sends its default, and no request can restore that."""
        if not self._logs or not (level or self.modern):
            return
        try:
            await self.client.set_log_level(level or LOG_LEVEL)
        except McpError as error:
            words = masked_words(f"The server rejected the log level: {error.detail}", self.redactor)
            self.log.host(words, "warning")
            return
        if level:
            self.log.host(f"The server was asked for log messages at level {level} and above.")

    # --- calls -----------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def slot(self, run: Run) -> AsyncIterator[bool]:
        """A slot for a call in flight. Yields False when the line is full, and when it does not get there in time."""
        if len(self.runs) >= CONCURRENCY + LINE_LIMIT:
            self._turned_away = True
            yield False
            return
        self.runs.add(run)
        self._quiet.clear()
        try:
            if not await self._take_slot():
                self._turned_away = True
                yield False
                return
            try:
                yield True
            finally:
                self._slots.release()
        finally:
            self._leave(run)

    async def _take_slot(self) -> bool:
        try:
            async with asyncio.timeout(LINE_SECONDS):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    def _leave(self, run: Run) -> None:
        self.runs.discard(run)
        self.inbox.call_over(run.uid)
        self._idle_since = self._now()
        if self._turned_away and len(self.runs) <= CONCURRENCY:
            self._turned_away = False
            self._on_room()
        if not self.runs:
            self._quiet.set()
            if self._idle_since >= self._record_use_at:  # not after each call: the next one's commits would wait
                self._record_use_at = self._idle_since + USE_RECORDED_SECONDS
                self._db.post(partial(lifecycle.used, self.lease, timezone.now()))

    def idle_left(self) -> float | None:
        """Seconds until the session counts as idle. None if it never does."""
        if self.launch.idle_seconds == float("inf") or self.watching.needs_session or self._orphaned_tasks.following:
            return None
        return self.launch.idle_seconds if self.runs else self._idle_since + self.launch.idle_seconds - self._now()

    def touch(self) -> None:
        self._idle_since = self._now()

    async def quiet(self, seconds: float) -> bool:
        """Wait until no call is in flight. Returns False if some remain."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    def cancel_calls(self, words: str) -> None:
        for run in list(self.runs):
            run.cancel(words)

    # --- from the server ---------------------------------------------------------------------------------------------
    def _on_event(self, event: Event) -> None:
        """Called from the client's reader. Must not block."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _not_delivered(self, event: NotDelivered) -> None:
        self.spoken.not_delivered(event)
        self.inbox.not_delivered(event.key)

    def _notified(self, event: OtherNotification) -> None:
        if event.method == ELICITED:
            self.inbox.visit_completed(event.params.get("elicitationId"))

    def _late_answer(self, event: LateAnswer) -> None:
        if isinstance(event.tag, claims.PendingCall):
            self._spawn(self._keep_late(event.tag, event))

    def _dropped(self, event: EventsDropped) -> None:
        self.log.shed(event.count)
        self.watching.shed()

    def _list_changed(self, event: ListChanged) -> None:
        self.catalog.changed(event.kind)

    def _following(self, event: Following) -> None:
        """After a gap the lists are read again, because servers do not replay missed notifications."""
        self.watching.received(event)
        if self._missed_changes:
            self._missed_changes = False
            self.catalog.changed()

    def _following_lost(self, event: FollowingLost) -> None:
        self._missed_changes = self._missed_changes or not event.final  # a final loss can last from the beginning
        self.watching.received(event)
        self.log.host(masked_words(f"Not listening for changes: {event.reason}", self.redactor), "notice")

    def _state_changed(self, event: StateChanged) -> None:
        """A ready server may lose its wire session. The client then opens a new one by itself."""
        if event.new is State.INITIALIZING:
            asyncio.get_running_loop().call_later(0 if self.accepting else HANDSHAKE_SECONDS, self._show_handshake)
            if self.accepting:
                self.log.host("The server lost the session; opening a new one.", "notice")
        elif self.accepting and event.new is State.READY:
            self._db.post(partial(lifecycle.ready_again, self.lease))

    def _show_handshake(self) -> None:
        if self.client.state is State.INITIALIZING:
            self._db.post(partial(lifecycle.initializing, self.lease))

    async def _keep_late(self, call: claims.PendingCall, event: LateAnswer) -> None:
        masks = outcomes.ResultMasks.of(call, self.lease, self.redactor)
        if event.result is not None:
            tool = call.method == TOOLS_CALL
            outcome = await outcomes.of_answer(
                event.result, partial(outcomes.of_result, event.result, masks, modern=self.modern, tool=tool)
            )
        else:
            error = event.error or {}
            outcome = await outcomes.of_answer(error, partial(outcomes.of_error_object, error, masks))
        row = await outcomes.packed(self._db, outcome)
        await self._db.persist(partial(claims.late, call, self.lease, outcome, row), list)

    async def _measure(self) -> None:
        await asyncio.sleep(PING_AFTER_SECONDS)
        try:
            seconds = await self.client.ping(timeout=PING_SECONDS)
        except McpError:
            return  # the client's keep-alive judges the connection; this is only a number for the page
        self._db.post(partial(lifecycle.measured, self.lease, round(seconds * 1000, 2)))

    def _spawn(self, coroutine: Any) -> None:
        self._hold(asyncio.create_task(coroutine))

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


_HANDLERS: dict[type, Callable[[OpenSession, Any], None]] = {
    LogMessage: lambda live, event: live.spoken.log_message(event),
    DiagnosticLine: lambda live, event: live.spoken.diagnostic(event),
    LateAnswer: OpenSession._late_answer,
    OtherNotification: OpenSession._notified,
    NotDelivered: OpenSession._not_delivered,
    ProtocolViolation: lambda live, event: live.spoken.violation(event),
    RequestRefused: lambda live, event: live.spoken.refused(event),
    EventsDropped: OpenSession._dropped,
    ListChanged: OpenSession._list_changed,
    Following: OpenSession._following,
    FollowingLost: OpenSession._following_lost,
    ResourceUpdated: lambda live, event: live.watching.updated(event),
    StateChanged: OpenSession._state_changed,
}
