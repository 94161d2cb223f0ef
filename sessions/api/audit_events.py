from typing import Annotated, Final

from ninja import Query, Router

from servers import permissions
from servers.audit import query
from servers.enums import AgentScope
from servers.models import AuditEvent
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.api.asking import Caller, caller_of, work
from sessions.api.problems import Problem
from sessions.api.shapes import AuditEventOut, AuditEventPage

router = Router(tags=["audit events"])
MOST: Final = 500


@router.get("", response=AuditEventPage, operation_id="list_audit_events", summary="List audit events")
async def index(
    request: WebRequest,
    cursor: Annotated[str, Query(max_length=20, description="0 or omitted: from the first event.")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
) -> AuditEventPage:
    """Events in the order of the chain, oldest first. A token limited to some servers reads only their events. Needs
    the `mcp:audit` scope and a token owner with permission to read the audit log."""
    caller = caller_of(request)
    caller.require(AgentScope.AUDIT)
    return await work(_page, caller, cursor, limit)


def _page(caller: Caller, cursor: str, limit: int) -> AuditEventPage:
    permissions.require(caller.user, caller.actor, "view_auditevent")
    after = whole_number(cursor) if cursor else 0
    if after is None:
        raise Problem(422, "invalid-cursor", "This cursor does not belong to this list. Start again without it.")
    rows = AuditEvent.objects.filter(seq__gt=after)
    if caller.principal.server_ids is not None or caller.only:
        rows = rows.filter(server_uid__in=list(caller.read_servers().values_list("uid", flat=True)))
    found = list(rows.order_by("seq")[: limit + 1])
    shown = found[:limit]
    last = shown[-1].seq if shown else after
    return AuditEventPage(items=[_out(event) for event in shown], next=str(last), more=len(found) > limit)


def _out(event: AuditEvent) -> AuditEventOut:
    body = query.readable_body(event)
    return AuditEventOut(
        seq=event.seq,
        at=event.at,
        action=event.action,
        outcome=event.outcome,
        subject=event.subject,
        actor=event.actor_name,
        way=event.way or "",
        ip=event.ip,
        server=event.server_name,
        identity=event.identity_name,
        call=event.call_uid,
        details=body["details"],
        digests=body["digests"],
        context=body.get("context") or {},
        hash=event.hash,
        prev=body.get("prev") or "",
    )
