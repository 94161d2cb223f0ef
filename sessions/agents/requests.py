"""One request and its response, in either era: lists, calls, and the first use of a server that was never connected."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError

from servers.audit.record import Actor
from servers.enums import ActionSource, AgentScope, BundleListing
from sessions import hints
from sessions.agents import agent_sessions, endpoints, follows
from sessions.agents.answer import Answer
from sessions.agents.call_request import require_scope, require_scope_of_call, text_of
from sessions.agents.calls import questions
from sessions.agents.catalog import bundles, lists, search
from sessions.agents.connection import Connection
from sessions.agents.endpoints import INSTRUCTIONS_CHARS, BundleEndpoint, Endpoint, Entry
from sessions.agents.exchange import Exchange, identified
from sessions.agents.shared import Shared
from sessions.connections import commands
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers, modern
from sessions.mcp.server.refusals import FORBIDDEN, Refusal, invalid_params, later

#: how long the first request to a never-connected server waits for its lists
CONNECT_SECONDS: Final = 20.0
_LISTED_BY: Final = {methods.TOOLS_CALL: methods.TOOLS_LIST, methods.PROMPTS_GET: methods.PROMPTS_LIST}


class Requests:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def respond(self, exchange: Exchange, connection: Connection, answer: Answer | None) -> bytes | None:
        """Return the response to one request of either era; None: nothing may be sent. Raises Refusal with its id."""
        connection.step = ""  # its server may still be starting
        with identified(exchange):
            return await self._dispatched(exchange, connection, answer)

    async def finish(self, answer: Answer, message: bytes | None) -> None:
        """Finish the response to one request. `message`: what `respond` returned."""
        if message is not None:
            return await answer.finish(message)
        if answer.streaming or not answer.may_stream:
            return await (answer.end() if answer.streaming else answer.empty(202))
        await answer.open()
        await answer.end()

    async def _dispatched(self, exchange: Exchange, connection: Connection, answer: Answer | None) -> bytes | None:
        method = exchange.method
        if method == methods.PING:
            return jsonrpc.result(exchange.id, {})
        if method == methods.DISCOVER:
            return await self._discover(exchange)
        if method in lists.KINDS:
            return await self._list(exchange)
        if method == methods.SET_LEVEL:
            return await self._set_level(exchange)
        if method in (methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE):
            return await self._subscribe(exchange)
        if method == methods.TOOLS_CALL and _searches(exchange) and exchange.params.get("name") == search.FIND_TOOL:
            return await self._find_tool(exchange)
        through_call_tool = _searches(exchange) and exchange.params.get("name") == search.CALL_TOOL
        exchange = await self._at_server(exchange)
        mirrors = method == methods.TOOLS_CALL and exchange.era is Era.MODERN and not through_call_tool
        if mirrors and questions.continues(exchange):  # before its answers are used
            await self._check_mirrored(exchange)
            mirrors = False
        return await self._shared.calls.perform(exchange, answer, connection, mirrors=mirrors)

    async def start(self, exchange: Exchange) -> UUID:
        """Start the call of a request whose agent will ask for the outcome later. Raises Refusal."""
        return await self._shared.calls.start(await self._at_server(exchange))

    async def _at_server(self, exchange: Exchange) -> Exchange:
        """The request, once its server's list is known: an agent may call without listing first. An agent without the
        scope opens no session and does not learn which names exist."""
        require_scope_of_call(exchange)
        exchange = await self.routed(exchange)
        listed = _LISTED_BY.get(exchange.method, "")
        of_bundle = exchange.entry.bundle is not None  # its lists were waited for before it was routed
        if listed and not of_bundle and not lists.was_read(exchange.entry.endpoint, listed):
            exchange = replace(exchange, entry=await self.known(exchange.entry, listed))
        return exchange

    async def routed(self, exchange: Exchange) -> Exchange:
        """The request, routed to the server that it concerns. Names are known once a bundle's lists have been read: a
        member that is still starting delays only requests that may be for it. Raises Refusal."""
        place, method = exchange.entry.place, _LISTED_BY.get(exchange.method, methods.RESOURCES_LIST)
        if not isinstance(place, BundleEndpoint):
            return exchange
        if not all(lists.is_known(one, method) for one in place.members):
            members = await self._shared.reader.work(partial(bundles.concerned, exchange))
            exchange = replace(exchange, entry=await self.known(exchange.entry, method, {one.uid for one in members}))
        return await self._shared.reader.work(partial(bundles.routed, exchange))

    async def _find_tool(self, exchange: Exchange) -> bytes:
        """Answered from the catalog, without contacting a server."""
        require_scope(exchange, AgentScope.LIST)
        wanted = search.wanted(exchange)
        if isinstance(wanted, str):
            result = answers.tool_error(wanted, exchange.era)
        else:
            entry = await self.known(exchange.entry, methods.TOOLS_LIST)
            result = await self._shared.reader.work(partial(_found, entry, wanted))
        return jsonrpc.result(exchange.id, answers.translated(result, exchange.method, exchange.era))

    async def _discover(self, exchange: Exchange) -> bytes:
        entry = await self.known(exchange.entry)
        offered = answers.offered(entry.place.capabilities)
        return jsonrpc.result(exchange.id, modern.discovery(identity(entry), offered, instructions(entry)))

    async def _list(self, exchange: Exchange) -> bytes:
        require_scope(exchange, AgentScope.LIST)
        entry = await self.known(exchange.entry, exchange.method)
        page = await self._shared.reader.run(partial(lists.page, entry, exchange.method, exchange.params, exchange.era))
        return answers.answer(exchange.id, page)

    async def _check_mirrored(self, exchange: Exchange) -> None:
        mirrored = await self._shared.reader.run(partial(lists.mirrored, exchange.entry, text_of(exchange, "name")))
        modern.check_mirrored(exchange.params.get("arguments"), mirrored, exchange.headers)

    async def _set_level(self, exchange: Exchange) -> bytes:
        """Set the log level for this session's own calls from now on."""
        level, session = exchange.params.get("level"), exchange.session
        if session is None or "logging" not in answers.offered(exchange.entry.place.capabilities):
            raise Refusal(200, jsonrpc.METHOD_NOT_FOUND, "This server does not support logging: it did not declare it.")
        if level not in methods.LOG_LEVELS:
            raise invalid_params(f"params.level must be one of {', '.join(methods.LOG_LEVELS)}.")
        await self._shared.reader.work(partial(agent_sessions.set_log_level, session, level))
        self._shared.entries.forget_sessions()
        return jsonrpc.result(exchange.id, {})

    async def _subscribe(self, exchange: Exchange) -> bytes:
        require_scope(exchange, AgentScope.READ)
        uri, session = text_of(exchange, "uri"), exchange.session
        if session is None:
            raise invalid_params(f"{exchange.method} needs a session.")
        if exchange.method == methods.RESOURCES_SUBSCRIBE:
            at = await self.routed(exchange)
            given = partial(follows.follow, at.actor, at.entry, at.params["uri"], shown=uri)
            await self._shared.reader.work(given)
        else:
            await self._shared.reader.work(partial(follows.unfollow, exchange.entry, uri))
        self._shared.entries.forget_sessions()
        hints.agent_follows_changed(session.uid)
        return jsonrpc.result(exchange.id, {})

    # --- a server that was never connected -------------------------------------------------------------------------
    async def known(self, entry: Entry, method: str = "", only: Collection[str] | None = None) -> Entry:
        """The entry, once its servers' capabilities are known and the list for `method` has been read. The first use of
        a server opens its session. For a bundle, what is not known in time is omitted; `only`: the uids of the members
        to wait for, if not all. Raises Refusal (503), or (403) if the person needs their own credential first."""
        if _is_known(entry, method, only):
            return entry
        name = entry.place.name
        if isinstance(entry.place, Endpoint) and not entry.place.server.enabled:
            raise later(503, jsonrpc.INTERNAL_ERROR, f"{name} is disabled.", 60)
        wake = asyncio.Event()
        stops = [self._shared.hub.watch(topic, lambda _: wake.set()) for topic in entry.place.topics]
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                try:
                    await self._shared.reader.work(partial(_connect, entry))
                except ValidationError as needs_own:
                    raise Refusal(403, FORBIDDEN, " ".join(needs_own.messages)) from needs_own
                while not _is_known(entry := await self._shared.reader.run(partial(_again, entry)), method, only):
                    place = entry.place
                    if isinstance(place, Endpoint) and method and (problem := lists.problem(place, method)):
                        raise Refusal(200, jsonrpc.INTERNAL_ERROR, f"{name} did not send this list: {problem}")
                    await wake.wait()
                    wake.clear()
        except TimeoutError:
            if isinstance(entry.place, BundleEndpoint):
                return entry
            words = f"{name} is not connected yet. Its page in mcpadmin shows why."
            raise later(503, jsonrpc.INTERNAL_ERROR, words, 5) from None
        finally:
            for stop in stops:
                stop()
        return entry


