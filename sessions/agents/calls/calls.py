"""Calls of agents: placed in the ledger as a person's are, and watched until they end.

The agent's connection is only a viewer of the row. So a connection that drops, another web process or a dead worker
change nothing about the call.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404

from servers.crypto import SealError
from sessions import hints
from sessions.agents.answer import Answer, TooSlow
from sessions.agents.call_request import CallRequest, call_request_of, unknown_tool
from sessions.agents.calls import approval_messages, idempotency, outcomes, questions
from sessions.agents.calls.arriving import ArrivingRequests
from sessions.agents.calls.outcomes import Ended, ended
from sessions.agents.calls.questions import Continuation
from sessions.agents.calls.viewer import CallViewer
from sessions.agents.catalog import lists
from sessions.agents.connection import Connection
from sessions.agents.exchange import Exchange, unavailable
from sessions.agents.policy.admission import Admission, no_longer_valid, too_many
from sessions.agents.policy.counting import Counted, Exceeded
from sessions.agents.policy.policy_check import Forbidden, PolicyCheck
from sessions.agents.stream_reads import StreamReads
from sessions.approvals.requesting import TooManyHeld
from sessions.calls import placing, statements
from sessions.calls.arguments import NotListed, Rejected, SubmittedArguments
from sessions.calls.intents import Hold
from sessions.calls.targets import Target
from sessions.enums import CallState
from sessions.live.hub import Hub
from sessions.live.reader import BatchedReads
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.headers import ANNOTATION
from sessions.mcp.core.versions import REVISIONS, Era
from sessions.mcp.server import modern
from sessions.mcp.server.refusals import (
    DUPLICATE,
    FORBIDDEN,
    HELD,
    NOT_SENT,
    QUOTA,
    Refusal,
    invalid_params,
    later,
)
from sessions.models import Call

#: the call that this answer belongs to; absent if none was placed
CALL_HEADER: Final = "Mcpadmin-Call"
_TOO_MANY: Final = (TooManyHeld, idempotency.TooManyRunning)
log = structlog.get_logger(__name__)


class AgentDisconnected(Exception):
    """The agent closed its connection."""


class _Pending:
    """Returned in place of a response: there is none yet."""


_PENDING: Final = _Pending()


class Calls:
    """Requests and resumed streams share `view`."""

    def __init__(self, hub: Hub, admission: Admission, policy_check: PolicyCheck, reads: StreamReads) -> None:
        self._hub, self._admission, self._policy_check, self._reads = hub, admission, policy_check, reads
        self.arriving = ArrivingRequests()
        hub.watch(hints.AGENT_CANCELLATIONS, self.arriving.hint)
        self._rows: BatchedReads[UUID, Call | Ended] = BatchedReads(hub.reader, _read)
        self._inherited = False
        #: one attempt for all requests that wait for it: otherwise they would queue, each for the same failing write
        self._inheriting: asyncio.Task[None] | None = None
        #: calls that may or may not have been placed by this process, until they are marked as unheard
        self._maybe_placed: list[UUID] = []
        #: how many requests wait for a call here
        self._viewers: Counter[UUID] = Counter()

    async def perform(
        self, exchange: Exchange, answer: Answer | None, connection: Connection, *, mirrors: bool = False
    ) -> bytes | None:
        """The response to one request; None if nothing may be sent any more. Progress goes to `answer`. `mirrors`: its
        headers must repeat arguments where the definition says so. Raises Refusal, and AgentDisconnected."""
        asked = call_request_of(exchange)
        async with self._admission.call(exchange, asked) as counted:
            return await self._perform(exchange, asked, answer, connection, mirrors, counted)

    async def _perform(
        self,
        exchange: Exchange,
        asked: CallRequest,
        answer: Answer | None,
        connection: Connection,
        mirrors: bool,
        counted: Counted,
    ) -> bytes | None:
        late = needed_approval = False
        name = ""  # of its stream's events, for a request that attached to an earlier call
        connection.step = "inherit"
        await self._inherit()
        connection.step = "place"
        try:
            found = await self._find_continuation(exchange, asked) if exchange.era is Era.MODERN else None
            if isinstance(found, UUID):
                uid, late, needed_approval = found, True, True  # perhaps
            else:
                if exchange.era is Era.MODERN and connection.closed:  # a modern agent that leaves cancels
                    raise AgentDisconnected
                if self.arriving.is_cancelled(exchange):
                    await counted.take_back()
                    return None
                placed = await self._place_counted(exchange, asked, found, counted, mirrors=mirrors)
                uid, needed_approval = placed.uid, placed.state == CallState.HELD
        except idempotency.SameRequest as earlier:
            if not earlier.equal:
                raise Refusal(200, DUPLICATE, "This id or key was already used for another request.") from None
            uid, late, needed_approval = earlier.call, True, earlier.asked
            name = await self._hub.reader.work(partial(idempotency.attach, exchange, uid))
            if not needed_approval:
                idempotency.mark_delivered(uid)
        except idempotency.UndeliveredCall as lost:
            if connection.closed:  # so it will not learn about that one either
                raise AgentDisconnected from None
            return await self._outcome_of(exchange, lost.call)
        except idempotency.TooManyRunning as problem:
            raise _too_many_running(problem) from None
        except TooManyHeld:
            if asked.method != methods.TOOLS_CALL:
                raise _too_many_held(200) from None
            words = f"{exchange.named(asked.target)} was not called. {approval_messages.too_many()}"
            return outcomes.tool_error(exchange, words, more=outcomes.NO_CALL)
        except Rejected as problem:
            return _rejected(exchange, asked, problem)
        if self.arriving.is_cancelled(exchange):  # while it was placed: its cancellation did not find the call
            await self.cancel(exchange, uid)
            late = True
        if answer is not None:
            answer.headers[CALL_HEADER] = str(uid)
        resumes = REVISIONS[exchange.revision].resumes and idempotency.is_short(exchange.id)
        if answer is not None and resumes:
            answer.name = name or str(uid)
        return await self.view(
            exchange, uid, answer, connection, asked=asked, late=late, needed_approval=needed_approval
        )

    async def start(self, exchange: Exchange) -> UUID:
        """Place a call, or find the earlier one with the same key. Its agent does not wait here. Raises Refusal."""
        asked = call_request_of(exchange)
        await self._inherit()
        try:
            async with self._admission.call(exchange, asked) as counted:
                return (await self._place_counted(exchange, asked, None, counted)).uid
        except idempotency.SameRequest as earlier:
            if not earlier.equal:
                raise Refusal(409, DUPLICATE, "This key was already used for another call.") from None
            await self._hub.reader.work(partial(idempotency.attach, exchange, earlier.call))
            return earlier.call
        except idempotency.UndeliveredCall as lost:
            idempotency.mark_delivered(lost.call)
            words = "The outcome of an identical call with this token was never delivered, so it is not known whether it ran. Check the server, then start it again."
            raise Refusal(409, DUPLICATE, words, {"call": str(lost.call)}) from None
        except idempotency.TooManyRunning as problem:
            raise _too_many_running(problem) from None
        except TooManyHeld:
            raise _too_many_held(429) from None
        except Forbidden as problem:
            raise Refusal(403, FORBIDDEN, problem.message, {"reason": "policy"}) from None
        except Rejected as problem:
            errors = [{"at": where or "/", "message": " ".join(told)} for where, told in problem.errors.items()]
            raise Refusal(422, jsonrpc.INVALID_PARAMS, problem.message, {"errors": errors}) from None

    async def _outcome_of(self, exchange: Exchange, uid: UUID) -> bytes:
        """Report an identical call whose outcome never reached the agent. Calling again is then the model's
        decision."""
        idempotency.mark_delivered(uid)
        row = await self._rows.get(uid)
        call = row.call if isinstance(row, Ended) else row
        name = exchange.named(str(exchange.params.get("name")))
        words = (
            f"{name} was not called. The same call was made before and its connection was lost, so it is not known "
            "whether it ran. Check the server to see whether it had an effect. If it had none, call it again."
        )
        return outcomes.tool_error(exchange, words, call)

    async def _find_continuation(self, exchange: Exchange, asked: CallRequest) -> UUID | Continuation | None:
        """The call whose questions this request answers, or a new call that carries the answers."""
        if not questions.continues(exchange):
            return None
        try:
            return await self._hub.reader.work(partial(questions.continued, exchange, asked))
        except SealError as problem:
            raise later(503, NOT_SENT, str(problem), 10) from problem
        except PermissionDenied as problem:
            raise Refusal(403, FORBIDDEN, str(problem)) from problem

    # --- placing -------------------------------------------------------------------------------------------------
    async def _place_counted(
        self,
        exchange: Exchange,
        asked: CallRequest,
        continuation: Continuation | None,
        counted: Counted,
        *,
        mirrors: bool = False,
    ) -> Call:
        """Rules limit calls: a request that leads to an earlier one, or starts none, does not count. Raises what `_place`
        raises."""
        if counted.exceeded is not None:
            await self._hub.reader.work(partial(idempotency.check_repeated, exchange, asked))
            raise too_many(counted.exceeded)
        try:
            return await self._place(exchange, asked, continuation, mirrors=mirrors)
        except (idempotency.SameRequest, idempotency.UndeliveredCall, *_TOO_MANY, Rejected):
            await counted.take_back()
            raise

    async def _place(
        self, exchange: Exchange, asked: CallRequest, continuation: Continuation | None, *, mirrors: bool = False
    ) -> Call:
        """Raises Refusal, Rejected, and SameRequest, UndeliveredCall, TooManyHeld and TooManyRunning of the ledger."""
        if unknown := _hidden_arguments(exchange):
            raise Rejected(f"{exchange.named(asked.target)} has no parameter {', '.join(unknown)}. It was not called.")
        principal, server = exchange.entry.principal, exchange.entry.endpoint.server
        reader = self._hub.reader
        repeated = continuation is None and await self._admission.repeats(exchange, asked)

        def check(target: Target) -> Hold | None:
            if mirrors and not target.approved_digest and ANNOTATION in (target.body or ""):
                arguments = exchange.params.get("arguments")
                modern.check_mirrored(arguments, lists.mirrored_by(target.definition), exchange.headers)
            return self._policy_check.check(exchange, asked, target, repeated=repeated)

        try:
            call = await placing.aplace(
                exchange.actor,
                principal.user,
                server.uid,
                asked.target,
                SubmittedArguments(value=asked.arguments),
                begin=reader.begin_run,
                begin_slow=reader.begin_work,
                method=asked.method,
                agent_part=idempotency.agent_part(exchange, asked, check, continuation),
            )
        except NotListed as problem:
            raise (
                unknown_tool(exchange.named(asked.target))
                if asked.method == methods.TOOLS_CALL
                else invalid_params(problem.message)
            ) from problem
        except Http404 as problem:
            raise Refusal(404, jsonrpc.INVALID_REQUEST, "This endpoint does not exist.") from problem
        except PermissionDenied as problem:
            raise Refusal(403, FORBIDDEN, str(problem)) from problem
        except placing.MaybePlaced as problem:
            self._maybe_placed.append(problem.call)
            raise unavailable(problem) from problem
        except placing.AuditUnavailable as problem:
            raise unavailable(problem) from problem
        return call

    async def _inherit(self) -> None:
        """Before this process places its first call, calls that other processes left behind are marked as unheard.
        Before every call, so are those that may have been placed here although their agent was refused. Raises
        Refusal."""
        while not self._inherited or self._maybe_placed:
            if self._inheriting is None or self._inheriting.done():
                self._inheriting = asyncio.create_task(self._take_over())
            try:
                await asyncio.shield(self._inheriting)  # an agent that leaves does not end it for the others
            except placing.AuditUnavailable as problem:
                raise unavailable(problem) from problem

    async def _take_over(self) -> None:
        if not self._inherited:
            await self._hub.reader.work(idempotency.mark_orphans_undelivered)
            self._inherited = True
        if calls := list(self._maybe_placed):
            await self._hub.reader.work(partial(idempotency.mark_undelivered, calls))
            self._maybe_placed = [one for one in self._maybe_placed if one not in calls]

    async def cancel(self, exchange: Exchange, uid: UUID) -> None:
        """Cancel on behalf of the agent. It is unknown whether the tool stopped."""

        def work() -> None:
            call = Call.objects.select_related("server").filter(uid=uid).first()
            if call is not None and call.server is not None:
                idempotency.cancelled(exchange, uid)
                placing.cancel(exchange.actor, exchange.entry.principal.user, call)

        with suppress(PermissionDenied, placing.AuditUnavailable):
            await self._hub.reader.work(work)

    # --- watching ------------------------------------------------------------------------------------------------
    async def view(
        self,
        exchange: Exchange,
        uid: UUID,
        answer: Answer | None,
        connection: Connection,
        *,
        asked: CallRequest | None = None,
        late: bool = False,
        needed_approval: bool = False,
    ) -> bytes | None:
        """Wait for the end of a call, or until a modern agent must answer a question. Ends with AgentDisconnected when the agent
        leaves: a modern one thereby cancels. `late`: the call was placed by an earlier request and may have ended. Raises
        Refusal (401) when the token no longer counts: the call continues without its agent."""
        viewer = CallViewer(exchange, answer, connection, dirty=late or needed_approval)
        connection.step = "view" if answer is not None and answer.may_stream else ""  # whole only at the end
        stop = self._hub.watch(f"call.{uid}", viewer.hint)
        self._viewers[uid] += 1
        try:
            if answer is not None and answer.may_stream and exchange.era is Era.LEGACY and viewer.relay is not None:
                await answer.open()
            while True:
                await viewer.wait()
                if connection.closed:
                    raise AgentDisconnected
                try:
                    found = await self._check_row(exchange, uid, viewer, answer, asked, needed_approval=needed_approval)
                except (OperationalError, InterfaceError) as problem:  # the call goes on, so its agent waits on
                    log.warning("agents.call_not_read", call=str(uid), problem=str(problem))
                    await viewer.pause()
                    continue
                if not isinstance(found, _Pending):
                    return found
        except (AgentDisconnected, TooSlow):
            await self._on_disconnect(exchange, uid)
            raise
        except Refusal:  # the agent gets it; the code that raised it has recorded what it means
            raise
        except (asyncio.CancelledError, Exception):  # ours, not the agent's: the call continues
            idempotency.mark_disconnected(uid)
            raise
        finally:
            stop()
            self._viewers[uid] -= 1
            if not self._viewers[uid]:
                del self._viewers[uid]

    async def _check_row(
        self,
        exchange: Exchange,
        uid: UUID,
        viewer: CallViewer,
        answer: Answer | None,
        asked: CallRequest | None,
        *,
        needed_approval: bool,
    ) -> bytes | _Pending | None:
        """What `view` should return after the viewer woke, or that the agent keeps waiting."""
        if viewer.take_check() and not await self._reads.tokens.get(exchange.entry.principal.token.pk):
            idempotency.mark_disconnected(uid)
            raise no_longer_valid(exchange.entry.place.slug)
        await viewer.send_waiting()
        due = viewer.waited_long_enough
        if not viewer.take_dirty() and not due:
            return _PENDING
        row = await self._rows.get(uid)
        viewer.read()
        if isinstance(row, Ended):
            await viewer.send_final_progress(row.call)
            if needed_approval:
                await self._hub.reader.work(partial(idempotency.mark_approval_delivered, uid))
            return await self._response(exchange, row)
        viewer.held = row is not None and row.state == CallState.HELD
        if viewer.held and due:
            return await self._answer_waiting(exchange, uid, row)
        if viewer.held and (offer := await self._offer_page(exchange, asked, uid, viewer)) is not None:
            return offer
        if row is not None and row.open_questions and (answer is None or answer.may_stream):
            relayed = await self._hub.reader.run(partial(questions.open_of, exchange, row.pk))
            if relayed and asked is not None and exchange.era is Era.MODERN:
                return questions.input_required(exchange, asked, uid, questions.inputs_of(relayed))
            await viewer.ask(relayed)
        return _PENDING

    # --- approval ------------------------------------------------------------------------------------------------
    async def _offer_page(
        self, exchange: Exchange, asked: CallRequest | None, uid: UUID, viewer: CallViewer
    ) -> bytes | None:
        """An agent that opens URLs for its person is sent to the page where the call is approved: a modern one by the
        response, after which its retry waits here."""
        if viewer.offered or asked is None or "requestState" in exchange.params:
            return None
        request = await self._hub.reader.run(partial(approval_messages.visit, exchange, uid))
        viewer.offered = True
        if request is None:
            return None
        if exchange.era is Era.MODERN:
            return questions.input_required(exchange, asked, uid, questions.inputs_of([request]))
        await viewer.ask([request])
        return None

    async def _answer_waiting(self, exchange: Exchange, uid: UUID, row: Call | None) -> bytes:
        """The agent stops waiting. If it makes the same call again, it gets this one."""
        words, meta = await self._hub.reader.run(partial(approval_messages.words, exchange, uid))
        if exchange.method == methods.TOOLS_CALL:
            return outcomes.tool_error(exchange, words, row, meta)
        raise later(200, HELD, words, approval_messages.COME_BACK_SECONDS, {**meta, "call": str(uid)})

    async def _response(self, exchange: Exchange, row: Ended) -> bytes | None:
        """None for a request that the agent itself cancelled: nothing may follow."""
        session = exchange.session
        if row.call.state == CallState.CANCELLED and session is not None:
            asked = partial(idempotency.was_cancelled, session.pk, exchange.id, row.call.uid)
            if await self._hub.reader.run(asked):
                return None
        if row.result is not None and len(row.result) > outcomes.LONG_CHARS:
            return await self._hub.reader.work(partial(outcomes.message, exchange, row))
        return outcomes.message(exchange, row)

    async def _on_disconnect(self, exchange: Exchange, uid: UUID) -> None:
        """The agent left without its answer, unless another of its requests waits for the same call: a retry may arrive
        before the lost connection ends."""
        if self._viewers[uid] > 1:
            return
        idempotency.mark_disconnected(uid)
        if exchange.era is Era.MODERN:
            await self.cancel(exchange, uid)


def _read(uids: list[UUID]) -> dict[UUID, Call | Ended]:
    return {call.uid: ended(call) if CallState(call.state).final else call for call in statements.heard(uids)}


def _hidden_arguments(exchange: Exchange) -> list[str]:
    given = exchange.params.get("arguments")
    return sorted(exchange.via.hidden & given.keys()) if exchange.via is not None and isinstance(given, dict) else []


def _too_many_running(problem: idempotency.TooManyRunning) -> Refusal:
    limit = problem.limit
    words = f"{limit.describe()} Calls that run without a waiting request count too."
    return too_many(Exceeded(limit.name, words, 1.0, alone=False))


def _too_many_held(status: int) -> Refusal:
    return later(status, QUOTA, approval_messages.too_many(), 60, {"reason": "agent_approvals"})


def _rejected(exchange: Exchange, asked: CallRequest, problem: Rejected) -> bytes:
    """Nothing was sent. A model can correct its arguments, so the error lists the wrong ones."""
    if isinstance(problem, Forbidden) and asked.method != methods.TOOLS_CALL:
        raise Refusal(200, FORBIDDEN, problem.message, {"reason": "policy"})
    errors = [f"{where or '/'}: {' '.join(words)}" for where, words in problem.errors.items()]
    words = "\n".join([problem.message, *errors])
    if asked.method != methods.TOOLS_CALL:
        raise invalid_params(words, {"retrySafe": True})
    return outcomes.tool_error(exchange, words)
