"""What pages and hosts read from the inbox. Read-only."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog

from servers.audit import payloads
from servers.crypto import SealError
from servers.models import Payload
from sessions.enums import CallState, QuestionState
from sessions.models import Call, Question

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Settled:
    """A question that has ended: its state, and what a person answered. `detail`: why, if no person ended it."""

    uid: UUID
    state: QuestionState
    content: dict[str, Any] | None = field(repr=False)
    detail: str = ""


def params_of(question: Question) -> dict[str, Any]:
    """What the server sent, without our own secrets. Hostile until escaped; empty once erased."""
    return _json(question.question) or {}


def stored_answer(question: Question) -> dict[str, Any] | None:
    """The content of the answer, for any reader; None if there is none, or it was erased."""
    return None if question.answer is None else _json(question.answer)


def answered_by(user_id: int | None, name: str, question: Question) -> bool:
    """The person who answers becomes the owner. The name alone proves nothing: a new account can have a deleted one's
    name."""
    return user_id is not None and question.owner_id == user_id and question.answered_by == name


def is_theirs(user: Any, question: Question) -> bool:
    """Also True for requests in a shared session."""
    if not question.personal:
        return True
    return question.session is not None and question.session.identity.user_id == user.pk


def settled(uids: Iterable[UUID]) -> list[Settled]:
    """The questions among `uids` that have ended. One whose answer cannot be decrypted now is left out: the key ring
    may be back the next time, and the others do not wait for it."""
    over = Question.objects.filter(uid__in=list(uids)).exclude(state=QuestionState.OPEN).select_related("answer")
    return [found for row in over if (found := _settled(row)) is not None]


def _settled(row: Question) -> Settled | None:
    try:
        return Settled(row.uid, QuestionState(row.state), _answer_to_send(row), row.detail)
    except SealError as problem:
        log.error("inbox.answer_unreadable", question=str(row.uid), problem=str(problem))
        return None


def _answer_to_send(question: Question) -> dict[str, Any] | None:
    return None if question.answer is None else _parsed(payloads.to_send(question.answer))


def _json(payload: Payload) -> dict[str, Any] | None:
    return _parsed(payloads.read(payload))


def _parsed(text: str | None) -> dict[str, Any] | None:
    value = None if text is None else json.loads(text)
    return value if isinstance(value, dict) else None


def possible_callers(question: Question) -> dict[str, Any]:
    """A filter for the calls that a request may belong to, if it came on a channel shared by all calls and names none:
    those that ran on the session when it came."""
    owner = {"worker_uid": question.worker_uid, "epoch": question.epoch}
    return owner | {"session_id": question.session_id, "state": CallState.SENT, "sent_at__lte": question.created_at}


def possibly_asked_by(call: Call) -> list[Question]:
    """The open questions that name no call and may be for this one, oldest first."""
    if call.state != CallState.SENT or call.worker_uid is None:
        return []
    owner = {"worker_uid": call.worker_uid, "epoch": call.epoch, "session_id": call.session_id}
    rows = Question.objects.filter(call=None, state=QuestionState.OPEN, created_at__gte=call.sent_at, **owner)
    return list(rows.order_by("id")[:3])
