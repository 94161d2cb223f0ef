"""What pages and hosts read of the inbox. Reads only."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from servers import access
from servers.audit import payloads
from servers.models import Payload
from sessions.enums import QuestionState
from sessions.models import Question


@dataclass(frozen=True)
class Settled:
    """A question that is over: its state, and what a person answered."""

    uid: UUID
    state: QuestionState
    content: dict[str, Any] | None = field(repr=False)


def params_of(question: Question) -> dict[str, Any]:
    """What the server sent, without our own secrets; hostile until escaped. Empty once it was erased."""
    return _json(question.question) or {}


def answer_of(question: Question) -> dict[str, Any] | None:
    """What was answered beside the action; None where there is nothing, or it was erased."""
    return None if question.answer is None else _json(question.answer)


def may_read_answer(user: Any, question: Question) -> bool:
    """Whoever answered, and whoever may read arguments and results."""
    return question.answered_by == user.get_username() or access.may_read_payloads(user)


def is_theirs(user: Any, question: Question) -> bool:
    """True too for what is asked on a session that everybody shares."""
    if not question.personal:
        return True
    return question.session is not None and question.session.identity.user_id == user.pk


def settled(uids: Iterable[UUID]) -> list[Settled]:
    """Those of these questions that are over."""
    over = Question.objects.filter(uid__in=list(uids)).exclude(state=QuestionState.OPEN).select_related("answer")
    return [Settled(row.uid, QuestionState(row.state), answer_of(row)) for row in over]


def _json(payload: Payload) -> dict[str, Any] | None:
    text = payloads.read(payload)
    value = None if text is None else json.loads(text)
    return value if isinstance(value, dict) else None
