"""The endpoint for agents: a raw ASGI application next to Django, at /mcp/<short name of a server or bundle>.

It uses no thread and no database connection while an agent waits. Order of the checks: Host, Origin and size (before this,
by the web server), token, media types, rate, JSON, session or metadata, version, method, permissions.
"""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import structlog
from django.db import InterfaceError, OperationalError

from servers import limits
from servers.agents.addresses import PREFIX
from servers.agents.tokens import Principal
from servers.audit.writer import AuditUnavailable
from sessions.agents import endpoints
from sessions.agents.answer import Answer, Send, TooSlow
from sessions.agents.calls.calls import AgentDisconnected
from sessions.agents.connection import Connection, Disconnected, Receive, Scope, too_many_values
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import identified, modern_exchange, unavailable
from sessions.agents.legacy_sessions import LegacySessions
from sessions.agents.policy.admission import stopping
from sessions.agents.policy.policy_check import policy_owner_of
from sessions.agents.requests import Requests
from sessions.agents.shared import Shared
from sessions.agents.standing_streams import StandingStreams
from sessions.live.hub import Hub, hub
from sessions.mcp.core import json_text, jsonrpc, methods
from sessions.mcp.core.errors import ProtocolError
from sessions.mcp.core.jsonrpc import Notification
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.versions import Era
from sessions.mcp.server import legacy, modern, posted
from sessions.mcp.server.posted import Posted
from sessions.mcp.server.refusals import Refusal, later

_ALLOWED: Final = {"Allow": "POST, GET, DELETE"}
#: longer bodies are parsed in a thread
_LONG_BYTES: Final = 64 * 1024
#: after this long without the first byte of a response, the log says what it is waiting for
SILENT_SECONDS: Final = 10.0
log = structlog.get_logger(__name__)


