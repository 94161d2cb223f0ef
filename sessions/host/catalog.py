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
from sessions.protocol.capabilities import offers
from sessions.protocol.errors import McpError, RpcError
from sessions.protocol.results import Connected, Listing

#: a server that adds ten tools sends ten notifications
DEBOUNCE_SECONDS = 0.3
INTERVAL_SECONDS = 5.0
READ_SECONDS = 300.0
METHOD_NOT_FOUND = -32601


class Catalog:
    def __init__(self, db: Database, hold: Hold, client: Client, redactor: Redactor) -> None:
        self._db, self._hold, self._client, self._redactor = db, hold, client, redactor
        self._connected: Connected | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        self._not_before = 0.0
        self.order = 0

    def opened(self, connected: Connected, order: int) -> None:
        """Read everything now. `order`: the wish to refresh that this fulfils."""
        self._connected = connected
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
        if self._task is None and self._connected is not None:
            self._task = asyncio.create_task(self._run(self._connected, delay))

    async def _run(self, connected: Connected, delay: float) -> None:
        clock = asyncio.get_running_loop().time
        while self._wanted:
            await asyncio.sleep(max(delay, self._not_before - clock()))
            self._wanted = False
            self._not_before = clock() + INTERVAL_SECONDS
            await self._read(connected, self.order)
            delay = DEBOUNCE_SECONDS
        self._task = None

    async def _read(self, connected: Connected, order: int) -> None:
        warnings: list[str] = []
        for kind, name, ask in self._kinds():
            offered = offers(connected.server_capabilities, name)
            listing = await self._listed(kind, ask, warnings) if offered else Listing([])
            if listing is None:
                continue
            await self._db.persist(partial(self._store, kind, listing))
            warnings += listing.warnings
            if listing.truncated:
                warnings.append(f"The list of {_plural(kind)} is longer than can be kept; its beginning is shown.")
        await self._db.persist(partial(lifecycle.catalog_read, self._hold, order, warnings))

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
            if isinstance(error, RpcError) and error.code == METHOD_NOT_FOUND:
                return Listing([])  # a capability often stands for both resources and templates
            warnings.append(self._redactor.text(f"The {_plural(kind)} could not be listed: {error.detail}"))
        return None

    def _store(self, kind: DefinitionKind, listing: Listing) -> None:
        """Nothing when the session is not ours any more."""
        if lifecycle.held(self._hold).exists():
            server = Server.objects.get(pk=self._hold.server_id)
            store_listing(server, kind, self._redactor.value(listing.items), timezone.now())

    def _kinds(self) -> list[tuple[DefinitionKind, str, Callable[[], Awaitable[Listing]]]]:
        """Kind, the capability that declares it, and how it is asked for."""
        client = self._client
        return [
            (DefinitionKind.TOOL, "tools", client.list_tools),
            (DefinitionKind.RESOURCE, "resources", client.list_resources),
            (DefinitionKind.RESOURCE_TEMPLATE, "resources", client.list_resource_templates),
            (DefinitionKind.PROMPT, "prompts", client.list_prompts),
        ]


def _plural(kind: DefinitionKind) -> str:
    return f"{kind.label.lower()}s"
