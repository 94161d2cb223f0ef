"""Topic `inbox`: one frame per item of the inbox, and one with the number of open items. For reader threads only.

The frames contain no text from a server. Users who may read it get it from the page.
"""

from collections import Counter
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.utils import timezone

from servers.kit.visible import visible_text
from sessions.enums import ApprovalState, QuestionState
from sessions.live.frames import EVERYBODY, RECENT, SEES_PERSONAL, Audience, Frame, encode, of_owner
from sessions.models import Approval, Question

_MOST = 200


def frames(uids: list[UUID] | None) -> list[Frame]:
    """Frames of the named items. None: all open items, and those that ended recently."""
    rows = Question.objects.select_related("server", "call", "session__identity").filter(
        _selected(QuestionState.OPEN, uids)
    )
    found = [_frame(question) for question in rows.order_by("-id")[:_MOST]]
    return [*found, *_approval_frames(uids), *_counts()]


def _approval_frames(uids: list[UUID] | None) -> list[Frame]:
    rows = Approval.objects.select_related("call__server").filter(_selected(ApprovalState.OPEN, uids))
    return [_approval_frame(approval) for approval in rows.order_by("-id")[:_MOST]]


def _selected(open_state: QuestionState | ApprovalState, uids: list[UUID] | None) -> Q:
    """The named items. None: those that are open or ended recently."""
    if uids is not None:
        return Q(uid__in=uids)
    return Q(state=open_state) | Q(ended_at__gt=timezone.now() - RECENT)


def _approval_frame(approval: Approval) -> Frame:
    call = approval.call
    row = {
        "approval": str(approval.uid),
        "version": approval.version,
        "state": approval.state,
        "call": str(call.uid),
        "server_name": visible_text(call.server_name),
        "expires_at": approval.expires_at.isoformat(),
    }
    audience = of_owner(call.user_id) if call.personal else EVERYBODY
    return Frame(encode("inbox", None, "approval", [row]), None, str(approval.uid), approval.version, audience=audience)


def _frame(question: Question) -> Frame:
    row = question_row(question)
    text = encode("inbox", None, "question", [row])
    return Frame(text, None, str(question.uid), question.version, audience=_audience(question))


def _audience(question: Question) -> Audience:
    if not question.personal:
        return EVERYBODY
    return of_owner(question.session.identity.user_id if question.session else None)


def question_row(question: Question) -> dict[str, Any]:
    return {
        "question": str(question.uid),
        "version": question.version,
        "state": question.state,
        "kind": question.kind,
        "server": str(question.server.uid) if question.server else None,
        "server_name": visible_text(question.server_name),
        "call": str(question.call.uid) if question.call else None,
        "owner": question.owner_name,
        "answered_by": question.answered_by,
        "expires_at": question.expires_at.isoformat(),
    }


def _counts() -> list[Frame]:
    """The shared number for everyone. Users with personal items get their own, viewers of all sessions the total."""
    waiting = Question.objects.filter(state=QuestionState.OPEN)
    held = Approval.objects.filter(state=ApprovalState.OPEN)
    shared = waiting.filter(personal=False).count() + held.filter(call__personal=False).count()
    every = waiting.count() + held.count()
    if every == shared:
        return [_count(every, EVERYBODY)]
    asked = waiting.filter(personal=True).order_by().values_list("session__identity__user_id").annotate(Count("id"))
    calls = held.filter(call__personal=True).order_by().values_list("call__user_id").annotate(Count("id"))
    theirs: Counter[int] = Counter()
    for pk, number in [*asked, *calls]:
        if pk is not None:
            theirs[pk] += number
    own = [_count(shared + number, Audience(frozenset({pk}), sees_personal=False)) for pk, number in theirs.items()]
    rest = Audience(but=frozenset(theirs), sees_personal=False)
    return [_count(shared, rest), *own, _count(every, SEES_PERSONAL)]


def _count(number: int, audience: Audience) -> Frame:
    return Frame(encode("inbox", None, "count", [{"open": number}]), None, "count", audience=audience)
