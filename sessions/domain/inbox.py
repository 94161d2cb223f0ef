"""The inbox for pages: a person takes a server's question, and answers it. The first one wins, everybody else is told.

Each verb is one conditional UPDATE of an open question with its audit event, then the worker that holds the session is
rung; where the ring is lost, its tick finds the answer in the row.

    access.Denied (recorded)    the right to answer is lacking
    Unfit                       the answer does not fit what was asked; `errors` by JSON pointer
    AuditUnavailable            not durable within 2 s: nothing was done
"""

import json
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, writer
from servers.domain import rights
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain.arguments import Given
from sessions.domain.inbox_answers import Action, Unfit, prefilled, read_answer, requested_schema
from sessions.domain.inbox_read import is_theirs, params_of
from sessions.domain.inbox_time import longer
from sessions.domain.questions import ended, question_event, tell
from sessions.enums import QuestionState
from sessions.models import Question

__all__ = [
    "Action",
    "AuditUnavailable",
    "Given",
    "Unfit",
    "answer",
    "extend",
    "params_of",
    "prefilled",
    "requested_schema",
    "take",
]

DURABLE_SECONDS = 2.0
_STATES: dict[Action, QuestionState] = {
    "accept": QuestionState.ACCEPTED,
    "decline": QuestionState.DECLINED,
    "cancel": QuestionState.CANCELLED,
}


def take(actor: Actor, user: Any, question: Question) -> bool:
    """Become the owner. False when it is over, or changed hands since `question` was read."""
    _require(actor, user, question)

    def change() -> bool:
        rows = Question.objects.filter(pk=question.pk, state=QuestionState.OPEN, owner_id=question.owner_id)
        rows = rows.filter(expires_at__gt=timezone.now())
        changed = rows.update(version=F("version") + 1, **_owned(actor)) == 1
        if changed:
            tell(question.pk)
        return changed

    taken = partial(question_event, question, AuditAction.QUESTION_TAKE, AuditOutcome.OK, actor)
    return writer().submit_and_wait(change, lambda done: [taken()] if done else [], DURABLE_SECONDS)


def extend(actor: Actor, user: Any, question: Question) -> datetime | None:
    """Take it, and let it wait longer: until when. None when it is over or may not wait longer, or when somebody else
    gave it more time since `question` was read."""
    _require(actor, user, question)
    until = longer(question)
    return until if until is not None and _extend(actor, question, until) else None


def _extend(actor: Actor, question: Question, until: datetime) -> bool:
    def change() -> bool:
        rows = Question.objects.filter(pk=question.pk, state=QuestionState.OPEN, expires_at=question.expires_at)
        rows = rows.filter(expires_at__gt=timezone.now())
        changed = rows.update(version=F("version") + 1, expires_at=until, **_owned(actor)) == 1
        if changed:
            tell(question.pk)
        return changed

    details = {"until": until.isoformat()}
    taken = partial(question_event, question, AuditAction.QUESTION_TAKE, AuditOutcome.OK, actor, details)
    return writer().submit_and_wait(change, lambda done: [taken()] if done else [], DURABLE_SECONDS)


def _owned(actor: Actor) -> dict[str, Any]:
    return {"owner_id": actor.id, "owner_name": actor.name[:150]}


def answer(actor: Actor, user: Any, question: Question, action: Action, given: Given | None = None) -> bool:
    """Answer for good. False when it was over before: somebody was faster, or nobody waits any more.

    `given` belongs to "accept": for a form its posted fields, JSON text or value; for sampling the value
    {role, content, model, stopReason}; for a URL nothing. May wait for the schema checker: not inside of a transaction.
    """
    _require(actor, user, question)
    content = read_answer(question.kind, params_of(question), action, given)
    text = None if content is None else json.dumps(content, separators=(",", ":"), allow_nan=False)
    write, events = partial(_write, actor, question, _STATES[action], text), partial(_answered, actor, question, action)
    return writer().submit_and_wait(write, events, DURABLE_SECONDS) is not None


def _require(actor: Actor, user: Any, question: Question) -> None:
    rights.require(user, actor, "answer_question", question.server, subject=question.method)
    if not is_theirs(user, question):
        denied = access.Denied("answer_question", question.server)
        rights.record_denial(actor, denied, question.method)
        raise denied


def _write(actor: Actor, question: Question, state: QuestionState, text: str | None) -> dict[str, str] | None:
    """The digests of what was stored; None when the question was not open any more."""
    mine = Question.objects.filter(pk=question.pk)
    if not ended(mine.filter(expires_at__gt=timezone.now()), state, answered_by=actor.name[:150]):
        return None
    if question.worker_uid is not None:
        ring = partial(bus.ring_later, question.worker_uid, "answer", question.uid, question.epoch)
        transaction.on_commit(ring, robust=True)
    if text is None:
        return {}
    stored = payloads.store(PayloadKind.ANSWER, text)
    mine.update(answer=stored)
    return {"answer": stored.digest}


def _answered(actor: Actor, question: Question, action: Action, digests: dict[str, str] | None) -> list[Event]:
    if digests is None:
        return []
    outcome = AuditOutcome.OK if action == "accept" else AuditOutcome.CANCELLED
    details = {"action": action}
    return [question_event(question, AuditAction.QUESTION_ANSWER, outcome, actor, details, digests)]