def _is_known(entry: Entry, method: str, only: Collection[str] | None) -> bool:
    place = entry.place
    if isinstance(place, BundleEndpoint):
        members = [one for one in place.members if only is None or one.uid in only]
        return all(one.endpoint.connected or one.down for one in members) and (
            not method or all(lists.is_known(one, method) for one in members)
        )
    return place.connected and (not method or lists.was_read(place, method))


def _found(entry: Entry, wanted: search.SearchQuery) -> dict[str, Any]:
    """Call it in a thread: servers determine how much text must be searched."""
    tools = lists.findable(entry)
    return search.answer(search.found(tools, wanted.query, wanted.limit), len(tools))


def _searches(exchange: Exchange) -> bool:
    place = exchange.entry.place
    return isinstance(place, BundleEndpoint) and place.bundle.listing == BundleListing.SEARCH


def identity(entry: Entry) -> Implementation:
    return Implementation(entry.place.slug, settings.VERSION, entry.place.name)


def instructions(entry: Entry) -> str:
    return entry.place.instructions[:INSTRUCTIONS_CHARS]


def _connect(entry: Entry) -> None:
    """Open the sessions, as a call would: an on-demand server connects for the first agent that needs it. A member that
    this person cannot open does not block the others."""
    actor, user = Actor.of_user(entry.principal.user, way=ActionSource.AGENT), entry.principal.user
    if isinstance(entry.place, Endpoint):
        commands.open_session(actor, commands.session_for(user, entry.place.server))
        return
    for one in entry.place.members:
        if one.endpoint.server.enabled and not one.endpoint.ready:
            with suppress(ValidationError):
                commands.open_session(actor, commands.session_for(user, one.endpoint.server))


def _again(entry: Entry) -> Entry:
    key = entry.session.key if entry.session is not None else ""
    return endpoints.entry_of(entry.principal, entry.place.slug, key)
