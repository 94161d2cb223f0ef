"""The door for agents: a raw ASGI application beside Django, at /mcp/<short name of a server>.

It holds no thread and no database connection while a program waits. Order of the checks: Host and Origin (the web
server's side, before this), size, token, rate, JSON, session or metadata, version, method, rights.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from servers import limits
from servers.agents.tokens import Principal
from servers.audit.record import Actor
from servers.enums import AgentScope, PolicyKind, Way
from sessions.agents import agent_sessions, changes, endpoints, follows, ledger, lists, questions
from sessions.agents.answer import Answer, Send, TooSlow
from sessions.agents.asked import require_scope
from sessions.agents.calls import Calls, Gone
from sessions.agents.changes import Changes
from sessions.agents.connection import Connection, Disconnected, Receive, Scope
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.agents.gate import Gate, stopping
from sessions.agents.judging import Judge
from sessions.connections import commands
from sessions.hints import POLICIES, USERS
from sessions.live.hub import Hub, hub
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.jsonrpc import Notification, Request, Response
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers, legacy, modern, posted, streams
from sessions.mcp.server.legacy import Opening
from sessions.mcp.server.modern import ModernRequest
from sessions.mcp.server.posted import Posted
from sessions.mcp.server.refusals import Refusal, invalid_params, invalid_request
from sessions.models import AgentSession

#: how long the first request to a server that was never connected waits for its lists
CONNECT_SECONDS: Final = 20.0
INSTRUCTIONS_CHARS: Final = 8_000
#: after which a stream that ends with this process may be opened again
RETRY_MS: Final = 1_000
_LISTED_BY: Final = {methods.TOOLS_CALL: methods.TOOLS_LIST, methods.PROMPTS_GET: methods.PROMPTS_LIST}
#: what a rule may limit, and the member of `params` that names it
_KINDS: Final = {
    methods.TOOLS_CALL: (PolicyKind.TOOL, "name"),
    methods.RESOURCES_READ: (PolicyKind.RESOURCE, "uri"),
    methods.PROMPTS_GET: (PolicyKind.PROMPT, "name"),
}
_ALLOWED: Final = {"Allow": "POST, GET, DELETE"}
log = structlog.get_logger(__name__)


async def door(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    await _desk()(scope, receive, send)


async def drain(seconds: float) -> None:
    """The process stops: end streams in an orderly way, and let requests finish for so long. What is still running then
    goes on in its worker."""
    desk = _desks.get(asyncio.get_running_loop())
    if desk is not None:
        await desk.drain(seconds)


_desks: "WeakKeyDictionary[asyncio.AbstractEventLoop, Desk]" = WeakKeyDictionary()


def _desk() -> "Desk":
    loop = asyncio.get_running_loop()
    if loop not in _desks:
        _desks[loop] = Desk(hub())
    return _desks[loop]


class Desk:
    """What the requests of one web process share."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._reader = hub, hub.reader
        self._gate, self._calls = Gate(hub), Calls(hub, Judge(hub))
        hub.watch(USERS, lambda _: self._gate.forget())
        hub.watch(POLICIES, lambda _: self._gate.forget())
        self._running: set[asyncio.Task[Any]] = set()

    async def drain(self, seconds: float) -> None:
        self._gate.drain()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        connection = Connection(scope, receive)
        answer = Answer(send, connection.headers.get("accept", ""), connection.backlog, connection.request_id)
        user_id = None
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        try:
            if self._gate.draining:
                raise stopping()
            principal = await self._gate.principal(connection.headers.get("authorization", ""), connection.address)
            user_id = principal.token.user_id
            await _METHODS.get(connection.method, Desk._not_allowed)(self, principal, connection, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except endpoints.NoEndpoint:
            await answer.refuse(Refusal(404, jsonrpc.INVALID_REQUEST, "This endpoint does not exist."))
        except endpoints.NoSession:
            await answer.refuse(
                Refusal(404, jsonrpc.INVALID_REQUEST, "This session has ended. Initialize another one.")
            )
        except (Gone, Disconnected):
            pass  # no one is left to answer
        except TooSlow:
            log.warning("agent_too_slow", path=str(scope["path"]), user_id=user_id)
            await answer.end()
        except Exception:  # a bug of ours in one request; whatever was placed is in the ledger
            log.exception("agent_request_failed", path=str(scope["path"]))
            with suppress(TooSlow):
                await answer.refuse(Refusal(500, jsonrpc.INTERNAL_ERROR, "mcpadmin failed to handle this request."))
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

    async def _entry(self, principal: Principal, connection: Connection, *, session: bool) -> Entry:
        key = connection.headers.get(posted.SESSION, "") if session else ""
        return await self._reader.run(partial(endpoints.entry_of, principal, connection.slug, key))

    # --- POST ----------------------------------------------------------------------------------------------------
    async def _post(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        posted.check_media_types(connection.headers)
        await self._gate.admit(principal)
        body = await connection.body()
        found = posted.parse(body, _limits())
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.flight(principal))
            watching = asyncio.create_task(connection.watch())
            try:
                era = posted.era_of(found, connection.headers)
                opens = era is Era.LEGACY and legacy.opens(found)
                entry = await self._entry(principal, connection, session=era is Era.LEGACY and not opens)
                await self._gate.admit_at(entry)
                await stack.enter_async_context(self._gate.flight_at(entry))
                if era is Era.MODERN:
                    await self._modern(entry, connection, answer, found)
                elif opens:
                    await self._open(entry, connection, answer, legacy.opening_of(found))
                else:
                    await self._legacy(entry, connection, answer, found)
            finally:
                watching.cancel()

    async def _modern(self, entry: Entry, connection: Connection, answer: Answer, found: Posted) -> None:
        request = modern.read(found, connection.headers)
        if isinstance(request, Notification):
            return await answer.empty(202)
        exchange = _modern_exchange(entry, connection, request)
        self._gate.note_use(entry.principal, connection.address, exchange.program)
        if request.method == methods.LISTEN:
            with _identified(exchange):
                return await self._listen(exchange, connection, answer)
        await self._answer(exchange, connection, answer)

    async def _check_mirrored(self, exchange: Exchange) -> None:
        name = exchange.params.get("name")
        if isinstance(name, str):
            mirrored = await self._reader.run(partial(lists.mirrored, exchange.entry, name))
            modern.check_mirrored(exchange.params.get("arguments"), mirrored, exchange.headers)

    async def _open(self, entry: Entry, connection: Connection, answer: Answer, opening: Opening) -> None:
        entry = await self._known(entry)
        session = await self._reader.work(partial(agent_sessions.open_session, entry, opening))
        self._gate.note_use(entry.principal, connection.address, session.program)
        offered = answers.offered(entry.endpoint.capabilities, Era.LEGACY)
        result = legacy.initialized(opening, _identity(entry), offered, _instructions(entry))
        answer.headers["Mcp-Session-Id"] = session.key
        await answer.finish(jsonrpc.result(opening.request.id, result))

    async def _legacy(self, entry: Entry, connection: Connection, answer: Answer, found: Posted) -> None:
        session = entry.session
        if session is None:
            words = "Mcp-Session-Id is missing. Open a session with initialize."
            raise invalid_request(words).of(posted.id_of(found.values[0]))
        if session.last_seen_at < timezone.now() - agent_sessions.SEEN_EVERY:
            await self._reader.work(partial(agent_sessions.seen, session))
        self._gate.note_use(entry.principal, connection.address, session.program)
        messages = legacy.read(found, connection.headers, session.revision)
        exchanges = [
            _legacy_exchange(entry, session, connection, one) if isinstance(one, Request) else one for one in messages
        ]
        for one in exchanges:
            if isinstance(one, Notification):
                await self._notified(entry, connection, one)
            elif isinstance(one, Response):
                await self._answered(entry, session, connection, one)
        asked = [one for one in exchanges if isinstance(one, Exchange | Refusal)]
        if not asked:
            return await answer.empty(202)
        if found.batch:
            return await self._batch(asked, connection, answer)
        if isinstance(asked[0], Refusal):
            raise asked[0]
        await self._answer(asked[0], connection, answer)

    async def _batch(self, asked: list[Exchange | Refusal], connection: Connection, answer: Answer) -> None:
        """Each element is a request of its own. One that wants progress or log lines, or can be asked, needs a stream: on
        it each response comes as soon as it is there. Otherwise the answer is one array."""
        talks = any(isinstance(one, Exchange) and _talks(one) for one in asked)
        stream = answer if talks and answer.may_stream else None

        async def one(exchange: Exchange | Refusal) -> bytes | None:
            try:
                if isinstance(exchange, Refusal):
                    raise exchange
                body = await self._respond(exchange, connection, stream)
            except Refusal as refusal:
                body = refusal.body
            if stream is not None and body is not None:
                await stream.event(body)
            return body

        tasks = [asyncio.create_task(one(each)) for each in asked]
        try:
            found = await asyncio.gather(*tasks)
        finally:  # the program left, or does not read: no one waits for the others any more
            for task in tasks:
                task.cancel()
        if stream is not None:
            return await (stream.end() if stream.streaming else stream.empty(202))
        bodies = [body for body in found if body is not None]
        whole = b"[" + b",".join(bodies) + b"]"
        await answer.finish(whole)

    async def _answer(self, exchange: Exchange, connection: Connection, answer: Answer) -> None:
        async with self._updates(exchange, connection, answer):
            message = await self._respond(exchange, connection, answer)
        if message is not None:
            identity = f"{answer.priming.partition(':')[0]}:1" if answer.priming and answer.streaming else ""
            return await answer.finish(message, identity)
        if answer.streaming or not answer.may_stream:
            return await (answer.end() if answer.streaming else answer.empty(202))
        await answer.open()
        await answer.end()

    @asynccontextmanager
    async def _updates(self, exchange: Exchange, connection: Connection, answer: Answer) -> AsyncIterator[None]:
        """Meanwhile updates of followed resources go to this stream, if the session has no GET stream for them."""
        session = exchange.session
        if (
            session is None
            or exchange.method != methods.TOOLS_CALL
            or not answer.may_stream
            or not exchange.entry.follows
        ):
            yield
            return
        followed = await self._reader.run(partial(follows.without_stream, session))
        if not followed:
            yield
            return
        stream = Changes(self._hub, self._gate, exchange.entry, connection, granted=frozenset())
        running = None
        try:
            changes.take_over(session.uid, stream.stream, post=True)  # each update goes to one stream
            await stream.join()
            for one in followed:
                stream.add(one)
            running = asyncio.create_task(stream.run(answer))
            yield
        finally:
            if running is not None:
                running.cancel()
                with suppress(asyncio.CancelledError, TooSlow):
                    await running
            await stream.close()

    async def _respond(self, exchange: Exchange, connection: Connection, answer: Answer | None) -> bytes | None:
        """The response to one request of either era. None: nothing may be sent. Raises Refusal with the request's id."""
        with _identified(exchange):
            return await self._dispatched(exchange, connection, answer)

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
        listed = _LISTED_BY.get(method, "")
        if listed and not lists.was_read(exchange.entry, listed):  # a program may call without having listed
            exchange = replace(exchange, entry=await self._known(exchange.entry, listed))
        if method == methods.TOOLS_CALL and exchange.era is Era.MODERN:
            await self._check_mirrored(exchange)
        if method in _KINDS:
            kind, name = _KINDS[method]
            await self._gate.admit_call(exchange.entry, kind, str(exchange.params.get(name)))
        return await self._calls.perform(exchange, answer, connection)

    async def _discover(self, exchange: Exchange) -> bytes:
        entry = await self._known(exchange.entry)
        offered = answers.offered(entry.endpoint.capabilities, Era.MODERN)
        return jsonrpc.result(exchange.id, modern.discovery(_identity(entry), offered, _instructions(entry)))

    async def _list(self, exchange: Exchange) -> bytes:
        require_scope(exchange, AgentScope.LIST)
        entry = exchange.entry
        if not lists.was_read(entry, exchange.method):
            entry = await self._known(entry, exchange.method)
        page = await self._reader.run(partial(lists.page, entry, exchange.method, exchange.params, exchange.era))
        return answers.answer(exchange.id, page)

    async def _set_level(self, exchange: Exchange) -> bytes:
        """Of the lines of this session's own calls, from now on."""
        level, session = exchange.params.get("level"), exchange.session
        if session is None or "logging" not in answers.offered(exchange.entry.endpoint.capabilities, exchange.era):
            raise Refusal(200, jsonrpc.METHOD_NOT_FOUND, "This server has no log: it declares no logging.")
        if level not in methods.LOG_LEVELS:
            raise invalid_params(f"params.level must be one of {', '.join(methods.LOG_LEVELS)}.")
        await self._reader.work(partial(agent_sessions.set_log_level, session, level))
        return jsonrpc.result(exchange.id, {})

    async def _subscribe(self, exchange: Exchange) -> bytes:
        require_scope(exchange, AgentScope.READ)
        uri, session = exchange.params.get("uri"), exchange.session
        if not isinstance(uri, str) or session is None:
            raise invalid_params(f"{exchange.method} needs params.uri, a text.")
        if exchange.method == methods.RESOURCES_SUBSCRIBE:
            await self._reader.work(partial(follows.follow, exchange.actor, exchange.entry, uri))
        else:
            await self._reader.work(partial(follows.unfollow, exchange.entry, uri))
        changes.follows_changed(session.uid)
        return jsonrpc.result(exchange.id, {})

    async def _notified(self, entry: Entry, connection: Connection, notification: Notification) -> None:
        """Only a cancellation has an effect. One of an unknown or finished request is ignored."""
        if notification.method != methods.CANCELLED or entry.session is None:
            return
        identity: Any = notification.params.get("requestId")
        if not jsonrpc.is_id(identity):
            return
        uid: UUID | None = await self._reader.run(partial(ledger.call_of_request, entry.session.pk, identity))
        if uid is not None:
            request = Request(identity, methods.TOOLS_CALL, {})
            await self._calls.cancel(_legacy_exchange(entry, entry.session, connection, request), uid)

    async def _answered(self, entry: Entry, session: AgentSession, connection: Connection, response: Response) -> None:
        """To a question that this or another web process relayed."""
        exchange = _legacy_exchange(entry, session, connection, Request(0, "", {}))
        with suppress(PermissionDenied):
            await self._reader.work(partial(questions.answered, exchange, response))

    # --- a server that was never connected -------------------------------------------------------------------------
    async def _known(self, entry: Entry, method: str = "") -> Entry:
        """The entry once its server's capabilities are known, and the list of `method` was read. The first use of a
        server opens its session. Raises Refusal (503)."""

        def known(one: Entry) -> bool:
            return one.endpoint.connected and (not method or lists.was_read(one, method))

        if known(entry):
            return entry
        name = entry.endpoint.server.name
        if not entry.endpoint.server.enabled:
            raise Refusal(503, jsonrpc.INTERNAL_ERROR, f"{name} is disabled.", headers={"Retry-After": "60"})
        wake = asyncio.Event()
        stop = self._hub.watch(entry.endpoint.topic, lambda _: wake.set())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._reader.work(partial(_connect, entry))
                while not known(entry := await self._reader.run(partial(_again, entry))):
                    if method and (problem := lists.problem(entry, method)):
                        raise Refusal(200, jsonrpc.INTERNAL_ERROR, f"{name} did not send this list: {problem}")
                    await wake.wait()
                    wake.clear()
        except TimeoutError:
            words = f"{name} is not connected yet. Its page in mcpadmin says why."
            raise Refusal(
                503, jsonrpc.INTERNAL_ERROR, words, {"retryAfterMs": 5_000}, headers={"Retry-After": "5"}
            ) from None
        finally:
            stop()
        return entry

    # --- standing streams ----------------------------------------------------------------------------------------
    async def _get(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        if not connection.headers.get(posted.SESSION):
            raise Refusal(
                405, jsonrpc.INVALID_REQUEST, "Without a session there is no stream.", headers={"Allow": "POST"}
            )
        if not answer.may_stream:
            raise invalid_request("Accept must name text/event-stream.", 406)
        entry = await self._entry(principal, connection, session=True)
        if entry.session is None:
            raise endpoints.NoSession
        legacy.check_version(connection.headers, entry.session.revision)
        await connection.body()
        await self._gate.admit(principal)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.stream(principal))
            watching = asyncio.create_task(connection.watch())
            stack.callback(watching.cancel)
            if last := connection.headers.get("last-event-id", ""):
                return await self._resume(entry, entry.session, connection, answer, last)
            scope = principal.has(AgentScope.LIST.value)
            granted = frozenset(lists.CHANGED) if scope else frozenset()
            stream = Changes(self._hub, self._gate, entry, connection, granted=granted, stands=True)
            changes.take_over(entry.session.uid, stream.stream)
            await self._reader.work(partial(follows.stands, entry.session))
            followed = await self._reader.run(partial(follows.of_session, entry.session))
            await self._stand(stream, answer, followed, resumes=entry.session.revision >= "2025-11-25")

    async def _stand(self, stream: Changes, answer: Answer, followed: list[follows.Followed], *, resumes: bool) -> None:
        """`resumes`: the agent's revision knows when to come back."""
        try:
            await stream.join()
            for one in followed:
                stream.add(one)
            await answer.open()
            await stream.run(answer)
            await answer.end(streams.retry(RETRY_MS) if self._gate.draining and resumes else b"")
        finally:
            await stream.close()

    async def _resume(
        self, entry: Entry, session: AgentSession, connection: Connection, answer: Answer, last: str
    ) -> None:
        """The rest of a lost stream: its response, which the call's row has. Progress is not repeated."""
        found = await self._reader.run(partial(ledger.call_of_event, session.pk, last))
        if found is None:
            raise invalid_request("This event is not one of this session.")
        uid, exchange = found[0], _legacy_exchange(entry, session, connection, found[1])
        await answer.open()
        message = await self._calls.view(exchange, uid, answer, connection, late=True)
        await (answer.finish(message, f"{uid}:1") if message is not None else answer.end())

    async def _listen(self, exchange: Exchange, connection: Connection, answer: Answer) -> None:
        require_scope(exchange, AgentScope.LIST)
        if not answer.may_stream:
            raise invalid_request("Accept must name text/event-stream.", 406)
        asked = modern.listen_of(exchange.params)
        principal, entry = exchange.entry.principal, exchange.entry
        offered = answers.offered(entry.endpoint.capabilities, Era.MODERN)
        may_follow = principal.has(AgentScope.READ.value) and "subscribe" in offered.get("resources", {})
        granted = modern.Listen(asked.lists & set(offered), asked.resources if may_follow else ())
        async with self._gate.stream(principal):
            mark = partial(modern.of_listen, exchange.id)
            stream = Changes(self._hub, self._gate, entry, connection, granted=granted.lists, mark=mark)
            try:
                await stream.join()
                followed = []
                for uri in granted.resources:
                    with suppress(Refusal):
                        follow = partial(follows.follow, exchange.actor, entry, uri, stream.stream)
                        followed.append(await self._reader.work(follow))
                honoured = modern.Listen(granted.lists, tuple(one.uri for one in followed))
                await answer.event(modern.acknowledged(exchange.id, honoured))
                for one in followed:
                    stream.add(one)
                await stream.run(answer)
                if not connection.closed:
                    await answer.finish(modern.listen_ended(exchange.id))
            finally:
                await stream.close()

    # --- DELETE ---------------------------------------------------------------------------------------------------
    async def _delete(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        if not connection.headers.get(posted.SESSION):
            raise Refusal(405, jsonrpc.INVALID_REQUEST, "There is no session to end.", headers={"Allow": "POST"})
        entry = await self._entry(principal, connection, session=True)
        if entry.session is None:
            raise endpoints.NoSession
        await self._reader.work(partial(agent_sessions.end_session, entry.session))
        changes.follows_changed(entry.session.uid)
        await answer.empty(204)


_METHODS: Final[dict[str, Any]] = {"POST": Desk._post, "GET": Desk._get, "DELETE": Desk._delete}


def _talks(exchange: Exchange) -> bool:
    return exchange.progress_token is not None or bool(exchange.log_level) or bool(exchange.capabilities)


@contextmanager
def _identified(exchange: Exchange) -> Iterator[None]:
    """A refusal inside is the answer to this request."""
    try:
        yield
    except Refusal as refusal:
        if refusal.id is None:
            refusal.of(exchange.id)
        raise


def _limits() -> Limits:
    return Limits(message_bytes=limits.number("agent_body_bytes"))


def _identity(entry: Entry) -> Implementation:
    server = entry.endpoint.server
    return Implementation(server.slug, settings.VERSION, server.name)


def _instructions(entry: Entry) -> str:
    return entry.endpoint.instructions[:INSTRUCTIONS_CHARS]


def _connect(entry: Entry) -> None:
    """As a call does: an on-demand server opens its session for the first who needs it."""
    session = commands.session_for(entry.principal.user, entry.endpoint.server)
    actor = Actor.of_user(entry.principal.user, way=Way.AGENT)
    commands.open_session(actor, session)


def _again(entry: Entry) -> Entry:
    key = entry.session.key if entry.session is not None else ""
    return endpoints.entry_of(entry.principal, entry.endpoint.server.slug, key)


def _modern_exchange(entry: Entry, connection: Connection, request: ModernRequest) -> Exchange:
    return Exchange(
        entry=entry,
        era=Era.MODERN,
        revision=request.revision,
        id=request.id,
        method=request.method,
        params=request.params,
        headers=connection.headers,
        address=connection.address,
        request_id=connection.request_id,
        program=agent_sessions.program_of(request.client),
        capabilities=request.capabilities,
        progress_token=request.progress_token,
        log_level=request.log_level or "",
    )


def _legacy_exchange(entry: Entry, session: AgentSession, connection: Connection, request: Request) -> Exchange:
    return Exchange(
        entry=entry,
        era=Era.LEGACY,
        revision=session.revision,
        id=request.id,
        method=request.method,
        params=request.params,
        headers=connection.headers,
        address=connection.address,
        request_id=connection.request_id,
        program=session.program,
        capabilities=session.capabilities,
        progress_token=posted.progress_token(request.params),
        log_level=session.log_level,
    )
