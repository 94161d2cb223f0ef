"""What an agent's call carries besides its arguments: the agent's capabilities, and its part of a round.

A modern server may require input and hand out a state that must be returned. Both directions may be confidential, so
they are sealed and kept only for a short time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db.models import F
from django.utils import timezone

from servers.audit.record import Event
from servers.crypto import SealError, open_bytes, seal_bytes
from servers.enums import ActionSource, AuditAction, AuditOutcome
from sessions.calls import statements
from sessions.calls.final_states import FinalState, announce, end_now, finish_event
from sessions.calls.operations import operation_of
from sessions.calls.statements import CallPreconditions
from sessions.enums import ApprovalState, CallState
from sessions.mcp.core.on_behalf import OnBehalf
from sessions.models import AgentRound, Approval, Call

#: longer than agents may take to answer
KEPT: Final = timedelta(hours=1)
_TABLE: Final = AgentRound._meta.db_table
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CallingAgent:
    """`on_behalf`: for the client; its capabilities are None if the call is not a single exchange. `capabilities`: what
    the agent can answer. `asks_people`: the rest goes to the inbox. `standing`: as of when the call was read."""

    on_behalf: OnBehalf = field(repr=False)
    capabilities: Mapping[str, Any]
    asks_people: bool
    standing: CallPreconditions = field(repr=False)


def sealed(content: Mapping[str, Any], *, back: bool = False) -> AgentRound:
    """Return the row, not stored yet and without its call. Raises SealError."""
    row = AgentRound(back=back)
    text = json.dumps(content, separators=(",", ":")).encode("utf-8", "surrogatepass")
    row.sealed, row.key_id = seal_bytes(text, table=_TABLE, uid=row.uid, field="sealed")
    return row


def opened(row: AgentRound) -> dict[str, Any]:
    """Raises SealError."""
    text = open_bytes(row.sealed, key_id=row.key_id, table=_TABLE, uid=row.uid, field="sealed")
    value = json.loads(text.decode("utf-8", "surrogatepass"))
    return value if isinstance(value, dict) else {}


def agent_of(call: Call) -> CallingAgent | None:
    """None for a person's call. Raises SealError."""
    if call.way != ActionSource.AGENT:
        return None
    found = statements.agent_call(call.pk, *operation_of(call.method).place(call.target))
    if found is None:
        return None
    agent, row, standing = found
    on_behalf = OnBehalf(
        log_level=agent.log_level or None,
        capabilities=agent.capabilities if agent.one_exchange else None,
        added=opened(row) if row is not None else {},
    )
    return CallingAgent(on_behalf, agent.capabilities, agent.asks_people, standing)


# --- whether it may still be sent ---------------------------------------------------------------------------------------
_VOIDED: Final = FinalState(CallState.REQUESTED, CallState.REFUSED, AuditOutcome.DENIED, "")


def barrier(found: CallPreconditions) -> str:
    """Why an agent's call may not be sent although it was placed; empty if it may. The thread that claims calls also
    stores the definitions, so none changes between the read and the claim."""
    if found.ended:
        return "The token expired or was revoked before the call was sent."
    if found.approved_digest:
        return unseen_change(found.server_name, found.target)
    if found.asked and (found.digest or "") != found.made_with:
        return f"{found.server_name} changed the definition of {found.target} after the call was approved."
    return ""


def unseen_change(server_name: str, target: str) -> str:
    return (
        f"{server_name} changed {target} in a breaking way. Agents can use it again once a person has "
        "approved the change on its page in mcpadmin."
    )


def refuse(uid: UUID, why: str) -> list[Event]:
    """End a placed call that may not be sent, and void its approval if it has one."""
    final = replace(_VOIDED, detail=f"{why} It did not reach the server.")
    events = []
    for call in end_now([uid], final):
        rows = Approval.objects.filter(call_id=call.pk, state=ApprovalState.APPROVED)
        fields = {"state": ApprovalState.VOIDED, "detail": final.detail, "version": F("version") + 1}
        end = finish_event(call, final)
        if rows.update(**fields):
            events.append(replace(end, action=AuditAction.APPROVAL_VOID, outcome=AuditOutcome.CANCELLED))
        events.append(end)
        announce(call)
    return events


def sent(call_pk: int) -> None:
    """Delete what was sent to the server: it is no longer needed."""
    AgentRound.objects.filter(call_id=call_pk, back=False).delete()


def required_input(call_pk: int, state: str | None) -> None:
    """Store the state with which the server requires input. Without the key ring it is lost: the agent must restart."""
    try:
        row = sealed({} if state is None else {"requestState": state}, back=True)
    except SealError as problem:
        log.error("calls.round_not_sealed", problem=str(problem))
        return
    AgentRound.objects.filter(call_id=call_pk).delete()
    row.call_id = call_pk
    row.save(force_insert=True)


def forget_old() -> None:
    AgentRound.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
