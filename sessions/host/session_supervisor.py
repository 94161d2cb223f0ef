"""One task per owned session: opens it, keeps it open, closes it on request, and never gives up by itself.

The desired state is in the row and arrives through `desired_changed()`. A change of it interrupts every wait. A write
that finds another owner's epoch in the row ends the supervisor silently (LeaseLost).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist

from servers.audit.record import Event
from sessions import hints
from sessions.connections import commands, lifecycle
from sessions.connections.lifecycle import Failure, Lease, Transition
from sessions.enums import SessionCondition
from sessions.host import directories
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.desired_state import DesiredState
from sessions.host.greeting import greeting_of
from sessions.host.launch import NEEDS_CREDENTIAL, Launch, load
from sessions.host.launch_problem import LaunchProblem
from sessions.host.logs.session_log import ServerLog
from sessions.host.open_session import OpenSession
from sessions.host.reconnect_delays import ConnectionLoss, Pace, retry_after
from sessions.host.shared import Shared
from sessions.host.subscriptions.notification_counts import NotificationCounts
from sessions.host.wire.log import WireLog
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.refusals import without_words
from sessions.mcp.core.results import Connected

CANCEL_SECONDS = 3.0
SETTLE_SECONDS = 5.0
LOG_EVERY_SECONDS = 60.0
SAID_KEPT = 16
WAITED_KEPT = 1_000
#: for how long the opening of a session may keep others from being opened: most take far less
SLOT_SECONDS = 3.0
#: minimum between two attempts, however many calls wait
BETWEEN_TRIES_SECONDS = 1.0
#: while a refused credential waits for a person: how often the file that it came from is read again
FILES_SECONDS = 60.0
_NEEDS_PERSON: dict[str, SessionCondition] = {
    **dict.fromkeys(NEEDS_CREDENTIAL, SessionCondition.NEEDS_AUTH),
    **dict.fromkeys((Fault.UNAUTHORIZED, Fault.INSUFFICIENT_SCOPE), SessionCondition.NEEDS_AUTH),
    **dict.fromkeys((Fault.AUTHORIZATION_FAILED, Fault.KEY_NEEDED), SessionCondition.NEEDS_AUTH),
    Fault.INCOMPATIBLE_VERSION: SessionCondition.INCOMPATIBLE,
    Fault.PACKAGE_CHANGED: SessionCondition.REFUSED,
}
_OF_CONNECTIONS = (Fault.CONNECTION_REFUSED, Fault.CONNECTION_LOST, Fault.DNS_FAILED, Fault.TLS_FAILED, Fault.TIMEOUT)
log = structlog.get_logger(__name__)


def _happened(loss: ConnectionLoss) -> str:
    """What failed. Only a failed connection is described as one."""
    if loss.was_ready:
        return "Connection lost" if loss.failure.fault in _OF_CONNECTIONS else "Session ended"
    if loss.failure.fault in _OF_CONNECTIONS or loss.failure.step in ("resolve", "connect"):
        return "Could not connect"
    return "The session could not be opened"


class LeaseLost(Exception):
    """Another worker owns the session now."""


class SessionSupervisor:
    def __init__(self, lease: Lease, desired: DesiredState, db: Database, shared: Shared) -> None:
        self.lease = lease
        self.desired = desired
        self.live: OpenSession | None = None
        self._db, self._shared = db, shared
        self._log, self._wire = ServerLog(shared.logs, lease), WireLog(shared.wire, lease)
        self._counts = NotificationCounts(shared.counts, lease)
        self._pace = Pace(shared.ceilings, shared.least_pause)
        self._tried_at = float("-inf")
        #: calls that have already triggered an attempt
        self._waited: set[UUID] = set()
        self._try_now = False
        #: Launch.files of the last attempt
        self._files = ""
        #: waiting for the next scheduled attempt
        self.resting = False
        self._news = asyncio.Event()
        self._overtaken = False
        self._restarts = desired.restart_done
        self._refreshes = desired.refresh_done
        self._said: dict[str, float] = {}
        self._idle_from = self._now()
        self._idle_seconds = float("inf")

    # --- for the service -------------------------------------------------------------------------------------------
    def desired_changed(self, desired: DesiredState | None) -> None:
        """Take over the row's desired state; None if the session is no longer ours."""
        news, self.desired = desired != self.desired, desired or self.desired
        self._overtaken = desired is None or desired.epoch != self.lease.epoch
        if news or self._overtaken:
            self._news.set()

    def call_waits(self, uid: UUID) -> None:
        """A call waits for this session: attempt to connect now, once per call."""
        if uid in self._waited:
            return
        if len(self._waited) >= WAITED_KEPT:
            self._waited.clear()
        self._waited.add(uid)
        self._try_now = True
        self._news.set()

    def look(self) -> None:
        """Something changed that concerns every session: the worker drains."""
        self._news.set()

    async def run(self) -> None:
        try:
            while self._should_be_open():
                loss = await self._connection()
                if loss is not None:
                    await self._rest(loss)
            await self._give_back()
        except LeaseLost:
            log.info("host.overtaken", session=str(self.lease.session_uid), epoch=self.lease.epoch)
            await self._remove_directory()
        finally:
            await self._close_logs()

    # --- one connection --------------------------------------------------------------------------------------------
    async def _connection(self) -> ConnectionLoss | None:
        """From connecting to closed. Returns None if the session was closed on request."""
        self._restarts = self.desired.restart_requested
        self._tried_at, self._try_now = self._now(), False
        await self._must(partial(lifecycle.connecting, self.lease, self._pace.attempt, self._restarts))
        try:
            return await self._attempt()
        except (LeaseLost, DatabaseAway):
            raise
        except Exception as exc:  # a bug of ours: shown on the page and tried again, never silent
            log.exception("host.connection_failed", session=str(self.lease.session_uid))
            words = f"mcpadmin failed while running this session ({type(exc).__name__}). See its log for details."
            return ConnectionLoss(Failure("internal_error", words))

    async def _attempt(self) -> ConnectionLoss | None:
        self._files = ""
        try:
            launch = await self._load()
        except LaunchProblem as problem:
            return ConnectionLoss(problem.failure)
        self._files = launch.files
        self._idle_seconds = launch.idle_seconds
        logs = (self._log, self._wire, self._counts, self.desired.recording)
        live = OpenSession(self._db, self.lease, launch, *logs, self._call_room, self._shared.on_change)
        try:
            connected = await self._opened(live)
            return None if connected is None else await self._serve(live, connected)
        except McpError as error:
            return ConnectionLoss(live.failure(error), retry_after=retry_after(error))
        finally:
            self.live = None
            await live.close()
            if self._shared.draining:
                await live.settle(self._shared.drain_left())

    def _call_room(self) -> None:
        self._shared.on_ready(self.lease.session_id)

    async def _load(self) -> Launch:
        while True:
            try:
                return await self._db.read(partial(load, self.lease.session_id))
            except DatabaseAway:
                await asyncio.sleep(1.0)
            except ObjectDoesNotExist as exc:
                raise LeaseLost from exc

    async def _opened(self, live: OpenSession) -> Connected | None:
        """Returns None if the desired state changed first."""
        opening = asyncio.ensure_future(self._installed_and_opened(live))
        if not await self._interruptible(opening):
            await self._closed(live)
            return None
        connected = opening.result()
        greeting = greeting_of(connected, live.redactor)
        await self._must(
            partial(lifecycle.ready, self.lease, greeting),
            lambda made: [lifecycle.ready_event(self.lease, greeting)] if made is Transition.MADE else [],
        )
        self._say(f"Session ready: revision {connected.revision} ({connected.decided_by})")
        return connected

    async def _installed_and_opened(self, live: OpenSession) -> Connected:
        await live.install()  # before it takes a slot: a registry that does not answer holds up its own packages only
        opening = None
        try:
            async with self._shared.gate:
                opening = asyncio.ensure_future(live.open())
                # A child is at work while it starts. A server that is only waited for must not hold up the others.
                await asyncio.wait({opening}, timeout=None if live.launch.is_child else SLOT_SECONDS)
            return await opening
        finally:
            await cancel_all(opening)

    async def _serve(self, live: OpenSession, connected: Connected) -> ConnectionLoss | None:
        since = self._now()
        self._refreshes = self.desired.refresh_requested
        live.serve(connected, self._refreshes, self.desired.watch_requested, self.desired.log_level)
        self.live = live
        self._shared.on_ready(self.lease.session_id)
        while not live.over.done():
            if self._interrupted() and not await self._resumed(live):
                await self._closed(live)
                return None
            self._pass_on_refresh(live)
            live.watching.subscriptions_changed(self.desired.watch_requested)
            live.take_roots(self.desired.roots)
            live.take_log_level(self.desired.log_level)
            live.recorder.level = self.desired.recording
            await self._idle_or_news(live)
        error = live.over.result()
        await self._settled(live)
        self._pace.ready_for(self._now() - since)
        clean = getattr(error, "exit_code", None) == 0
        return ConnectionLoss(live.failure(error), was_ready=True, clean=clean, retry_after=retry_after(error))

    def _pass_on_refresh(self, live: OpenSession) -> None:
        if self.desired.refresh_requested > self._refreshes:
            self._refreshes = self.desired.refresh_requested
            live.catalog.refresh(self._refreshes)

    async def _idle_or_news(self, live: OpenSession) -> None:
        """Wait until the desired state changes, the connection ends, or the session counts as idle."""
        left = live.idle_left()
        if left is not None and left <= 0:
            await self._close_when_idle()
            live.touch()
            return
        await self._wait_for_news({live.over}, left)

    async def _resumed(self, live: OpenSession) -> bool:
        """Handle a pause, or an assignment to another worker: wait for the calls in flight. Returns True if that
        request is withdrawn meanwhile."""
        if self.desired.open:
            return False
        self.live, live.accepting = None, False
        quiet = asyncio.ensure_future(live.quiet(live.launch.timeouts.total))
        try:
            while self._winding_down() and not quiet.done() and not live.over.done():
                await self._wait_for_news({quiet, live.over}, None)
        finally:
            quiet.cancel()
        if self._interrupted():
            return False
        self.live, live.accepting = live, True
        self._call_room()
        return True

    def _winding_down(self) -> bool:
        return self._interrupted() and self.desired.requested and not self.desired.open and not self._shared.draining

    # --- ends --------------------------------------------------------------------------------------------------------
    async def _closed(self, live: OpenSession) -> None:
        """Close on request. When the worker drains it waits for the calls; when the session is no longer desired it
        cancels them."""
        self.live = None
        if self._shared.draining:
            await live.quiet(self._shared.drain_left())
        elif not self.desired.requested:
            live.cancel_calls("Cancelled because the session was closed.")
            await live.quiet(CANCEL_SECONDS)
        await self._must(partial(lifecycle.disconnecting, self.lease))
        await live.close()
        await live.quiet(SETTLE_SECONDS)
        words = "Session closed: the worker is stopping." if self._shared.draining else self.desired.why_closed
        await self._must(partial(lifecycle.disconnected, self.lease, words))
        self._said.clear()  # after a person's command, repeats are logged again
        self._say(words, always=True)
        self._pace.reset()

    async def _settled(self, live: OpenSession) -> None:
        """After a loss: the client ends the calls in flight with an error, and their outcomes are written."""
        self.live = None
        await live.close()
        await live.quiet(SETTLE_SECONDS)

    async def _rest(self, loss: ConnectionLoss) -> None:
        """Show the failure, then wait: for the next attempt, or for a person if retrying cannot help."""
        failure = loss.failure
        self._say(f"{_happened(loss)}: {failure.detail}", "error")
        condition = _NEEDS_PERSON.get(failure.fault)
        if condition is not None:
            await self._must(partial(lifecycle.waiting_for_person, self.lease, condition, failure), self._events(loss))
            if condition is SessionCondition.NEEDS_AUTH:
                await self._until_other_files()
            else:
                await self._until_interrupted(None)
            return
        delay = self._pace.delay(loss)
        change = partial(lifecycle.backing_off, self.lease, failure, delay, breaker_open=self._pace.breaker_open)
        await self._must(change, self._events(loss))
        if self._now() - self._idle_from > self._idle_seconds and await self._close_when_idle():
            return
        self.resting = True
        self._shared.resting += 1
        try:
            await self._until_interrupted(delay, at_least=loss.retry_after or 0.0)
        finally:
            self.resting = False
            self._shared.resting -= 1

    def _events(self, loss: ConnectionLoss) -> Callable[[Transition], list[Event]]:
        """The loss of a ready session is an audit event; a failed attempt is not."""
        lost = [lifecycle.lost_event(self.lease, loss.failure)] if loss.was_ready else []
        return lambda made: lost if made is Transition.MADE else []

    async def _remove_directory(self) -> None:
        """For a deleted server. Anything left here is removed by the next worker that starts."""
        with suppress(DatabaseAway):
            await self._db.read(partial(directories.remove_if_deleted, self.lease.server_uid))

    async def _close_when_idle(self) -> bool:
        """Withdraw the request for the session, unless a call arrived meanwhile."""
        try:
            closed = await self._db.write(partial(lifecycle.close_when_idle, self.lease))
        except DatabaseAway:
            return False
        if closed:
            self.desired = replace(self.desired, requested=False, open=False, idle=True)
        return closed

    async def _give_back(self) -> None:
        await self._close_logs()  # only the owner may write to them
        if self.lease.personal and not self.desired.requested:
            with suppress(DatabaseAway):  # then the loop does it later
                await self._db.read(partial(directories.remove_if_ended, self.lease.server_uid, self.lease.identity_id))
        await self._db.persist(partial(lifecycle.release, self.lease))
        if self.desired.requested and not self.desired.paused:
            hints.later(partial(commands.wake_owner, self.lease.session_uid, departing=self.lease.worker_uid))

    async def _close_logs(self) -> None:
        await self._log.close()
        await self._wire.close()

    # --- waiting ------------------------------------------------------------------------------------------------------
    def _should_be_open(self) -> bool:
        if self._overtaken:
            raise LeaseLost
        return self.desired.open and not self._shared.draining

    def _interrupted(self) -> bool:
        """Whether the desired state ends the current activity: close, reopen or drain."""
        return not self._should_be_open() or self.desired.restart_requested > self._restarts

    async def _until_other_files(self) -> None:
        """Wait for a person, or until a file that a header or the URL refers to has another content: no event reports that
        its program renewed the credential."""
        seconds = BETWEEN_TRIES_SECONDS
        while True:
            await self._until_interrupted(seconds if self._files else None)
            if self._interrupted() or await self._files_now() != self._files:
                return
            self._tried_at, self._try_now, seconds = self._now(), False, FILES_SECONDS * settings.TIME_SCALE

    async def _files_now(self) -> str:
        try:
            return (await self._load()).files
        except LaunchProblem:
            return ""  # the next attempt says why

    async def _until_interrupted(self, seconds: float | None, *, at_least: float = 0.0) -> None:
        """A call that waits shortens the wait, but never below `at_least` seconds: the server asked for these."""
        now = self._now()
        end = None if seconds is None else now + seconds
        soonest = max(self._tried_at + BETWEEN_TRIES_SECONDS, now + at_least)
        while not self._interrupted():
            if self._try_now and end is not None:
                end = min(end, soonest)
            left = None if end is None else end - self._now()
            if left is not None and left <= 0:
                return
            await self._wait_for_news(set(), left)
        self._pace.reset()
        self._idle_from = self._now()

    async def _interruptible(self, work: Awaitable[Any]) -> bool:
        """Wait for `work`; a change of the desired state cancels it. Returns True if it ended by itself."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self._interrupted():
                    return False
                await self._wait_for_news({task}, None)
            return True
        finally:
            await cancel_all(task)

    async def _wait_for_news(self, others: set[Any], seconds: float | None) -> None:
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        self._news.clear()

    async def _must(self, verb: Callable[[], Transition], events: Callable[[Any], list[Event]] | None = None) -> None:
        if not await self._db.persist(verb, events):
            raise LeaseLost

    def _say(self, text: str, level: str = "info", *, always: bool = False) -> None:
        """Add a line to the server's log; the same line at most once a minute, even if the session keeps
        reconnecting."""
        like = without_words(text)  # without quoted text, which a server may vary each time
        said = self._said.get(like, float("-inf"))
        if always or self._now() - said >= LOG_EVERY_SECONDS:
            self._said = dict(list(self._said.items())[-SAID_KEPT:]) | {like: self._now()}
            self._log.host(text, level)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
