"""A person's approval or refusal. The call's row decides: the first to change it from *held* wins.

access.Denied (recorded)    the permission is missing, or one's own agent made a call that others must approve
AuditUnavailable            not durable within 2 s: nothing was done
"""

from dataclasses import replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Final

from django.db.models import F
from django.utils import timezone

from servers import access, permissions
from servers.agents import policies
from servers.audit.record import Actor, Event
from servers.audit.writer import writer
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, AuditOutcome, OwnApproval
from servers.storable import storable
from sessions import hints
from sessions.approvals import validity
from sessions.approvals.ending import REFUSED_BY_PERSON, ended_events, finish, void
from sessions.calls import intents
from sessions.calls.final_states import event_of
from sessions.calls.placing import DURABLE_SECONDS, WAIT_SECONDS
from sessions.connections import commands
from sessions.enums import ApprovalState, CallState
from sessions.models import Approval, Call

WORDS: Final = 500


class Decision(Enum):
    """The result of an approval or refusal."""

    DONE = "done"
    LATE = "late"  # another person was faster, or it had ended
    CHANGED = "changed"  # the page showed something else
    VOID = "void"  # what was approved no longer exists
    PAUSED = "paused"  # the session currently accepts no calls; the request stays open


def may_decide(user: Any, approval: Approval) -> bool:
    return not why_not(user, approval)


def may_refuse(user: Any, approval: Approval) -> bool:
    """Whether this person may refuse it. The owner of the agent may always refuse its calls."""
    return approval.call.user_id == user.pk or may_decide(user, approval)


def why_not(user: Any, approval: Approval) -> str:
    """Why this person may not decide, as a sentence; empty if they may."""
    call = approval.call
    if not access.may(user, "answer_question"):
        return access.lacking("answer_question")
    if call.personal and call.user_id != user.pk and not access.may_see_personal_sessions(user):
        return "This call uses someone's personal identity. Only that person, or someone with permission to read everyone's results, can decide."
    if call.user_id != user.pk or call.server is None:
        return ""
    places: list[policies.Owner] = [call.server]
    if approval.bundle is not None:
        places.append(approval.bundle)
    own = policies.own_approval(policies.policies_of_each(places).values())
    if own is OwnApproval.NEVER:
        return f"Your own agent made this call. On {call.server_name}, another person must decide."
    if own is OwnApproval.EXCEPT_DESTRUCTIVE and approval.destructive:
        return f"Your own agent wants to run a destructive tool. On {call.server_name}, another person must decide."
    return ""


def approve(actor: Actor, user: Any, approval: Approval, binding: str) -> Decision:
    """Approve the call, which then takes the usual path, once. `binding`: what the page showed (validity.binding)."""
    _require(actor, user, approval)
    if binding != validity.binding(approval):
        return Decision.CHANGED

    def work() -> tuple[Decision, list[Event]]:
        row = _read(approval)
        if row.state != ApprovalState.OPEN or row.expires_at <= timezone.now():
            return Decision.LATE, []
        if why := validity.void_reason(row):
            return Decision.VOID, void([row], why)
        if row.call.session is None:
            return Decision.VOID, void([row], "The identity that the call was made with was removed.")
        if row.call.session.paused:
            return Decision.PAUSED, []
        return (Decision.DONE, [_granted(actor, row)]) if _release(actor, row) else (Decision.LATE, [])

    decision, _ = writer().submit_and_wait(work, lambda done: done[1], DURABLE_SECONDS)
    return decision


def refuse(actor: Actor, user: Any, approval: Approval, words: str) -> Decision:
    """Refuse the call. The agent is told, with these words."""
    if not may_refuse(user, approval):
        _require(actor, user, approval)
    said = storable(words).strip()[:WORDS]
    detail = f"{actor.name} refused it{f': {said}' if said else '.'}"

    def work() -> list[Event]:
        row = _read(approval)
        final = replace(REFUSED_BY_PERSON, detail=detail)
        calls = finish([row], final, actor) if row.state == ApprovalState.OPEN else []
        return ended_events(calls, final, AuditAction.APPROVAL_REFUSE, AuditOutcome.DENIED, actor)

    events = writer().submit_and_wait(work, list, DURABLE_SECONDS)
    return Decision.DONE if events else Decision.LATE


def _require(actor: Actor, user: Any, approval: Approval) -> None:
    server = approval.call.server
    permissions.require(user, actor, "answer_question", server, subject=approval.call.target[:300])
    if why := why_not(user, approval):
        denied = access.Denied("answer_question", server, why)
        permissions.record_denial(actor, denied, approval.call.target[:300])
        raise denied


def _read(approval: Approval) -> Approval:
    rows = Approval.objects.select_related("call__server", "call__session", "call__arguments", "token__user", "bundle")
    return rows.get(pk=approval.pk)


def _release(actor: Actor, row: Approval) -> bool:
    """Change the call from held to requested. Runs in the writer's transaction."""
    call, now = row.call, timezone.now()
    server, session = call.server, call.session
    if server is None or session is None:
        return False
    deadline = now + timedelta(seconds=server.connect_timeout_seconds + WAIT_SECONDS)
    held = Call.objects.filter(pk=call.pk, state=CallState.HELD)
    if not held.update(state=CallState.REQUESTED, deadline=deadline, version=F("version") + 1):
        return False
    fields = {"state": ApprovalState.APPROVED, "ended_at": now, "ended_by": actor.name[:150]}
    Approval.objects.filter(pk=row.pk).update(version=F("version") + 1, **fields)
    intents.request_session(session.pk)
    call.refresh_from_db(fields=["version"])
    after_commit(_announce, row.uid, call)
    return True


def _announce(uid: Any, call: Call) -> None:
    if call.session is not None:
        hints.later(partial(commands.wake_owner, call.session.uid))
    hints.call_changed(call.uid, call.version, call.server.uid if call.server else None)
    hints.approval_changed(uid, call.uid)


def _granted(actor: Actor, row: Approval) -> Event:
    return event_of(
        row.call, AuditAction.APPROVAL_GRANT, AuditOutcome.OK, actor, {"definition": row.call.definition_digest}
    )
