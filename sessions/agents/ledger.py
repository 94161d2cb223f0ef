"""What the ledger keeps of a program's requests, besides their calls: so that none is sent twice by mistake.

A request that comes again (the same id in a session, the same key) attaches to the call of before. One that is equal to
a call whose answer never reached the program is not sent either: the program is told of that call first.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from servers import limits
from servers.audit.writer import AuditUnavailable, WriterBusy, writer
from servers.crypto import SealError
from servers.enums import AgentScope
from sessions import hints
from sessions.agents.asked import Asked, answerable
from sessions.agents.exchange import Exchange
from sessions.agents.questions import Continuation, one_exchange
from sessions.calls import programs
from sessions.calls.intents import Companion, Hold
from sessions.calls.targets import Target
from sessions.enums import ApprovalState, CallState
from sessions.mcp.core import methods
from sessions.mcp.core.jsonrpc import Request, RequestId
from sessions.mcp.server.refusals import invalid_params
from sessions.models import AgentCall, AgentRound, Approval, Call

KEY_HEADER: Final = "idempotency-key"
KEY_CHARS: Final = 128
UNHEARD_AGE: Final = timedelta(minutes=10)
EQUAL_WITHIN: Final = timedelta(minutes=1)
#: an earlier call in one of these states may have had an effect that its program does not know of
_OPEN: Final = (CallState.REQUESTED, CallState.SENT)
_UNSURE: Final = Q(call__state=CallState.OUTCOME_UNKNOWN) | Q(
    call__state__in=(CallState.CANCELLED, CallState.FAILED), call__may_have_run=True
)


class SameRequest(Exception):
    """The same request came before; `equal`: with the same target and arguments."""

    def __init__(self, call: UUID, *, equal: bool) -> None:
        super().__init__(str(call))
        self.call = call
        self.equal = equal


class Repeated(Exception):
    """So many equal calls came in a short time that a person has to look: an agent may be in a loop."""


class TooManyHeld(Exception):
    """The token has as many calls waiting for approval as it may."""


class Unheard(Exception):
    """An equal call of this token ended in a way that its program never heard of."""

    def __init__(self, call: UUID) -> None:
        super().__init__(str(call))
        self.call = call


def key_of(exchange: Exchange) -> str:
    """Raises Refusal."""
    key = exchange.headers.get(KEY_HEADER, "")
    if len(key) > KEY_CHARS:
        raise invalid_params(f"Idempotency-Key has more than {KEY_CHARS} characters.")
    return key


def companion(
    exchange: Exchange,
    asked: Asked,
    judge: Callable[[Target], Hold | None],
    *,
    most_equal: Callable[[], int],
    continuation: Continuation | None = None,
) -> Companion:
    """The program's part of a new call. Writing it raises SameRequest, Unheard, and Repeated after `most_equal()` equal
    calls in a minute (0: any number): then nothing is placed. Raises AuditUnavailable without a key for the answers that go
    up."""
    token, session = exchange.entry.principal.token, exchange.session
    row: dict[str, Any] = {
        "token_id": token.pk,
        "token_name": token.name,
        "program": exchange.program,
        "session_id": session.pk if session is not None else None,
        "request_id": json.dumps(exchange.id) if session is not None else "",
        "key": key_of(exchange),
        "same": asked.same(exchange),
        "log_level": exchange.log_level,
        "asks_people": exchange.entry.principal.has(AgentScope.INBOX.value),
        "one_exchange": one_exchange(exchange),
        "continues_id": continuation.agent_call if continuation is not None else None,
    }
    added = _sealed(continuation)

    def write(call: Call, hold: Hold | None) -> None:
        _check(row, tool=asked.method == methods.TOOLS_CALL)
        if hold is None and (most := most_equal()) and _equal_calls(row, most):
            raise Repeated
        try:
            with transaction.atomic():
                AgentCall.objects.create(call=call, capabilities=answerable(exchange), **row)
                if hold is not None:
                    _ask(call, row, hold)
        except IntegrityError:  # another web process was faster, with the same id, key, state or request for approval
            _check(row, tool=False)
            raise
        if added is not None:
            added.call_id = call.pk
            added.save(force_insert=True)

    details = {"token": str(token.uid), "token_name": token.name, "program": exchange.program}
    if continuation is not None:
        details |= {"answers": ", ".join(sorted(continuation.added.get("inputResponses", {})))[:500]}
    return Companion(write, details, judge)


def _ask(call: Call, row: dict[str, Any], hold: Hold) -> None:
    if Approval.objects.filter(token_id=row["token_id"], state=ApprovalState.OPEN).count() >= limits.number(
        "agent_approvals"
    ):
        raise TooManyHeld
    approval = Approval.objects.create(
        call=call,
        token_id=row["token_id"],
        same=row["same"],
        destructive=hold.destructive,
        why=hold.why[:500],
        created_at=call.created_at,
        expires_at=call.deadline,
    )
    transaction.on_commit(partial(hints.approval_changed, approval.uid, call.uid), robust=True)


def _equal_calls(row: dict[str, Any], most: int) -> bool:
    """Whether `most` equal calls were placed in the last minute. Reads as many entries of an index."""
    mine = AgentCall.objects.filter(token_id=row["token_id"], same=row["same"]).order_by("-id")
    created = list(mine.values_list("call__created_at", flat=True)[most - 1 : most])
    return bool(created) and created[0] > timezone.now() - EQUAL_WITHIN


def _sealed(continuation: Continuation | None) -> AgentRound | None:
    try:
        return programs.sealed(continuation.added) if continuation is not None else None
    except SealError as problem:
        raise AuditUnavailable(f"The answers cannot be encrypted, so the call was refused. {problem}") from problem


def _check(row: dict[str, Any], *, tool: bool) -> None:
    now, mine = timezone.now(), AgentCall.objects.select_related("call")
    earlier = None
    if row["continues_id"] is not None:
        earlier = mine.filter(continues_id=row["continues_id"]).first()
        if earlier is not None:  # a state that is used up leads to the call that it was used for
            raise SameRequest(earlier.call.uid, equal=True)
    if row["session_id"] is not None:
        earlier = mine.filter(session_id=row["session_id"], request_id=row["request_id"]).first()
    if earlier is None and row["key"]:
        earlier = mine.filter(token_id=row["token_id"], key=row["key"]).first()
    if earlier is not None:
        raise SameRequest(earlier.call.uid, equal=earlier.same == row["same"])
    if (asked := _asked_before(row, now)) is not None:
        raise SameRequest(asked, equal=True)
    if not tool:
        return
    unheard = mine.filter(token_id=row["token_id"], same=row["same"], unheard_at__isnull=False)
    unheard = unheard.filter(call__created_at__gt=now - UNHEARD_AGE)
    running = unheard.filter(call__state__in=_OPEN, call__cancel_requested_at=None).last()
    if running is not None:
        raise SameRequest(running.call.uid, equal=True)
    if (lost := unheard.filter(_UNSURE | Q(call__state__in=_OPEN)).last()) is not None:
        raise Unheard(lost.call.uid)


def _asked_before(row: dict[str, Any], now: datetime) -> UUID | None:
    """An equal call that waits for approval, or whose outcome after it the program has not heard: the same call again leads
    to it. Once heard, a further one needs a yes of its own."""
    mine = Approval.objects.filter(token_id=row["token_id"], same=row["same"])
    unheard = Q(call__agent__unheard_at__isnull=False, expires_at__gt=now - UNHEARD_AGE)
    return mine.filter(Q(state=ApprovalState.OPEN) | unheard).values_list("call__uid", flat=True).last()


# --- what a program has heard ------------------------------------------------------------------------------------------
def left(call: UUID) -> None:
    """The program went away without the answer. Never waits."""
    _later(AgentCall.objects.filter(call__uid=call, unheard_at=None), unheard_at=timezone.now())


def parked(call: UUID) -> None:
    """The program was told that the call waits for approval. Durable before it is told. For a work thread."""
    rows = AgentCall.objects.filter(call__uid=call, unheard_at=None)
    writer().submit_and_wait(lambda: rows.update(unheard_at=timezone.now()))


def heard(call: UUID) -> None:
    """The program knows of this call now. Never waits."""
    _later(AgentCall.objects.filter(call__uid=call, unheard_at__isnull=False), unheard_at=None)


def _later(rows: Any, **fields: Any) -> None:
    with suppress(WriterBusy):
        writer().submit(lambda: rows.update(**fields))


# --- reads -------------------------------------------------------------------------------------------------------------
def call_of_request(session_pk: int, request_id: RequestId) -> UUID | None:
    """For a cancellation."""
    rows = AgentCall.objects.filter(session_id=session_pk, request_id=json.dumps(request_id))
    return rows.values_list("call__uid", flat=True).first()


def call_of_event(session_pk: int, event: str) -> tuple[UUID, Request] | None:
    """The call whose stream had this event, and the request as far as its response needs it."""
    with suppress(ValueError):
        uid = UUID(event.partition(":")[0])
        row = AgentCall.objects.select_related("call").filter(session_id=session_pk, call__uid=uid).first()
        if row is not None:
            return uid, Request(json.loads(row.request_id), row.call.method, {})
    return None


def cancelled_by_program(call: UUID) -> bool:
    return AgentCall.objects.filter(call__uid=call, cancelled_at__isnull=False).exists()
