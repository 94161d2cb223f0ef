"""Keeps the stored lists of a server's tools, resources, templates and prompts as the server has them now."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from django.utils import timezone

from servers.domain.catalog import store_listing
from servers.enums import DefinitionKind
from servers.models import Server
from sessions.client import Client
from sessions.domain import lifecycle
from sessions.domain.lifecycle import Hold
from sessions.host.db import Database
from sessions.host.redaction import Redactor
from sessions.protocol.errors import Fault, McpError
from sessions.protocol.results import Listing

#: a server that adds ten tools sends ten notifications
DEBOUNCE_SECONDS = 0.3
INTERVAL_SECONDS = 5.0
READ_SECONDS = 300.0


class Catalog:
    def __init__(self, db: Database, hold: Hold, client: Client, redactor: Redactor) -> None:
        self._db, self._hold, self._client, self._redactor = db, hold, client, redactor
        self._opened = False
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        self._not_before = 0.0
        self.order = 0

    def opened(self, order: int) -> None:
        """Read everything now. `order`: the wish to refresh that this fulfils."""
        self._opened = True
        self.want(order)

    def want(self, order: int) -> None:
        """A person asked: at once, unless a reading is under way; then once more after it."""
        self.order = max(self.order, order)
        self._not_before = 0.0
        self._start(0.0)

    def changed(self) -> None:
        """The server says that a list changed."""
        self._start(DEBOUNCE_SECONDS)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _start(self, delay: float) -> None:
        self._wanted = True
        if self._task is None and self._opened:
            self._task = asyncio.create_task(self._run(delay))

    async def _run(self, delay: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._wanted:
            await asyncio.sleep(max(delay, self._not_before - clock()))
            self._wanted = False
            self._not_before = clock() + INTERVAL_SECONDS
            await self._read(self.order)
            delay = DEBOUNCE_SECONDS
        self._task = None

    async def _read(self, order: int) -> None:
        warnings: list[str] = []
        cuts: dict[str, list[str]] = {}
        for kind, ask in self._kinds():
            listing = await self._listed(kind, ask, warnings)
            if listing is None:
                continue
            await self._db.persist(partial(self._store, kind, listing))
            warnings += listing.warnings
            if listing.truncated:
                cuts[kind] = _cut(listing)
        await self._db.persist(partial(lifecycle.catalog_read, self._hold, order, warnings, cuts))

    async def _listed(
        self, kind: DefinitionKind, ask: Callable[[], Awaitable[Listing]], warnings: list[str]
    ) -> Listing | None:
        """None when it could not be read: then what is stored stays."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await ask()
        except TimeoutError:
            warnings.append(f"The list of {_plural(kind)} was not complete after {READ_SECONDS:.0f} s.")
        except McpError as error:
            warnings.append(self._redactor.text(f"The {_plural(kind)} could not be listed: {error.detail}"))
        return None

    def _store(self, kind: DefinitionKind, listing: Listing) -> None:
        """Nothing when the session is not ours any more."""
        if lifecycle.held(self._hold).exists():
            server = Server.objects.get(pk=self._hold.server_id)
            store_listing(server, kind, self._redactor.value(listing.items), timezone.now())

    def _kinds(self) -> list[tuple[DefinitionKind, Callable[[], Awaitable[Listing]]]]:
        """How each kind is asked for; the client itself asks for nothing that was not declared."""
        client = self._client
        return [
            (DefinitionKind.TOOL, client.list_tools),
            (DefinitionKind.RESOURCE, client.list_resources),
            (DefinitionKind.RESOURCE_TEMPLATE, client.list_resource_templates),
            (DefinitionKind.PROMPT, client.list_prompts),
        ]


def _cut(listing: Listing) -> list[str]:
    """Why the list was not read to its end: the fault, and the client's own words."""
    fault = listing.limited_by or Fault.INVALID_RESULT  # without a limit it was a cursor that is none
    return [str(fault), listing.warnings[-1] if listing.warnings else ""]


def _plural(kind: DefinitionKind) -> str:
    return f"{kind.label.lower()}s"
