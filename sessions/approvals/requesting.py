"""Asks people to approve a call, in the transaction that writes it."""

from servers import limits
from servers.commit_hooks import after_commit
from servers.models import Bundle
from sessions import hints
from sessions.calls.intents import Hold
from sessions.enums import ApprovalState
from sessions.models import AgentCall, Approval, Call


class TooManyHeld(Exception):
    """The token has reached its limit of calls waiting for approval."""


def request_approval(call: Call, agent: AgentCall, hold: Hold, *, bundle: Bundle | None, shown: str) -> None:
    """`shown`: the name that the agent used in the bundle. Raises TooManyHeld, and IntegrityError if an identical call
    is already waiting."""
    waiting = Approval.objects.filter(token_id=agent.token_id, state=ApprovalState.OPEN).count()
    if waiting >= limits.number("agent_approvals"):
        raise TooManyHeld
    approval = Approval.objects.create(
        call=call,
        token_id=agent.token_id,
        bundle=bundle,
        shown=shown,
        same=agent.same,
        destructive=hold.destructive,
        why=hold.why[:500],
        created_at=call.created_at,
        expires_at=call.deadline,
    )
    after_commit(hints.approval_changed, approval.uid, call.uid)
