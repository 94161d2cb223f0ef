"""Keeps the stored lists of a server's tools, resources, templates and prompts as the server has them now.

Read when the session opens, when a person asks, list by list when the server tells of a change, and when what was read
has grown stale by the server's own hints (modern only).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.utils import timezone

from servers.audit.record import Event
from servers.domain.catalog import Counts, kinds_known, read_listing, store
from servers.domain.listing import Listing as Described
from servers.enums import DefinitionKind
from servers.models import Identity
from sessions.client import Client
from sessions.domain import catalog_reading, lifecycle
from sessions.domain.catalog_reading import PLURALS, Note
from sessions.domain.lifecycle import Hold
from sessions.host.db import Database, DatabaseAway
from sessions.host.ending import end
from sessions.host.redaction import Redactor
from sessions.protocol.errors import Fault, McpError
from sessions.protocol.events import ListKind
from sessions.protocol.results import Listing

#: a server that adds ten tools sends ten notifications
DEBOUNCE_SECONDS = 0.3
INTERVAL_SECONDS = 5.0
READ_SECONDS = 300.0
#: a server that calls its lists stale at once is still not asked all the time
REFRESH_SECONDS = 30.0
#: after a list that could not be read
RETRY_SECONDS = 300.0
log = structlog.get_logger(__name__)
_KINDS = {
    ListKind.TOOLS: (DefinitionKind.TOOL,),
    ListKind.RESOURCES: (
        DefinitionKind.RESOURCE,
        DefinitionKind.RESOURCE_TEMPLATE,
    ),  # templates have no word of their own
    ListKind.RESOURCE_TEMPLATES: (DefinitionKind.RESOURCE_TEMPLATE,),
    ListKind.PROMPTS: (DefinitionKind.PROMPT,),
}


class Catalog:
    def __init__(self, db: Database, hold: Hold, client: Client, redactor: Redactor) -> None:
        self._db, self._hold, self._client, self._redactor = db, hold, client, redactor
        self._opened = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wanted: set[DefinitionKind] = set()
        self._stale_at: dict[DefinitionKind, float] = {}
        self._notes: dict[DefinitionKind, Note] = {}
        self._not_before = 0.0
        self._known: Collection[DefinitionKind] = DefinitionKind
        self.order = 0

    def opened(self, order: int) -> None:
        """Read everything now. `order`: the wish to refresh that this fulfils."""
        self._opened = True
        self.want(order)

    def want(self, order: int) -> None:
        """A person asked: at once, unless a reading is under way; then once more after it."""
        self.order = max(self.order, order)
        self._not_before = 0.0
        self._start(DefinitionKind, 0.0)

    def changed(self, kind: ListKind | None = None) -> None:
        """The server says that a list changed; None: any of them may have."""
        self._start(DefinitionKind if kind is None else _KINDS[kind], DEBOUNCE_SECONDS)

    async def close(self) -> None:
        self._opened = False
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        await end(task)

    def _start(self, kinds: Iterable[DefinitionKind], delay: float) -> None:
        self._wanted |= set(kinds)
        if self._task is None and self._opened:
            self._task = asyncio.create_task(self._run(delay))

    async def _run(self, delay: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._wanted:
            await asyncio.sleep(max(delay, self._not_before - clock()))
            kinds, self._wanted = self._wanted, set()
            self._not_before = clock() + INTERVAL_SECONDS
            try:
                await self._read([kind for kind in DefinitionKind if kind in kinds], self.order)
            except Exception:  # a fault of ours must not leave the lists as they are for ever
                log.exception("host.catalog_failed", session=str(self._hold.session_uid))
            delay = DEBOUNCE_SECONDS
        self._task = None

    async def _read(self, kinds: list[DefinitionKind], order: int) -> None:
        self._known = await self._kinds_known()
        for kind in kinds:
            self._notes[kind] = await self._noted(kind)
        stale_at = self._await_staleness()
        note = partial(catalog_reading.note, self._hold, order, dict(self._notes), kinds, stale_at)
        await self._db.persist(note)

    # --- one list ----------------------------------------------------------------------------------------------------
    async def _noted(self, kind: DefinitionKind) -> Note:
        """Read and store one list. When it could not be read, what is stored stays."""
        self._stale_at.pop(kind, None)
        try:
            async with asyncio.timeout(READ_SECONDS):
                listing = await self._ask(kind)()
        except TimeoutError:
            return self._failed(kind, f"The list of {PLURALS[kind]} was not complete after {READ_SECONDS:.0f} s.")
        except McpError as error:
            return self._failed(kind, self._redactor.text(f"The {PLURALS[kind]} could not be listed: {error.detail}"))
        if listing.ttl_ms:
            seconds = max(REFRESH_SECONDS * settings.TIME_SCALE, listing.ttl_ms / 1000)
            self._stale_at[kind] = asyncio.get_running_loop().time() + seconds
        counts = await self._stored(kind, listing)
        cut = _cut(listing) if listing.truncated else None
        return Note(timezone.now(), counts, warnings=tuple(listing.warnings), cut=cut)

    def _failed(self, kind: DefinitionKind, words: str) -> Note:
        """A list that was cut before is still the cut one."""
        self._stale_at[kind] = asyncio.get_running_loop().time() + RETRY_SECONDS * settings.TIME_SCALE
        before = self._notes.get(kind)
        return Note(timezone.now(), problem=words, cut=before.cut if before else None)

    async def _stored(self, kind: DefinitionKind, listing: Listing) -> Counts:
        """Compared in a reader's thread, so that the writer has little to do, and nothing where nothing changed."""
        if not listing.items and kind not in self._known:
            return Counts()
        items = self._redactor.value(listing.items)
        described = await self._compared(kind, items)
        if described is not None and not described.differs:
            return Counts()
        job = partial(self._store, kind, items, described)
        return await self._db.persist(job, partial(self._events, kind))

    async def _compared(self, kind: DefinitionKind, items: list[dict[str, object]]) -> Described | None:
        try:
            return await self._db.read(lambda: read_listing(self._identity(), kind, items))
        except DatabaseAway:
            return None

    async def _kinds_known(self) -> Collection[DefinitionKind]:
        """Of which rows are stored; of the others an empty list is no news."""
        try:
            return await self._db.read(partial(kinds_known, self._hold.identity_id))
        except DatabaseAway:
            return DefinitionKind

    def _store(self, kind: DefinitionKind, items: list[dict[str, object]], described: Described | None) -> Counts:
        """Nothing when the session is not ours any more."""
        known = lifecycle.held(self._hold).values_list("catalog_counts", flat=True).first()
        if known is None:
            return Counts()
        identity = self._identity()
        counts = store(identity, described or read_listing(identity, kind, items), timezone.now())
        if counts:
            lifecycle.announce(self._hold.server_uid, "catalog")
        return replace(counts, first=counts.first and not catalog_reading.was_read(known, kind))

    def _events(self, kind: DefinitionKind, counts: Counts) -> list[Event]:
        """What a server offers at first is no change."""
        return [catalog_reading.change_event(self._hold, kind, counts)] if counts and not counts.first else []

    def _identity(self) -> Identity:
        """For its relations alone; a row that is gone took the session with it."""
        return Identity(pk=self._hold.identity_id, server_id=self._hold.server_id)

    def _ask(self, kind: DefinitionKind) -> Callable[[], Awaitable[Listing]]:
        """How each kind is asked for; the client itself asks for nothing that was not declared."""
        client = self._client
        return {
            DefinitionKind.TOOL: client.list_tools,
            DefinitionKind.RESOURCE: client.list_resources,
            DefinitionKind.RESOURCE_TEMPLATE: client.list_resource_templates,
            DefinitionKind.PROMPT: client.list_prompts,
        }[kind]

    # --- staleness -----------------------------------------------------------------------------------------------------
    def _await_staleness(self) -> datetime | None:
        """Wake up when the first list grows stale; that moment for the row."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._stale_at:
            return None
        loop, first = asyncio.get_running_loop(), min(self._stale_at.values())
        self._timer = loop.call_at(first, self._refresh_stale)
        return timezone.now() + timedelta(seconds=first - loop.time())

    def _refresh_stale(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._start([kind for kind, at in self._stale_at.items() if at <= now], 0.0)


def _cut(listing: Listing) -> tuple[str, str]:
    """Why the list was not read to its end: the fault, and the client's own words."""
    fault = listing.limited_by or Fault.INVALID_RESULT  # without a limit it was a cursor that is none
    return str(fault), listing.warnings[-1] if listing.warnings else ""