async def agents_application(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    await _application()(scope, receive, send)


async def drain(seconds: float) -> None:
    """The process is stopping: end streams in an orderly way, and give requests this long to finish. Calls that are
    still running then continue in their workers."""
    application = _applications.get(asyncio.get_running_loop())
    if application is not None:
        await application.drain(seconds)


_applications: "WeakKeyDictionary[asyncio.AbstractEventLoop, AgentsApplication]" = WeakKeyDictionary()


def shared() -> Shared:
    """What agent requests share in this web process: the HTTP API counts against the same admission."""
    return _application().shared


def requests() -> Requests:
    return _application().requests


def _application() -> "AgentsApplication":
    loop = asyncio.get_running_loop()
    if loop not in _applications:
        _applications[loop] = AgentsApplication(hub())
    return _applications[loop]


class AgentsApplication:
    """One per web process."""

    def __init__(self, hub: Hub) -> None:
        self.shared = Shared(hub)
        self.requests = Requests(self.shared)
        self._sessions = LegacySessions(self.shared, self.requests)
        self._streams = StandingStreams(self.shared)
        self._methods = {"POST": self._post, "GET": self._streams.get, "DELETE": self._sessions.delete}
        self._running: set[asyncio.Task[Any]] = set()

    async def drain(self, seconds: float) -> None:
        self.shared.admission.drain()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        connection = Connection(scope, receive)
        answer = Answer(send, connection.headers.get("accept", ""), connection.backlog, connection.request_id)
        user_id = None
        silent = asyncio.get_running_loop().call_later(SILENT_SECONDS, _say_silent, connection, answer)
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        try:
            if self.shared.admission.draining:
                raise stopping()
            connection.step = "principal"
            authorization = connection.headers.get("authorization", "")
            principal = await self.shared.admission.principal(authorization, connection.address, connection.slug)
            user_id = principal.token.user_id
            await self._methods.get(connection.method, self._not_allowed)(principal, connection, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except endpoints.NoEndpoint:
            await answer.refuse(Refusal(404, jsonrpc.INVALID_REQUEST, "This endpoint does not exist."))
        except endpoints.NoSession:
            await answer.refuse(
                Refusal(404, jsonrpc.INVALID_REQUEST, "This session has ended. Send initialize to open a new one.")
            )
        except AuditUnavailable as problem:
            await answer.refuse(unavailable(problem))
        except (AgentDisconnected, Disconnected):
            pass  # there is no one left to respond to
        except TooSlow:
            log.warning("agent_too_slow", path=str(scope["path"]), user_id=user_id)
            await answer.end()
        except (OperationalError, InterfaceError) as problem:  # agents waiting for a call keep waiting: see Calls.view
            log.warning("agent_database_away", path=str(scope["path"]), problem=str(problem))
            with suppress(TooSlow):
                await answer.refuse(_without_database())
        except Exception:  # a bug of ours in one request; placed calls are in the ledger
            log.exception("agent_request_failed", path=str(scope["path"]))
            with suppress(TooSlow):
                await answer.refuse(Refusal(500, jsonrpc.INTERNAL_ERROR, "mcpadmin failed to handle this request."))
        finally:
            silent.cancel()
        ms = round((time.perf_counter() - started) * 1000, 1)
        log.info(
            "agent_request",
            method=connection.method,
            path=str(scope["path"]),
            status=answer.status,
            ms=ms,
            ip=connection.address,
            user_id=user_id,
            request_id=connection.request_id,
        )

    async def _not_allowed(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        raise Refusal(405, jsonrpc.INVALID_REQUEST, "Use POST.", headers=_ALLOWED)

    async def _post(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        posted.check_media_types(connection.headers)
        admission = self.shared.admission
        connection.step = "admission"
        await admission.admit(principal)
        connection.step = ""  # the agent is still sending
        body = await connection.body()
        connection.step = "body"
        found = await self._parsed(body)
        answer.answers = posted.request_id(found)
        asks = posted.asks(found)  # everything else ends requests in flight, so it must not wait for a free slot
        async with AsyncExitStack() as counted:
            if posted.SESSION in connection.headers:
                counted.enter_context(self.shared.calls.arriving.known(principal, connection.headers, found))
            if asks:
                await counted.enter_async_context(admission.flight(principal))
            watching = asyncio.create_task(connection.watch())
            try:
                era = posted.era_of(found, connection.headers)
                opens = era is Era.LEGACY and legacy.opens(found)
                in_session = era is Era.LEGACY and not opens
                entry = await self.shared.entry(principal, connection, session=in_session, recent=True)
                connection.step = "admission"
                if era is Era.MODERN:
                    return await self._modern(entry, connection, answer, found, counted)
                if asks:
                    await counted.enter_async_context(admission.at(policy_owner_of(entry.place)))
                if opens:
                    await self._sessions.open(entry, connection, answer, legacy.opening_of(found))
                else:
                    await self._sessions.receive(entry, connection, answer, found)
            finally:
                watching.cancel()

    async def _parsed(self, body: bytes) -> Posted:
        """Raises Refusal."""
        if len(body) > _LONG_BYTES:  # without delaying other agents
            return await self.shared.reader.work(partial(_parsed, body))
        return _parsed(body)

    async def _modern(
        self, entry: Entry, connection: Connection, answer: Answer, found: Posted, counted: AsyncExitStack
    ) -> None:
        """Closing `counted` ends its count as in flight."""
        request = modern.read(found, connection.headers)
        if isinstance(request, Notification):
            return await answer.empty(202)
        exchange = modern_exchange(entry, connection, request)
        self.shared.admission.note_use(entry.principal, connection.address, exchange.program)
        if request.method == methods.LISTEN:
            await counted.aclose()  # from here on it counts as a stream, like a GET
            with identified(exchange):
                return await self._streams.listen(exchange, connection, answer)
        async with self.shared.admission.at(policy_owner_of(entry.place)):
            await self.requests.finish(answer, await self.requests.respond(exchange, connection, answer))


def _say_silent(connection: Connection, answer: Answer) -> None:
    if connection.step and not answer.begun:
        log.warning(
            "agent_not_answered", path=PREFIX + connection.slug, step=connection.step, request_id=connection.request_id
        )


def _without_database() -> Refusal:
    words = "The database is not responding. Try again in a moment."
    return later(503, jsonrpc.INTERNAL_ERROR, words, 2)


def _parsed(body: bytes) -> Posted:
    """Parse the body. Values are counted first: parsing half a million would delay other agents. Raises Refusal."""
    most = limits.number("agent_body_values")
    if len(body) > most:
        try:
            json_text.check_values(body, most)
        except ProtocolError as problem:
            raise too_many_values() from problem
    return posted.parse(body, Limits(message_bytes=limits.number("agent_body_bytes")))
