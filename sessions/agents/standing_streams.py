"""Long-lived streams: the GET of a legacy session, and `subscriptions/listen`."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from servers.agents.tokens import Principal
from servers.enums import AgentScope
from sessions.agents import changes, endpoints, follows
from sessions.agents.answer import Answer
from sessions.agents.call_request import require_scope
from sessions.agents.calls import idempotency
from sessions.agents.catalog import bundles, lists
from sessions.agents.changes import Changes
from sessions.agents.connection import Connection
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange, legacy_exchange
from sessions.agents.shared import Shared
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.versions import REVISIONS
from sessions.mcp.server import answers, legacy, modern, posted, streams
from sessions.mcp.server.refusals import Refusal, invalid_request
from sessions.models import AgentSession

#: delay before clients reopen a stream that ended with this process
RETRY_MS: Final = 1_000


class StandingStreams:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def get(self, principal: Principal, connection: Connection, answer: Answer) -> None:
        if not connection.headers.get(posted.SESSION):
            raise Refusal(
                405,
                jsonrpc.INVALID_REQUEST,
                "This stream needs a session: send Mcp-Session-Id.",
                headers={"Allow": "POST"},
            )
        if not answer.may_stream:
            raise invalid_request("Accept must include text/event-stream.", 406)
        connection.step = "admission"
        await self._shared.admission.admit(principal)
        entry = await self._shared.entry(principal, connection)
        connection.step = "stream"
        if entry.session is None:
            raise endpoints.NoSession
        legacy.check_version(connection.headers, entry.session.revision)
        await connection.body()
        async with AsyncExitStack() as stack:
            watching = asyncio.create_task(connection.watch())
            stack.callback(watching.cancel)
            if last := connection.headers.get("last-event-id", ""):
                # It counts like the POST that it continues.
                await stack.enter_async_context(self._shared.admission.flight(principal))
                return await self._resume(entry, entry.session, connection, answer, last)
            await self._stand(entry, entry.session, connection, answer, stack)

    async def _stand(
        self, entry: Entry, session: AgentSession, connection: Connection, answer: Answer, stack: AsyncExitStack
    ) -> None:
        principal, admission, reader = entry.principal, self._shared.admission, self._shared.reader
        scope = principal.has(AgentScope.LIST.value)
        granted = frozenset(lists.CHANGED) if scope else frozenset()
        reads = self._shared.stream_reads
        stream = Changes(self._shared.hub, admission, reads, entry, connection, granted=granted, stands=True)
        stack.push_async_callback(stream.close)
        await stream.join()
        # Before it is counted: it replaces the previous stream, whose agent may be gone.
        changes.take_over(session.uid, stream)
        await stack.enter_async_context(admission.stream(principal, replaces=follows.has_stream(session)))
        await reader.work(partial(follows.stands, session))
        await stream.follow(await reader.run(partial(follows.of_session, session)))
        await answer.open()
        await stream.run(answer)
        resumes = REVISIONS[session.revision].resumes
        await answer.end(streams.retry(RETRY_MS) if admission.draining and resumes else b"")

    async def _resume(
        self, entry: Entry, session: AgentSession, connection: Connection, answer: Answer, last: str
    ) -> None:
        """Send the rest of a lost stream: its response, which is in the call's row. Progress is not repeated. If
        nothing follows, the status says so: a client that gets an empty stream reconnects forever."""
        found = await self._shared.reader.run(partial(idempotency.call_of_event, session.pk, last))
        if found is None:
            raise invalid_request("This event does not belong to this session.")
        call, exchange = found[0], legacy_exchange(entry, session, connection, found[1])
        heard = last.endswith(streams.RESPONDED)
        unanswered = partial(idempotency.stays_unanswered, session.pk, exchange.id, call)
        if heard or await self._shared.reader.run(unanswered):
            return await answer.empty(204)
        answer.name = last.partition(":")[0]
        answer.answers = exchange.id
        exchange = await self._shared.reader.run(partial(bundles.at_server, exchange, call.server_id, call.target))
        uid = call.uid
        await answer.open()
        message = await self._shared.calls.view(exchange, uid, answer, connection, late=True, needed_approval=True)
        await (answer.finish(message) if message is not None else answer.end())

    async def listen(self, exchange: Exchange, connection: Connection, answer: Answer) -> None:
        connection.step = "stream"
        listened = modern.listen_of(exchange.params)
        principal, entry = exchange.entry.principal, exchange.entry
        may_list, may_read = principal.has(AgentScope.LIST.value), principal.has(AgentScope.READ.value)
        if not (listened.resources and may_read):
            require_scope(exchange, AgentScope.LIST)
        if not answer.may_stream:
            raise invalid_request("Accept must include text/event-stream.", 406)
        offered = answers.offered(entry.place.capabilities)
        may_follow = may_read and "subscribe" in offered.get("resources", {})
        granted = modern.Listen(
            listened.lists & set(offered) if may_list else frozenset(), listened.resources if may_follow else ()
        )
        async with self._shared.admission.stream(principal):
            mark = partial(modern.of_listen, exchange.id)
            stream = Changes(
                self._shared.hub,
                self._shared.admission,
                self._shared.stream_reads,
                entry,
                connection,
                granted=granted.lists,
                mark=mark,
            )
            try:
                await stream.join()
                followed = []
                uris, may_any = granted.resources, partial(follows.may_follow_any, exchange.actor, entry)
                if uris and not await self._shared.reader.work(may_any):
                    uris = ()
                for uri in uris:
                    with suppress(Refusal):
                        asked = replace(exchange, method=methods.RESOURCES_SUBSCRIBE, params={"uri": uri})
                        # Without waiting for servers: one that is starting would delay the acknowledgement.
                        at = await self._shared.reader.work(partial(bundles.routed, asked))
                        given = at.params["uri"]
                        follow = partial(follows.follow, at.actor, at.entry, given, stream.stream, shown=uri)
                        followed.append(await self._shared.reader.work(follow))
                honoured = modern.Listen(granted.lists, tuple(one.uri for one in followed))
                await answer.event(modern.acknowledged(exchange.id, honoured))
                for one in followed:
                    stream.add(one)
                await stream.run(answer)
                if not connection.closed:
                    await answer.finish(modern.listen_ended(exchange.id))
            finally:
                await stream.close()
