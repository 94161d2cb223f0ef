"""Reads the lists of a server page by page, and caches answers where a modern server allows it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from ..core import jsonrpc, methods
from ..core.caching import Hints, hints_of
from ..core.capabilities import declares
from ..core.errors import Fault, InvalidRequest, McpError, RpcError
from ..core.events import ListKind
from ..core.headers import BadAnnotation, Mirrored, mirrored_arguments
from ..core.limits import Limits
from ..core.pagination import Pages
from ..core.results import Listing
from ..core.versions import Era
from .cache import Cache, Key, list_key
from .pump import RequestSpec
from .requester import Requester


class Lists:
    """With `cached`, a list may come from the cache while its modern server allows that; the caller must not change
    it."""

    def __init__(self, requester: Requester, limits: Limits) -> None:
        self._requester, self._session, self._pump = requester, requester.session, requester.pump
        self._limits = limits
        #: made by the first call that may be answered from it
        self._cache: Cache | None = None
        #: modern HTTP: the arguments of each tool that headers repeat
        self._mirrored: dict[str, tuple[Mirrored, ...]] = {}
        requester.on_failed.append(self._failed)
        requester.on_renewed.append(self._renewed)

    async def read(self, kind: ListKind, *, cached: bool = False) -> Listing:
        """All pages; an empty list when the server did not declare the capability. On modern HTTP, tools with a wrong
        `x-mcp-header` are left out, each with a warning."""
        await self._requester.demand_open()
        key = list_key(kind)
        kept = self.recall(key) if cached else None
        if not isinstance(kept, Listing):
            seen = self.cache_changes
            reading = await self._read_pages(kind)
            kept = reading.listing()
            self._remember(key, kept, reading.fresh_until, seen)
        return self._without_bad_headers(kept) if kind is ListKind.TOOLS and self._requester.mirrors else kept

    # -- the arguments of a tool that headers repeat

    async def mirrored_for(self, name: str, schema: Mapping[str, Any] | None) -> tuple[Mirrored, ...]:
        """The arguments of this tool that headers repeat, if headers mirror requests. Without its input schema, the
        tools are listed first. InvalidRequest: the schema's annotations are wrong."""
        if schema is not None:
            try:
                return mirrored_arguments(schema)
            except BadAnnotation as exc:
                raise InvalidRequest(f"The tool cannot be called over HTTP: {exc}.") from exc
        if name not in self._mirrored:
            await self.read(ListKind.TOOLS)
        return self._mirrored.get(name, ())

    async def relearn_mirrored(self, spec: RequestSpec) -> None:
        """After a header mismatch: list the tools again, and correct the call."""
        if spec.method == methods.TOOLS_CALL and spec.params is not None:
            await self.read(ListKind.TOOLS)
            spec.mirrored = self._mirrored.get(spec.params["name"], ())

    async def _read_pages(self, kind: ListKind) -> "_Reading":
        reading = _Reading(kind, self._limits, hinted=self._session.era is Era.MODERN)
        if not declares(self._session.server_capabilities, reading.pages.capability):
            return reading
        try:
            async with asyncio.timeout(self._requester.timeouts.total):
                while not reading.pages.done:
                    await self._read_page(reading)
        except TimeoutError:
            words = (
                f"The list was not complete after {self._requester.timeouts.total:g} s; only its beginning was read."
            )
            reading.pages.cut_short(Fault.TOTAL_DEADLINE, words)
        return reading

    async def _read_page(self, reading: "_Reading") -> None:
        pages = reading.pages
        try:
            result = await self._requester.request(pages.method, pages.params, self._requester.timeouts.request)
        except RpcError as exc:
            if exc.code == jsonrpc.METHOD_NOT_FOUND:
                pages.refused(f"The server declares {pages.capability}, but does not know {pages.method}.")
            elif pages.ended_by(exc.code):
                return
            elif exc.code != jsonrpc.INVALID_PARAMS or pages.params is None or not reading.restart():
                raise
        else:
            reading.add(result, asyncio.get_running_loop().time())

    def _without_bad_headers(self, listing: Listing) -> Listing:
        kept, warnings = [], list(listing.warnings)
        self._mirrored.clear()
        for tool in listing.items:
            try:
                self._mirrored[tool["name"]] = mirrored_arguments(tool.get("inputSchema"))
                kept.append(tool)
            except BadAnnotation as exc:
                warnings.append(f"The tool {tool['name'][:100]!r} was left out: {exc}.")
        return replace(listing, items=kept, warnings=warnings)

    # -- cached values

    def recall(self, key: Key) -> Any:
        """The cached value of this key while it is fresh, else None. The first call turns caching on."""
        if self._cache is None:
            self._cache = Cache()
            self._pump.listeners.append(self._cache.on_event)
        return self._cache.get(key, asyncio.get_running_loop().time())

    def _remember(self, key: Key, value: Any, fresh_until: float, seen: int) -> None:
        """`seen`: the cache's `changes` before the server was asked; if it changed since, the value is not kept."""
        if self._cache is None:
            return
        unchanged = self._cache.changes == seen
        self._cache.put(key, value, fresh_until if unchanged else -inf, asyncio.get_running_loop().time())

    def remember_result(self, key: Key, result: dict[str, Any], seen: int, *, whole: bool) -> None:
        """The same, using the hints of one result; `whole`: the server asked no question in between."""
        if self._cache is not None:
            hinted = whole and self._session.era is Era.MODERN
            ttl = hints_of(result).ttl_ms / 1000 if hinted else -inf
            self._remember(key, result, asyncio.get_running_loop().time() + ttl, seen)

    @property
    def cache_changes(self) -> int:
        return self._cache.changes if self._cache is not None else 0

    def _failed(self, spec: RequestSpec, error: McpError) -> None:
        outdated = isinstance(error, RpcError) and error.code in (jsonrpc.INVALID_PARAMS, jsonrpc.HEADER_MISMATCH)
        if self._cache is not None and outdated and spec.method == methods.TOOLS_CALL:
            self._cache.drop(list_key(ListKind.TOOLS))

    def _renewed(self) -> None:
        if self._cache is not None:
            self._cache.clear()


class _Reading:
    """A list that is being read, and until when all of it may be cached. Only modern servers give hints."""

    def __init__(self, kind: ListKind, limits: Limits, *, hinted: bool) -> None:
        self._kind, self._limits, self._hinted = kind, limits, hinted
        self._restarted = False
        self._begin()

    def _begin(self) -> None:
        self.pages = Pages(self._kind, self._limits)
        self._hints: Hints | None = None
        self.fresh_until = inf

    def restart(self) -> bool:
        """The server no longer knows its own cursor: start again from the first page, once."""
        if self._restarted:
            return False
        self._begin()
        self._restarted = True
        return True

    def add(self, result: dict[str, Any], now: float) -> None:
        self.pages.add(result)
        if self._hinted:
            hints = hints_of(result)
            self._hints = hints.within(self._hints)
            self.fresh_until = min(self.fresh_until, now + hints.ttl_ms / 1000)

    def listing(self) -> Listing:
        listing, hints = self.pages.listing(), self._hints
        if hints is None:
            self.fresh_until = -inf
            return listing
        return replace(listing, ttl_ms=hints.ttl_ms, cache_scope=hints.scope)
