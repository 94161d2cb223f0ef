"""What pages show about calls that are waiting for approval. Read-only."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.audit import payloads
from servers.kit.pages import RowsPage, page_before
from sessions.approvals import deciding, validity
from sessions.calls import visibility
from sessions.enums import ApprovalState
from sessions.models import Approval

SHOWN: Final = 200
ENDED: Final = 50
ENDED_SINCE: Final = timedelta(days=7)
ARGUMENT_CHARS: Final = 64 * 1024


@dataclass(frozen=True)
class ApprovalCard:
    """One request for one reader. `why_not`: why this reader may not decide. `own`: it is from their own agent.
    `arguments`: empty if they may not read them, or if they were erased. `hidden`: how many characters are cut off."""

    approval: Approval
    why_not: str
    own: bool
    readable: bool
    arguments: str
    hidden: int
    masked: bool
    binding: str

    @property
    def open(self) -> bool:
        return self.approval.state == ApprovalState.OPEN and self.approval.expires_at > timezone.now()

    @property
    def may_decide(self) -> bool:
        return self.open and not self.why_not

    @property
    def may_refuse(self) -> bool:
        return self.open and (self.own or not self.why_not)


def seen(user: Any) -> QuerySet[Approval]:
    rows = Approval.objects.select_related("call__server", "call__agent", "call__arguments", "token", "bundle")
    # Checked per approval: as a condition on the joined calls, SQLite would read all of them first, and there may be
    # millions.
    return rows.filter(Exists(visibility.visible(user).filter(pk=OuterRef("call"))))


def _listed(user: Any) -> QuerySet[Approval]:
    """The approvals without their arguments, which may be of any size."""
    return seen(user).defer(*(f"call__arguments__{column}" for column in ("text", "blob", "sealed")))


def open_count(user: Any) -> int:
    """Used on every page: if nothing is open, the visibility rules need not be evaluated."""
    is_open = Q(state=ApprovalState.OPEN)
    return seen(user).filter(is_open).count() if Approval.objects.filter(is_open).exists() else 0


def open_rows(user: Any) -> list[Approval]:
    """Open approvals, the first to expire first."""
    return list(_listed(user).filter(state=ApprovalState.OPEN).order_by("expires_at", "id")[:SHOWN])


def open_total(user: Any, listed: list[Approval]) -> int:
    """How many are open; `listed`: what `open_rows` returned."""
    return len(listed) if len(listed) < SHOWN else open_count(user)


def ended_page(user: Any, before: int | None) -> RowsPage[Approval]:
    """Approvals that ended recently, newest first. The history has all of them."""
    since = timezone.now() - ENDED_SINCE
    # there is an index on the time of the request, and none waits longer than a day
    recent = _listed(user).filter(created_at__gt=since - timedelta(days=1), ended_at__gt=since)
    return page_before(recent.exclude(state=ApprovalState.OPEN), "id", before, ENDED)


def card_of(user: Any, approval: Approval) -> ApprovalCard:
    call = approval.call
    why_not = deciding.why_not(user, approval)
    readable = may_read(user, approval)
    text = (payloads.read(call.arguments) if readable else None) or ""
    return ApprovalCard(
        approval,
        why_not,
        call.user_id == user.pk,
        readable,
        _pretty(text),
        max(0, len(text) - ARGUMENT_CHARS),
        bool(call.arguments.redacted),
        validity.binding(approval),
    )


def may_read(user: Any, approval: Approval) -> bool:
    """Whether this person may read the arguments: those who may decide need to know them."""
    is_open = approval.state == ApprovalState.OPEN
    return visibility.may_read(user, approval.call) or (is_open and not deciding.why_not(user, approval))


def _pretty(text: str) -> str:
    if not text or len(text) > ARGUMENT_CHARS:
        return text[:ARGUMENT_CHARS]
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
