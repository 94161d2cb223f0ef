"""What is stored of an agent's requests besides their calls, so that none is sent twice by mistake.

A repeated request (the same id in a session, or the same key) attaches to the earlier call. So does a request that is
identical to a call which is still running after its agent disconnected. If it is unknown whether a call ran, and its
agent was not told so, an identical request is not sent either: the agent is told about that call first. A call that
ended with a result blocks no other, unless it needed approval: identical calls are often intended, and the lost result
is found by id, key or event.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from servers import limits
from servers.agents.tokens import Principal
from servers.audit.writer import AuditUnavailable, WriterBusy, writer
from servers.crypto import SealError
from servers.enums import AgentScope
from servers.numbers import whole_number
from servers.sql import Insert, database
from sessions.agents.call_request import CallRequest, answerable
from sessions.agents.calls.earlier_calls import (
    ATTACHED,
    ATTACHED_KEY,
    CONTINUES,
    KEY,
    REQUEST,
    UNHEARD,
    EarlierCall,
    earlier_calls,
    running_calls,
)
from sessions.agents.calls.questions import Continuation, one_exchange
from sessions.agents.exchange import Exchange
from sessions.agents.policy import quotas
from sessions.agents.policy.counting import InFlight
from sessions.approvals.requesting import request_approval
from sessions.calls import agent_calls
from sessions.calls.intents import AgentPart, Hold
from sessions.calls.targets import Target
from sessions.enums import CallState
from sessions.mcp.core import methods
from sessions.mcp.core.jsonrpc import Request, RequestId
from sessions.mcp.server.refusals import invalid_params
from sessions.models import AgentAttachment, AgentCall, AgentRound, Call

_insert = Insert(AgentCall)

KEY_HEADER: Final = "idempotency-key"
KEY_CHARS: Final = 128
#: of a request's id as JSON text; longer ids are stored as a digest, whose prefix no JSON text has
ID_BYTES: Final = 200
_DIGEST: Final = "sha256:"
UNHEARD_AGE: Final = timedelta(minutes=10)
#: an earlier call in one of these states may have had an effect that its agent does not know about
_OPEN: Final = (CallState.REQUESTED, CallState.SENT)
_UNSURE: Final = (*_OPEN, CallState.OUTCOME_UNKNOWN)
_UNSURE_IF_RUN: Final = (CallState.CANCELLED, CallState.FAILED)
#: what makes a request the same as an earlier one, whatever it asks for; the first that is found counts
_REPEATS: Final = (REQUEST, ATTACHED, KEY, ATTACHED_KEY)


class SameRequest(Exception):
    """This request was made before. `equal`: with the same target and arguments. `asked`: a person is or was asked to
    approve it."""

    def __init__(self, call: UUID, *, equal: bool, asked: bool = False) -> None:
        super().__init__(str(call))
        self.call = call
        self.equal = equal
        self.asked = asked


class TooManyRunning(Exception):
    """As many calls of the token or of its user are running as `limit` allows requests in flight."""

    def __init__(self, limit: InFlight) -> None:
        super().__init__(limit.name)
        self.limit = limit


class UndeliveredCall(Exception):
    """An identical call with this token ended, and its outcome never reached the agent."""

    def __init__(self, call: UUID) -> None:
        super().__init__(str(call))
        self.call = call


def key_of(exchange: Exchange) -> str:
    """Raises Refusal."""
    key = exchange.headers.get(KEY_HEADER, "")
    if len(key) > KEY_CHARS:
        raise invalid_params(f"Idempotency-Key has more than {KEY_CHARS} characters.")
    if "\0" in key:
        raise invalid_params("Idempotency-Key contains a NUL character.")
    return key


def stored_id(request_id: RequestId) -> str:
    """As JSON text. A long id is stored as its digest, which fits into an index but cannot be read back."""
    text = json.dumps(request_id)
    return text if len(text) <= ID_BYTES else _DIGEST + hashlib.sha256(text.encode()).hexdigest()


def is_short(request_id: RequestId) -> bool:
    """Whether a lost stream of this request can be resumed: its response needs the id."""
    return not stored_id(request_id).startswith(_DIGEST)


def agent_part(
    exchange: Exchange,
    asked: CallRequest,
    check: Callable[[Target], Hold | None],
    continuation: Continuation | None = None,
) -> AgentPart:
    """The agent's part of a new call. Writing it raises SameRequest, UndeliveredCall, TooManyHeld and TooManyRunning; then
    no call is placed. Raises AuditUnavailable if there is no key to encrypt the answers that are sent with it."""
    token = exchange.entry.principal.token
    row = _identifying(exchange, asked) | {
        "token_name": token.name,
        "program": exchange.program,
        "log_level": exchange.log_level,
        "asks_people": exchange.entry.principal.has(AgentScope.INBOX.value),
        "one_exchange": one_exchange(exchange),
        "continues_id": continuation.agent_call if continuation is not None else None,
    }
    added, capabilities = _sealed(continuation), answerable(exchange)

    def write(call: Call, hold: Hold | None) -> None:
        _check(row, tool=asked.method == methods.TOOLS_CALL)
        if hold is None:  # what waits for approval has a limit of its own
            _check_running(exchange.entry.principal)
        try:
            with _part_that_may_fail():
                unheard_at = call.created_at if hold is not None else None  # until its outcome is delivered
                agent = AgentCall(call=call, capabilities=capabilities, unheard_at=unheard_at, **row)
                _insert(agent)
                if hold is not None:
                    shown = exchange.via.shown if exchange.via is not None else ""
                    request_approval(call, agent, hold, bundle=exchange.entry.bundle, shown=shown)
        except IntegrityError:  # another web process was faster, with the same id, key, state or request for approval
            _check(row, tool=False)
            raise
        if added is not None:
            added.call_id = call.pk
            added.save(force_insert=True)

    details = {"token": str(token.uid), "token_name": token.name, "program": exchange.program}
    if exchange.via is not None:
        details |= {"bundle": exchange.via.bundle, "named": exchange.via.shown[:500]}
    if continuation is not None:
        details |= {"answers": ", ".join(sorted(continuation.added.get("inputResponses", {})))[:500]}
    return AgentPart(write, details, check)


def _identifying(exchange: Exchange, asked: CallRequest) -> dict[str, Any]:
    """The columns by which a later request is the same."""
    session = exchange.session
    return {
        "token_id": exchange.entry.principal.token.pk,
        "session_id": session.pk if session is not None else None,
        "request_id": stored_id(exchange.id) if session is not None else "",
        "key": key_of(exchange),
        "same": asked.same(exchange),
        "continues_id": None,
    }


def check_repeated(exchange: Exchange, asked: CallRequest) -> None:
    """Raises SameRequest and UndeliveredCall where placing a call would. For a thread."""
    _check(_identifying(exchange, asked), tool=asked.method == methods.TOOLS_CALL)


def _check_running(principal: Principal) -> None:
    """A call outlives its request: a legacy agent may disconnect, a server may ask something, the HTTP API does not wait.
    Counting requests alone would let a token run any number of calls."""
    running = running_calls(principal.token.user_id)
    of_token, of_user = quotas.flights_of(principal)
    for limit, count in ((of_token, running.get(principal.token.pk, 0)), (of_user, sum(running.values()))):
        if count >= limit.most:
            raise TooManyRunning(limit)


def _part_that_may_fail() -> AbstractContextManager[Any]:
    """For a transaction that reads again after a failed statement. SQLite rolls back only that statement, without a
    savepoint."""
    return nullcontext() if database().vendor == "sqlite" else transaction.atomic()


def _sealed(continuation: Continuation | None) -> AgentRound | None:
    try:
        return agent_calls.sealed(continuation.added) if continuation is not None else None
    except SealError as problem:
        raise AuditUnavailable(f"The answers cannot be encrypted, so the call was refused. {problem}") from problem


def _check(row: dict[str, Any], *, tool: bool) -> None:
    now = timezone.now()
    longest = UNHEARD_AGE + timedelta(seconds=limits.value("agent_approval_seconds"))
    found = earlier_calls(row, now - longest)
    by_why = {one.why: one for one in found}
    if (earlier := by_why.get(CONTINUES)) is not None:  # a requestState works once; a repetition gets the same call
        raise SameRequest(earlier.call.uid, equal=True, asked=earlier.needed_approval)
    repeated = next((by_why[why] for why in _REPEATS if why in by_why), None)
    if repeated is not None:
        same = repeated.same == row["same"]
        raise SameRequest(repeated.call.uid, equal=same, asked=repeated.needed_approval)
    _check_unheard([one for one in found if one.why == UNHEARD], now, tool=tool)


def _check_unheard(earlier: list[EarlierCall], now: datetime, *, tool: bool) -> None:
    """Identical calls whose outcome the agent does not know. A call that needed approval, unless it was cancelled
    before it was sent, is returned itself. Once its outcome is delivered, a further call needs an approval of its
    own."""
    for one in earlier:
        dropped = one.call.state == CallState.CANCELLED and one.call.sent_at is None
        if one.needed_approval and not dropped:
            raise SameRequest(one.call.uid, equal=True, asked=True)
    recent = [one.call for one in earlier if tool and one.call.created_at > now - UNHEARD_AGE]
    for call in recent:
        if call.state in _OPEN and call.cancel_requested_at is None:
            raise SameRequest(call.uid, equal=True)
    for call in recent:
        if call.state in _UNSURE or (call.state in _UNSURE_IF_RUN and call.may_have_run):
            raise UndeliveredCall(call.uid)


def attach(exchange: Exchange, call: UUID) -> str:
    """Attach this request to a call that an earlier request started. From now on its own id identifies that call too, for
    a cancellation or a repetition, and so does its key. Returns the name of the request in the events of its stream. For
    a work thread. Raises AuditUnavailable: a request that left no trace would run the tool when it is repeated."""
    first = AgentCall.objects.filter(call__uid=call).first()
    if first is None:
        return str(call)
    named = _names_of(exchange, first)
    if missing := [one for one in named if not AgentAttachment.objects.filter(**one).exists()]:
        rows = [AgentAttachment(call=first, **one) for one in missing]
        writer().submit_and_wait(lambda: AgentAttachment.objects.bulk_create(rows, ignore_conflicts=True))
    own = [one for one in named if "session_id" in one]
    pk = AgentAttachment.objects.filter(call=first, **own[0]).values_list("pk", flat=True).first() if own else None
    return str(call) if pk is None else f"{call}.{pk}"


def _names_of(exchange: Exchange, first: AgentCall) -> list[dict[str, Any]]:
    """What identifies this request, apart from what the call has itself."""
    token, session, key = exchange.entry.principal.token, exchange.session, key_of(exchange)
    found: list[dict[str, Any]] = []
    if session is not None:
        own = {"session_id": session.pk, "request_id": stored_id(exchange.id)}
        if (first.session_id, first.request_id) != (own["session_id"], own["request_id"]):
            found.append(own)
    if key and (first.token_id, first.key) != (token.pk, key):
        found.append({"token_id": token.pk, "key": key})
    return found


# --- outcomes that reached the agent ------------------------------------------------------------------------------------
def mark_disconnected(call: UUID) -> None:
    """The agent disconnected before the response. Never waits."""
    _later(AgentCall.objects.filter(call__uid=call, unheard_at=None), unheard_at=timezone.now())


def mark_delivered(call: UUID) -> None:
    """The agent is now waiting for this call, or knows its outcome. Nothing changes for a call that is waiting for
    approval. Never waits."""
    rows = AgentCall.objects.filter(call__uid=call, unheard_at__isnull=False)
    _later(rows.exclude(call__state=CallState.HELD), unheard_at=None)


def mark_orphans_undelivered() -> None:
    """This web process has just started: agents of unfinished calls, and of calls that ended without a response, may
    have been waiting in a process that died. If other processes are alive, their agents lose nothing: an identical call
    of theirs attaches to the running one. Waits for the writer: for a work thread. Raises AuditUnavailable."""
    now = timezone.now()
    rows = AgentCall.objects.filter(unheard_at=None, call__state__in=(*_UNSURE, *_UNSURE_IF_RUN))
    found = list(rows.filter(call__created_at__gt=now - UNHEARD_AGE).values_list("pk", flat=True))
    if found:  # read outside of the writer, which all other changes wait for
        writer().submit_and_wait(lambda: AgentCall.objects.filter(pk__in=found).update(unheard_at=now))


def mark_undelivered(calls: list[UUID]) -> None:
    """Their agents were refused although these calls may have been placed. Waits for the writer, which has by then done
    what was submitted before: for a work thread. Raises AuditUnavailable."""
    now = timezone.now()
    rows = AgentCall.objects.filter(call__uid__in=calls, unheard_at=None)
    writer().submit_and_wait(lambda: rows.update(unheard_at=now))


def cancelled(exchange: Exchange, call: UUID) -> None:
    """The agent cancelled this request: nothing may follow. For a thread."""
    now, session = timezone.now(), exchange.session
    if session is None:
        AgentCall.objects.filter(call__uid=call).update(cancelled_at=now)
        return
    own = {"session_id": session.pk, "request_id": stored_id(exchange.id)}
    if not AgentCall.objects.filter(call__uid=call, **own).update(cancelled_at=now):
        AgentAttachment.objects.filter(call__call__uid=call, **own).update(cancelled_at=now)


def mark_approval_delivered(call: UUID) -> None:
    """The agent receives the outcome of a call that needed approval. From now on an identical request is a new call, in
    every web process. For a work thread."""
    rows = AgentCall.objects.filter(call__uid=call, unheard_at__isnull=False)
    with suppress(AuditUnavailable):  # then it gets this outcome again
        writer().submit_and_wait(lambda: rows.update(unheard_at=None))


def _later(rows: Any, **fields: Any) -> None:
    with suppress(WriterBusy):
        writer().submit(lambda: rows.update(**fields))


# --- reads -------------------------------------------------------------------------------------------------------------
def call_of_request(session_pk: int, request_id: RequestId) -> UUID | None:
    """For a cancellation."""
    own = {"session_id": session_pk, "request_id": stored_id(request_id)}
    begun = AgentCall.objects.filter(**own).values_list("call__uid", flat=True).first()
    return begun or AgentAttachment.objects.filter(**own).values_list("call__call__uid", flat=True).first()


def call_of_event(session_pk: int, event: str) -> tuple[Call, Request] | None:
    """The call whose stream had this event, and as much of the request as its response needs."""
    uid, _, attachment = event.partition(":")[0].partition(".")
    with suppress(ValueError):
        if attachment:
            rows = AgentAttachment.objects.select_related("call__call").filter(pk=whole_number(attachment) or 0)
            attached = rows.filter(session_id=session_pk, call__call__uid=UUID(uid)).first()
            return None if attached is None else _resumed(attached.call.call, attached.request_id)
        began = AgentCall.objects.select_related("call").filter(session_id=session_pk, call__uid=UUID(uid)).first()
        return None if began is None else _resumed(began.call, began.request_id)
    return None


def _resumed(call: Call, request_id: str) -> tuple[Call, Request] | None:
    return None if request_id.startswith(_DIGEST) else (call, Request(json.loads(request_id), call.method, {}))


def stays_unanswered(session_pk: int, request_id: RequestId, call: Call) -> bool:
    """The agent cancelled this request and has no response of it."""
    state = CallState(call.state)
    return (state is CallState.CANCELLED or not state.final) and was_cancelled(session_pk, request_id, call.uid)


def was_cancelled(session_pk: int, request_id: RequestId, call: UUID) -> bool:
    """Whether the agent cancelled this request. Others that wait for the same call hear what became of it."""
    own = {"session_id": session_pk, "request_id": stored_id(request_id), "cancelled_at__isnull": False}
    return (
        AgentCall.objects.filter(call__uid=call, **own).exists()
        or AgentAttachment.objects.filter(call__call__uid=call, **own).exists()
    )
