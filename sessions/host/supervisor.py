"""One task for each owned session: opens it, keeps it open, closes it as ordered, and never gives up by itself.

Orders stand in the row and come by `ordered()`. Whatever is waited for, an order interrupts it. A write that finds
somebody else's epoch in the row ends the supervisor without another word (Overtaken).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from django.core.exceptions import ObjectDoesNotExist

from servers.audit.record import Event
from sessions import bus
from sessions.domain import commands, lifecycle
from sessions.domain.lifecycle import Failure, Hold
from sessions.enums import SessionCondition
from sessions.host.db import Database, DatabaseAway
from sessions.host.ending import end
from sessions.host.greeting import greeting_of
from sessions.host.launch import NEEDS_CREDENTIAL, Launch, LaunchProblem, load
from sessions.host.live import Live
from sessions.host.logs import ServerLog
from sessions.host.orders import Orders
from sessions.host.pace import Ending, Pace, retry_after
from sessions.host.shared import Shared
from sessions.protocol.errors import Fault, McpError
from sessions.protocol.results import Connected

CANCEL_SECONDS = 3.0
SETTLE_SECONDS = 5.0
LOG_EVERY_SECONDS = 60.0
SAID_KEPT = 16
_NEEDS_PERSON: dict[str, SessionCondition] = {
    **dict.fromkeys(NEEDS_CREDENTIAL, SessionCondition.NEEDS_AUTH),
    **dict.fromkeys((Fault.UNAUTHORIZED, Fault.FORBIDDEN), SessionCondition.NEEDS_AUTH),
    **dict.fromkeys((Fault.INSUFFICIENT_SCOPE, Fault.AUTHORIZATION_FAILED), SessionCondition.NEEDS_AUTH),
    Fault.INCOMPATIBLE_VERSION: SessionCondition.INCOMPATIBLE,
}
log = structlog.get_logger(__name__)


class Overtaken(Exception):
    """Somebody else owns the session now."""


class Supervisor:
    def __init__(self, hold: Hold, orders: Orders, db: Database, shared: Shared) -> None:
        self.hold = hold
        self.orders = orders
        self.live: Live | None = None
        self._db, self._shared = db, shared
        self._log = ServerLog(shared.logs, hold)
        self._pace = Pace(shared.ceiling)
        self._news = asyncio.Event()
        self._overtaken = False
        self._restarts = orders.restart_done
        self._refreshes = orders.refresh_done
        self._said: dict[str, float] = {}
        self._idle_from = self._now()
        self._idle_seconds = float("inf")

    # --- for the service -------------------------------------------------------------------------------------------
    def ordered(self, orders: Orders | None) -> None:
        """What the row says now; None when it is not ours any more."""
        news, self.orders = orders != self.orders, orders or self.orders
        self._overtaken = orders is None or orders.epoch != self.hold.epoch
        if news or self._overtaken:
            self._news.set()

    def look(self) -> None:
        """Something that concerns every session changed: the worker drains."""
        self._news.set()

    async def run(self) -> None:
        try:
            while self._wanted():
                ending = await self._connection()
                if ending is not None:
                    await self._rest(ending)
            await self._give_back()
        except Overtaken:
            log.info("host.overtaken", session=str(self.hold.session_uid), epoch=self.hold.epoch)
        finally:
            await self._log.close()

    # --- one connection --------------------------------------------------------------------------------------------
    async def _connection(self) -> Ending | None:
        """From connecting to closed; None when it was closed as ordered."""
        self._restarts = self.orders.restart_requested
        await self._must(partial(lifecycle.connecting, self.hold, self._pace.attempt, self._restarts))
        try:
            launch = await self._load()
        except LaunchProblem as problem:
            return Ending(problem.failure)
        self._idle_seconds = launch.idle_seconds
        self._live = live = Live(self._db, self.hold, launch, self._log, self._call_room, self._shared.on_change)
        try:
            connected = await self._opened(live)
            return None if connected is None else await self._serve(live, connected)
        except McpError as error:
            return Ending(live.failure(error), retry_after=retry_after(error))
        except (Overtaken, DatabaseAway):
            raise
        except Exception as exc:  # a fault of ours: shown on the page and tried again, never a silent stop
            log.exception("host.connection_failed", session=str(self.hold.session_uid))
            words = f"mcpadmin failed while it held this session ({type(exc).__name__}). Its own log has the details."
            return Ending(Failure("internal_error", words))
        finally:
            self.live = None
            await live.close()

    def _call_room(self) -> None:
        self._shared.on_ready(self.hold.session_id)

    async def _load(self) -> Launch:
        while True:
            try:
                return await self._db.read(partial(load, self.hold.session_id))
            except DatabaseAway:
                await asyncio.sleep(1.0)
            except ObjectDoesNotExist as exc:
                raise Overtaken from exc

    async def _opened(self, live: Live) -> Connected | None:
        """None when an order came first."""
        if not await self._interruptible(self._shared.gate.acquire()):
            await self._closed(live)
            return None
        try:
            opening = asyncio.ensure_future(live.open())
            done = await self._interruptible(opening)
        finally:
            self._shared.gate.release()
        if not done:
            await self._closed(live)
            return None
        connected = opening.result()
        greeting = greeting_of(connected, live.redactor)
        await self._must(
            partial(lifecycle.ready, self.hold, greeting),
            lambda ok: [lifecycle.ready_event(self.hold, greeting)] if ok else [],
        )
        self._say(f"Session ready: revision {connected.revision}, {connected.decided_by}")
        return connected

    async def _serve(self, live: Live, connected: Connected) -> Ending | None:
        since = self._now()
        self._refreshes = self.orders.refresh_requested
        live.serve(connected, self._refreshes, self.orders.watch_requested)
        self.live = live
        self._shared.on_ready(self.hold.session_id)
        while not live.over.done():
            if self._interrupted() and not await self._resumed(live):
                await self._closed(live)
                return None
            self._pass_on_refresh(live)
            live.watching.want(self.orders.watch_requested)
            live.take_roots(self.orders.roots)
            await self._idle_or_news(live)
        error = live.over.result()
        await self._settled(live)
        self._pace.ready_for(self._now() - since)
        clean = getattr(error, "exit_code", None) == 0
        return Ending(live.failure(error), was_ready=True, clean=clean, retry_after=retry_after(error))

    def _pass_on_refresh(self, live: Live) -> None:
        if self.orders.refresh_requested > self._refreshes:
            self._refreshes = self.orders.refresh_requested
            live.catalog.want(self._refreshes)

    async def _idle_or_news(self, live: Live) -> None:
        """Wait for an order, the end of the connection, or the moment at which the session counts as unused."""
        left = live.idle_left()
        if left is not None and left <= 0:
            await self._close_when_idle()
            live.touch()
            return
        await self._wait_for_news({live.over}, left)

    async def _resumed(self, live: Live) -> bool:
        """Paused, or given to another worker: calls in flight end first, and the order may be taken back meanwhile."""
        if self.orders.open:
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
        return self._interrupted() and self.orders.wanted and not self.orders.open and not self._shared.draining

    # --- ends --------------------------------------------------------------------------------------------------------
    async def _closed(self, live: Live) -> None:
        """Close as ordered: calls are awaited when the worker drains, cancelled when the session shall be closed."""
        self.live = None
        if self._shared.draining:
            await live.quiet(self._shared.drain_left())
        elif not self.orders.wanted:
            live.cancel_calls("Cancelled because the session was closed.")
            await live.quiet(CANCEL_SECONDS)
        await self._must(partial(lifecycle.disconnecting, self.hold))
        await live.close()
        await live.quiet(SETTLE_SECONDS)
        words = "Session closed: the worker stops." if self._shared.draining else self.orders.why_closed
        await self._must(partial(lifecycle.disconnected, self.hold, words))
        self._said.clear()  # what a person ordered is told from its beginning
        self._say(words, always=True)
        self._pace.reset()

    async def _settled(self, live: Live) -> None:
        """After a loss: the calls in flight learn it from the client and write their outcomes."""
        self.live = None
        await live.close()
        await live.quiet(SETTLE_SECONDS)

    async def _rest(self, ending: Ending) -> None:
        """Show the failure, then wait: for the next try, or for a person where no try can help."""
        failure = ending.failure
        happened = "Connection lost" if ending.was_ready else "Could not connect"
        self._say(f"{happened}: {failure.detail}", "error")
        condition = _NEEDS_PERSON.get(failure.fault)
        if condition is not None:
            await self._must(partial(lifecycle.waiting_for_person, self.hold, condition, failure), self._events(ending))
            await self._until_interrupted(None)
            return
        delay = self._pace.delay(ending)
        told = partial(lifecycle.backing_off, self.hold, failure, delay, breaker_open=self._pace.breaker_open)
        await self._must(told, self._events(ending))
        if self._now() - self._idle_from > self._idle_seconds and await self._close_when_idle():
            return
        await self._until_interrupted(delay)

    def _events(self, ending: Ending) -> Callable[[bool], list[Event]]:
        """A session that was ready and is not any more is worth an audit event; a try that failed is not."""
        lost = [lifecycle.lost_event(self.hold, ending.failure)] if ending.was_ready else []
        return lambda changed: lost if changed else []

    async def _close_when_idle(self) -> bool:
        """Take the wish for the session back, unless a call arrived meanwhile."""
        try:
            closed = await self._db.write(partial(lifecycle.close_when_idle, self.hold))
        except DatabaseAway:
            return False
        if closed:
            self.orders = replace(self.orders, wanted=False, open=False, closed_by_wish=True, idle=True)
        return closed

    async def _give_back(self) -> None:
        await self._log.close()  # only an owner may write
        await self._db.persist(partial(lifecycle.release, self.hold))
        if self.orders.wanted and not self.orders.paused:
            bus.later(partial(commands.summon, self.hold.session_uid, leaver=self.hold.worker_uid))

    # --- waiting -------------------------------------------------------------------------------------------------------
    def _wanted(self) -> bool:
        if self._overtaken:
            raise Overtaken
        return self.orders.open and not self._shared.draining

    def _interrupted(self) -> bool:
        """An order ends what goes on: close, open anew, or drain."""
        return not self._wanted() or self.orders.restart_requested > self._restarts

    async def _until_interrupted(self, seconds: float | None) -> None:
        end = None if seconds is None else self._now() + seconds
        while not self._interrupted():
            left = None if end is None else end - self._now()
            if left is not None and left <= 0:
                return
            await self._wait_for_news(set(), left)
        self._pace.reset()
        self._idle_from = self._now()

    async def _interruptible(self, work: Awaitable[Any]) -> bool:
        """Wait for `work`, which is cancelled when an order comes first. True when it ended by itself."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self._interrupted():
                    return False
                await self._wait_for_news({task}, None)
            return True
        finally:
            await end(task)

    async def _wait_for_news(self, others: set[Any], seconds: float | None) -> None:
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        self._news.clear()

    async def _must(self, verb: Callable[[], bool], events: Callable[[Any], list[Event]] | None = None) -> None:
        if not await self._db.persist(verb, events):
            raise Overtaken

    def _say(self, text: str, level: str = "info", *, always: bool = False) -> None:
        """A line in the server's log; the same one at most once a minute, also of a server that comes and goes."""
        said = self._said.get(text, float("-inf"))
        if always or self._now() - said >= LOG_EVERY_SECONDS:
            self._said = dict(list(self._said.items())[-SAID_KEPT:]) | {text: self._now()}
            self._log.host(text, level)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
