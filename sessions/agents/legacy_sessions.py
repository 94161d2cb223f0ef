"""Sessions of legacy agents: opened by `initialize`, used by POSTs, ended by DELETE."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from servers.agents.tokens import Principal
from sessions.agents import agent_sessions, changes, endpoints, follows
from sessions.agents.answer import Answer, TooSlow
from sessions.agents.call_request import CALLED
from sessions.agents.calls import idempotency, questions
from sessions.agents.changes import Changes
from sessions.agents.connection import Connection
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange, identified, legacy_exchange
from sessions.agents.policy.policy_check import policy_owner_of
from sessions.agents.requests import Requests, identity, instructions
from sessions.agents.shared import Shared
from sessions.inbox.answering import Unfit
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.jsonrpc import Notification, Request, Response
from sessions.mcp.server import answers, legacy, posted
from sessions.mcp.server.legacy import Opening
from sessions.mcp.server.posted import Posted
from sessions.mcp.server.refusals import Refusal, invalid_params, invalid_request
from sessions.models import AgentSession

#: requests of one batch that run concurrently; each counts as one in flight
BATCH_AT_ONCE: Final = 8
log = structlog.get_logger(__name__)


class LegacySessions:
    def __init__(self, shared: Shared, requests: Requests) -> None:
        self._shared, self._requests = shared, requests

    async def open(self, entry: Entry, connection: Connection, answer: Answer, opening: Opening) -> None:
        connection.step = ""  # its server may still be starting
        entry = await self._requests.known(entry)
        connection.step = "session"
        session = await self._shared.reader.work(partial(agent_sessions.open_session, entry, opening))
        self._shared.admission.note_use(entry.principal, connection.address, session.program)
        offered = answers.offered(entry.place.capabilities)
        result = legacy.initialized(opening, identity(entry), offered, instructions(entry))
        answer.headers["Mcp-Session-Id"] = session.key
        await answer.finish(jsonrpc.result(opening.request.id, result))

    async def receive(self, entry: Entry, connection: Connection, answer: Answer, found: Posted) -> None:
        session = entry.session
        if session is None:
            words = "Mcp-Session-Id is missing. Open a session with initialize."
            raise invalid_request(words).of(posted.id_of(found.values[0]))
        if session.last_seen_at < timezone.now() - agent_sessions.SEEN_EVERY:
            await self._shared.reader.work(partial(agent_sessions.seen, session))
        self._shared.admission.note_use(entry.principal, connection.address, session.program)
        messages = legacy.read(found, connection.headers, session.revision)
        exchanges = [
            legacy_exchange(entry, session, connection, one) if isinstance(one, Request) else one for one in messages
        ]
        asked = [one for one in exchanges if isinstance(one, Exchange | Refusal)]
        if idempotency.KEY_HEADER in connection.headers and sum(_calls(one) for one in asked) > 1:
            raise invalid_request("Idempotency-Key names one call. Send the calls of this batch one by one.")
        for one in exchanges:
            if isinstance(one, Notification):
                await self._notified(entry, connection, one)
            elif isinstance(one, Response):
                asked += await self._answered(entry, session, connection, one)
        if not asked:
            return await answer.empty(202)
        if found.batch:
            return await self._batch(asked, connection, answer)
        if isinstance(asked[0], Refusal):
            raise asked[0]
        async with self._updates(asked[0], connection, answer):
            message = await self._requests.respond(asked[0], connection, answer)
        await self._requests.finish(answer, message)

    async def _batch(self, asked: list[Exchange | Refusal], connection: Connection, answer: Answer) -> None:
        """Each element is a separate request. One that wants progress or log lines, or can be asked questions, needs a
        stream, which carries each response as soon as it is ready. Otherwise the response is one array."""
        talks = any(isinstance(one, Exchange) and _talks(one) for one in asked)
        stream = answer if talks and answer.may_stream else None
        turns = asyncio.Semaphore(BATCH_AT_ONCE)

        async def one(exchange: Exchange | Refusal, *, counted: bool) -> bytes | None:
            try:
                if isinstance(exchange, Refusal):
                    raise exchange
                async with turns, nullcontext() if counted else self._counted(exchange):
                    body = await self._requests.respond(exchange, connection, stream)
            except Refusal as refusal:
                body = refusal.body
            if stream is not None and body is not None:
                await stream.response(body)
            return body

        # The first was counted when the batch arrived.
        tasks = [asyncio.create_task(one(each, counted=number == 0)) for number, each in enumerate(asked)]
        try:
            found = await asyncio.gather(*tasks)
        finally:  # the agent disconnected or does not read: no one is waiting for the others
            for task in tasks:
                task.cancel()
        if stream is not None:
            return await (stream.end() if stream.streaming else stream.empty(202))
        bodies = [body for body in found if body is not None]
        # An empty array is not a JSON-RPC message: if all were cancelled, there is nothing to send.
        await self._requests.finish(answer, b"[" + b",".join(bodies) + b"]" if bodies else None)

    @asynccontextmanager
    async def _counted(self, exchange: Exchange) -> AsyncIterator[None]:
        """Count it against the limits of token, person and endpoint, like a single request. Raises Refusal (429)."""
        admission, entry = self._shared.admission, exchange.entry
        with identified(exchange):
            async with admission.request(entry.principal), admission.at(policy_owner_of(entry.place)):
                yield

    @asynccontextmanager
    async def _updates(self, exchange: Exchange, connection: Connection, answer: Answer) -> AsyncIterator[None]:
        """Within this context, updates of followed resources go to this stream if the session has no GET stream."""
        session = exchange.session
        if (
            session is None
            or exchange.method != methods.TOOLS_CALL
            or not answer.may_stream
            or not exchange.entry.follows
        ):
            yield
            return
        followed = await self._shared.reader.run(partial(follows.without_stream, session))
        if not followed:
            yield
            return
        stream = Changes(
            self._shared.hub,
            self._shared.admission,
            self._shared.stream_reads,
            exchange.entry,
            connection,
            granted=frozenset(),
        )
        running = None
        try:
            changes.take_over(session.uid, stream, post=True)  # each update goes to one stream
            await stream.join()
            await stream.follow(followed)
            running = asyncio.create_task(stream.run(answer))
            yield
        finally:
            if running is not None:
                running.cancel()
                try:
                    await running
                except (asyncio.CancelledError, TooSlow):
                    pass
                except Exception:  # updates are lossy: that is no reason to withhold the response
                    log.exception("agents.updates_failed", session=str(session.uid))
            await stream.close()

    async def _notified(self, entry: Entry, connection: Connection, notification: Notification) -> None:
        """Only a cancellation has an effect, even if its request is not a call yet. For an unknown or finished request,
        it is ignored."""
        if notification.method != methods.CANCELLED or entry.session is None:
            return
        identity: Any = notification.params.get("requestId")
        if not jsonrpc.is_id(identity):
            return
        calls = self._shared.calls
        exchange = legacy_exchange(entry, entry.session, connection, Request(identity, methods.TOOLS_CALL, {}))
        calls.arriving.cancel(exchange)  # before the read: its call may be placed meanwhile
        uid: UUID | None = await self._shared.reader.run(
            partial(idempotency.call_of_request, entry.session.pk, identity)
        )
        if uid is None:
            return calls.arriving.cancel_elsewhere(exchange)
        calls.arriving.found(exchange)
        await calls.cancel(exchange, uid)

    async def _answered(
        self, entry: Entry, session: AgentSession, connection: Connection, response: Response
    ) -> list[Refusal]:
        """Handle the answer to a question that this or another web process relayed. Returns a refusal if it is not
        valid."""
        exchange = legacy_exchange(entry, session, connection, Request(0, "", {}))
        try:
            await self._shared.reader.work(partial(questions.answered, exchange, response))
        except Unfit as problem:
            return [invalid_params(problem.message, {"errors": problem.errors}, 400)]
        except PermissionDenied:
            pass  # already recorded
        return []

    async def delete(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        if not connection.headers.get(posted.SESSION):
            raise Refusal(405, jsonrpc.INVALID_REQUEST, "There is no session to end.", headers={"Allow": "POST"})
        connection.step = "admission"
        await self._shared.admission.admit(principal)
        entry = await self._shared.entry(principal, connection)
        if entry.session is None:
            raise endpoints.NoSession
        await self._shared.reader.work(partial(agent_sessions.end_session, entry.session))
        self._shared.entries.forget_sessions()
        await answer.empty(204)


def _calls(one: Exchange | Refusal) -> bool:
    return isinstance(one, Exchange) and one.method in CALLED


def _talks(exchange: Exchange) -> bool:
    return exchange.progress_token is not None or bool(exchange.log_level) or bool(exchange.capabilities)
