"""Topic `inbox`: one frame an item of the inbox, and one with how many wait. In reader threads only.

No word of a server is in them: whoever may read it gets it from the page.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from sessions.consumers.frames import Frame, encode
from sessions.enums import QuestionState
from sessions.models import Question

#: whoever may have missed a hint also hears of what ended not long ago
_ENDED_SINCE = timedelta(minutes=2)
_MOST = 200


def frames(uids: list[UUID] | None) -> list[Frame]:
    """Of the items named; None: of all that are open and of those that ended just now."""
    rows = Question.objects.select_related("server", "call")
    if uids is None:
        wanted = rows.filter(Q(state=QuestionState.OPEN) | Q(ended_at__gt=timezone.now() - _ENDED_SINCE))
    else:
        wanted = rows.filter(uid__in=uids)
    return [*(_frame(question) for question in wanted.order_by("-id")[:_MOST]), _count()]


def _frame(question: Question) -> Frame:
    row = question_row(question)
    return Frame(encode("inbox", None, "question", [row]), None, str(question.uid), question.version)


def question_row(question: Question) -> dict[str, Any]:
    return {
        "question": str(question.uid),
        "version": question.version,
        "state": question.state,
        "kind": question.kind,
        "server": str(question.server.uid) if question.server else None,
        "server_name": question.server_name,
        "call": str(question.call.uid) if question.call else None,
        "owner": question.owner_name,
        "answered_by": question.answered_by,
        "expires_at": question.expires_at.isoformat(),
    }


def _count() -> Frame:
    count = Question.objects.filter(state=QuestionState.OPEN).count()
    return Frame(encode("inbox", None, "count", [{"open": count}]), None, "count")
