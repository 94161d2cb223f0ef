"""Keeps the stored lists of a server's tools, resources, templates and prompts up to date.

Lists are read when the session opens, when a person asks, and one by one when the server reports a change. A list that
is stale by the server's own TTL (modern only) is read again too.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.utils import timezone

from servers.audit.record import Event
from servers.definitions.listing import CheckedListing as Described
from servers.definitions.versions import Counts, kinds_known, read_listing, store
from servers.enums import DefinitionKind
from servers.models import Identity
from sessions import hints
from sessions.approvals import ending as approvals
from sessions.catalog import reading
from sessions.catalog.reading import PLURALS, Note
from sessions.connections import lifecycle
from sessions.connections.lifecycle import Lease
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.cancelling import cancel_all
from sessions.host.catalog.icons import Icons
from sessions.host.db import Database, DatabaseAway, RowsRefused
from sessions.mcp.client import Client
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.events import ListKind
from sessions.mcp.core.results import Listing

#: a server that adds ten tools sends ten notifications
DEBOUNCE_SECONDS = 0.3
#: an announcement this soon after a read may be its effect: some gateways announce a change with each list request
ECHO_SECONDS = 0.25
#: those who follow the lists hear of an announcement after the read, or after this time without it
ANNOUNCE_SECONDS = 0.5
#: reads that may follow each other at once, and seconds between reads in the long run, for a server that changes its
#: lists all the time
BURST, INTERVAL_SECONDS = 5, 5.0
#: the longest interval, for a server that reports changes but has none (some gateways do so with each request)
LONGEST_INTERVAL_SECONDS = 300.0
READ_SECONDS = 300.0
#: the shortest time between refreshes, even if the server declares its lists stale at once
REFRESH_SECONDS = 30.0
#: how much later than it grows stale a list is read, at random: a part of the time until then, and at most so long
SPREAD, LONGEST_SPREAD_SECONDS = 0.1, 60.0
#: how long an agent's call waits for lists that the server announced as changed; after it the tick tries again
CATCH_UP_SECONDS, CATCH_UP_READS = 10.0, 3
#: after a list that could not be compared with the stored one: the first pause and the longest
COMPARE_AGAIN_SECONDS = 1.0, 60.0
#: after a list that could not be read
RETRY_SECONDS = 300.0
log = structlog.get_logger(__name__)
_KINDS = {
    ListKind.TOOLS: (DefinitionKind.TOOL,),
    ListKind.RESOURCES: (
        DefinitionKind.RESOURCE,
        DefinitionKind.RESOURCE_TEMPLATE,
    ),  # no separate list_changed notification exists for templates
    ListKind.RESOURCE_TEMPLATES: (DefinitionKind.RESOURCE_TEMPLATE,),
    ListKind.PROMPTS: (DefinitionKind.PROMPT,),
}


_LIST_OF = {
    DefinitionKind.TOOL: "tools",
    DefinitionKind.RESOURCE: "resources",
    DefinitionKind.RESOURCE_TEMPLATE: "resources",
    DefinitionKind.PROMPT: "prompts",
}


class Allowance:
    """Up to `burst` reads at once, then one per `interval` seconds; all times are of one clock. After `burst` reads in
    a row without changes the pauses double, up to `longest` seconds."""

    def __init__(self, burst: int, interval: float, longest: float) -> None:
        self._burst, self._interval, self._longest = burst, interval, longest
        self.refill()

    def refill(self) -> None:
        self._paid_until = self._last = float("-inf")
        self._unchanged_reads = 0

    def wait(self, now: float) -> float:
        """Seconds until the next read may start."""
        apart = (
            self._interval * 2.0 ** min(self._unchanged_reads - self._burst, 16)
            if self._unchanged_reads >= self._burst
            else 0.0
        )
        earliest = max(self._paid_until - (self._burst - 1) * self._interval, self._last + min(apart, self._longest))
        return max(0.0, earliest - now)

    def take(self, now: float) -> None:
        self._paid_until, self._last = max(self._paid_until, now) + self._interval, now

    def found(self, *, news: bool) -> None:
        self._unchanged_reads = 0 if news else self._unchanged_reads + 1


class Catalog:
    def __init__(self, db: Database, lease: Lease, client: Client, redactor: Redactor) -> None:
        self._db, self._lease, self._client, self._redactor = db, lease, client, redactor
        self._icons = Icons(db, lease)
        self._opened = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending: set[DefinitionKind] = set()
        self._stale_at: dict[DefinitionKind, float] = {}
        self._notes: dict[DefinitionKind, Note] = {}
        self._allowance = Allowance(BURST, INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS)
        self._known: Collection[DefinitionKind] = DefinitionKind
        self._asked = asyncio.Event()
        #: announced by the server and not passed on yet
        self._announced: set[DefinitionKind] = set()
        #: the loop time at which the last read of each list ended, infinity during one
        self._read_ended: dict[DefinitionKind, float] = {}
        #: announced and not read since; and what of it is being read
        self._unread: set[DefinitionKind] = set()
        self._catching_up: set[DefinitionKind] = set()
        #: set at the end of the next read of each list
        self._reads = {kind: asyncio.Event() for kind in DefinitionKind}
        self.request_number = 0

    @property
    def unread(self) -> frozenset[DefinitionKind]:
        """The lists that the server announced as changed and that were not read since."""
        return frozenset(self._unread | self._catching_up)

    async def catch_up(self, kind: DefinitionKind) -> bool:
        """Read at once what was announced, until this list is read. A server that announces a change with each read is
        not read for ever: the last of a few reads counts. False if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                for _ in range(CATCH_UP_READS):
                    if kind not in self.unread:
                        break
                    self._asked.set()
                    await self._reads[kind].wait()
                return True
        return False

    def _was_read(self, kind: DefinitionKind) -> None:
        self._catching_up.discard(kind)
        self._reads[kind].set()
        self._reads[kind] = asyncio.Event()

    def opened(self, request_number: int) -> None:
        """Read everything now. `request_number` is the number of the refresh request that this fulfils."""
        self._opened = True
        self._unread |= set(DefinitionKind)  # the server may have changed while no session was open
        self.refresh(request_number)

    def refresh(self, request_number: int) -> None:
        """A person asked: read everything now. This ends the pause before a read that waits; a running one is followed
        by another."""
        self.request_number = max(self.request_number, request_number)
        self._allowance.refill()
        self._asked.set()
        self._start(DefinitionKind, 0.0)

    def changed(self, kind: ListKind | None = None) -> None:
        """The server reported that a list changed; None means that any list may have."""
        loop = asyncio.get_running_loop()
        self._unread |= set(DefinitionKind if kind is None else _KINDS[kind])
        if kind is not None and not self._is_echo(_KINDS[kind], loop.time()):
            self._announced |= set(_KINDS[kind])
            for one in _KINDS[kind]:  # what was found before says nothing about this change
                if one in self._notes:
                    self._notes[one] = replace(self._notes[one], counts=Counts())
            loop.call_later(ANNOUNCE_SECONDS, self._pass_on, _KINDS[kind])
        self._start(DefinitionKind if kind is None else _KINDS[kind], DEBOUNCE_SECONDS)

    async def close(self) -> None:
        self._opened = False
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        await cancel_all(task)
        await self._icons.close()

    def _start(self, kinds: Iterable[DefinitionKind], delay: float) -> None:
        self._pending |= set(kinds)
        if self._task is None and self._opened:
            self._task = asyncio.create_task(self._run(delay))

    async def _run(self, delay: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._pending:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), max(delay, self._allowance.wait(clock())))
            self._asked.clear()
            kinds, self._pending = self._pending, set()
            self._catching_up = self._unread & kinds
            self._unread -= kinds
            self._allowance.take(clock())
            self._read_ended |= dict.fromkeys(kinds, float("inf"))
            try:
                news = await self._read([kind for kind in DefinitionKind if kind in kinds], self.request_number)
                self._allowance.found(news=news)
            except Exception:  # a bug of ours must not stop all further reads of the lists
                log.exception("host.catalog_failed", session=str(self._lease.session_uid))
            finally:
                self._read_ended |= dict.fromkeys(kinds, clock())
                for kind in self._catching_up & kinds:
                    self._was_read(kind)
            self._pass_on(kinds)
            delay = DEBOUNCE_SECONDS
        self._task = None

    def _is_echo(self, kinds: Iterable[DefinitionKind], now: float) -> bool:
        return any(now - self._read_ended.get(kind, float("-inf")) < ECHO_SECONDS for kind in kinds)

    def _pass_on(self, kinds: Iterable[DefinitionKind]) -> None:
        """What the server announced, to those who follow its lists. A difference is passed on as one."""
        due = self._announced & set(kinds)
        self._announced -= due
        same = sorted({_LIST_OF[kind] for kind in due if not (note := self._notes.get(kind)) or not note.counts})
        if same:
            self._tell(same)

    def _tell(self, lists: list[str]) -> None:
        hints.lists_announced(self._lease.server_uid, self._lease.session_uid, lists)

    async def _read(self, kinds: list[DefinitionKind], request_number: int) -> bool:
        """Whether any of these lists differs from the stored one."""
        self._known = await self._kinds_known()
        recorded: set[DefinitionKind] = set()
        for kind in kinds:
            note = self._notes[kind] = await self._read_list(kind)
            self._was_read(kind)
            if (note.problem or note.cut or note.warnings or note.counts.first) and kind is not kinds[-1]:
                # Its tab says so at once, and agents get a first list, however long the other lists take.
                await self._record(None, [kind])
                recorded.add(kind)
        await self._record(request_number, [kind for kind in kinds if kind not in recorded])
        self._icons.look()
        return any(bool(self._notes[kind].counts) for kind in kinds)

    async def _record(self, request_number: int | None, kinds: list[DefinitionKind]) -> None:
        stale_at = self._await_staleness()
        await self._db.persist(partial(reading.note, self._lease, request_number, dict(self._notes), kinds, stale_at))

    # --- one list ----------------------------------------------------------------------------------------------------
    async def _read_list(self, kind: DefinitionKind) -> Note:
        """Read and store one list. If it cannot be read, the stored one stays."""
        self._stale_at.pop(kind, None)
        try:
            async with asyncio.timeout(READ_SECONDS):
                listing = await self._ask(kind)()
        except TimeoutError:
            words = f"The list of {PLURALS[kind]} was not complete after {READ_SECONDS:.0f} s, which is a fixed limit."
            return self._failed(kind, Fault.TIMEOUT, words)
        except McpError as error:
            return self._failed(kind, error.fault, masked_words(error.detail, self._redactor))
        if listing.ttl_ms:
            seconds = max(REFRESH_SECONDS * settings.TIME_SCALE, listing.ttl_ms / 1000)
            self._stale_at[kind] = asyncio.get_running_loop().time() + seconds
        try:
            counts = await self._stored(kind, listing)
        except RowsRefused:  # one list must not keep the others from being read
            log.exception("host.list_refused", session=str(self._lease.session_uid), kind=str(kind))
            words = f"The database did not accept the list of {PLURALS[kind]}. See the worker's log for the reason."
            return self._failed(kind, Fault.INVALID_RESULT, words)
        cut = _cut(listing) if listing.truncated else None
        return Note(timezone.now(), counts, warnings=tuple(listing.warnings), cut=cut)

    def _failed(self, kind: DefinitionKind, fault: Fault, words: str) -> Note:
        """A list that was truncated at its last good read still counts as truncated."""
        self._stale_at[kind] = asyncio.get_running_loop().time() + RETRY_SECONDS * settings.TIME_SCALE
        before = self._notes.get(kind)
        return Note(timezone.now(), problem=words, fault=str(fault), cut=before.cut if before else None)

    async def _stored(self, kind: DefinitionKind, listing: Listing) -> Counts:
        """Compares in a reader thread to keep work off the writer thread, which writes only if something changed."""
        if not listing.items and kind not in self._known:
            return Counts()
        items = self._redactor.value(listing.items)
        described = await self._compared(kind, items)
        if not described.differs:
            return Counts()
        job = partial(self._store, kind, described)
        counts = await self._db.persist(job, partial(self._events, kind))
        if counts.changed or counts.removed:
            await self._db.persist(partial(approvals.void_changed, self._lease.identity_id), list)
        return counts

    async def _compared(self, kind: DefinitionKind, items: list[dict[str, object]]) -> Described:
        """Waits for the database as long as it takes, as storing does. Never in the thread that stores: calls wait for it."""
        pause, longest = COMPARE_AGAIN_SECONDS
        while True:
            with suppress(DatabaseAway):
                return await self._db.read(lambda: read_listing(self._identity(), kind, items))
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _kinds_known(self) -> Collection[DefinitionKind]:
        """The kinds that have stored rows. For any other kind an empty list is no change."""
        try:
            return await self._db.read(partial(kinds_known, self._lease.identity_id))
        except DatabaseAway:
            return DefinitionKind

    def _store(self, kind: DefinitionKind, described: Described) -> Counts:
        """Stores nothing if the session is no longer ours."""
        known = lifecycle.held(self._lease).values_list("catalog_counts", flat=True).first()
        if known is None:
            return Counts()
        counts = store(self._identity(), described, timezone.now())
        if counts:
            lifecycle.announce(self._lease.server_uid, "catalog")
        return replace(counts, first=counts.first and not reading.was_read(known, kind))

    def _events(self, kind: DefinitionKind, counts: Counts) -> list[Event]:
        """The first list that a server offers is not a change."""
        return [reading.change_event(self._lease, kind, counts)] if counts and not counts.first else []

    def _identity(self) -> Identity:
        """Not loaded, only used for its relations. If the row were deleted, the session would be gone too."""
        return Identity(pk=self._lease.identity_id, server_id=self._lease.server_id)

    def _ask(self, kind: DefinitionKind) -> Callable[[], Awaitable[Listing]]:
        """The client itself sends no request for a capability that the server did not declare."""
        client = self._client
        return {
            DefinitionKind.TOOL: client.list_tools,
            DefinitionKind.RESOURCE: client.list_resources,
            DefinitionKind.RESOURCE_TEMPLATE: client.list_resource_templates,
            DefinitionKind.PROMPT: client.list_prompts,
        }[kind]

    # --- staleness ----------------------------------------------------------------------------------------------------
    def _await_staleness(self) -> datetime | None:
        """Schedule the refresh of the list that goes stale first, and return that time for the row."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._stale_at:
            return None
        loop = asyncio.get_running_loop()
        left = max(0.0, min(self._stale_at.values()) - loop.time())
        # The sessions of one server must not ask it in step (2026-07-28 *Caching*).
        left += random.uniform(0.0, min(left * SPREAD, LONGEST_SPREAD_SECONDS))  # noqa: S311  no secret
        self._timer = loop.call_later(left, self._refresh_stale)
        return timezone.now() + timedelta(seconds=left)

    def _refresh_stale(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._start([kind for kind, at in self._stale_at.items() if at <= now], 0.0)


def _cut(listing: Listing) -> tuple[str, str]:
    """Why the list was not read to its end: the fault and the client's own message."""
    fault = listing.limited_by or Fault.INVALID_RESULT  # truncated without a limit: the server sent an invalid cursor
    return str(fault), listing.cut_because
