"""The inbox for pages: a person takes a server's question and answers it. The first answer wins.

Each verb is one conditional UPDATE of an open question with its audit event. An answer then wakes the worker that owns
the session; if the wake-up is lost, the worker's tick finds the answer in the row.

    access.Denied (recorded)    permission to answer is missing
    Unfit                       the answer does not fit the request; `errors` by JSON pointer
    AuditUnavailable            not durable within 2 s: nothing was done
"""

import json
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import F
from django.utils import timezone

from servers import access, permissions
from servers.audit import payload_privacy, payloads
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, writer
from servers.commit_hooks import after_commit
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, PayloadKind, RedactedPart
from servers.models import Payload, Unredacted
from servers.privacy import redaction
from sessions import hints
from sessions.calls.arguments import SubmittedArguments
from sessions.enums import QuestionState
from sessions.inbox.answer_check import Action, Unfit, prefilled, read_answer, requested_schema
from sessions.inbox.more_time import longer
from sessions.inbox.questions import end, ended, notify, question_event
from sessions.inbox.reads import is_theirs, params_of
from sessions.models import Question

__all__ = [
    "STATES",
    "Action",
    "AuditUnavailable",
    "SubmittedArguments",
    "Unfit",
    "answer",
    "dismiss",
    "extend",
    "params_of",
    "prefilled",
    "requested_schema",
    "take",
]

DURABLE_SECONDS = 2.0
STATES: dict[Action, QuestionState] = {
    "accept": QuestionState.ACCEPTED,
    "decline": QuestionState.DECLINED,
    "cancel": QuestionState.CANCELLED,
}


def take(actor: Actor, user: Any, question: Question) -> bool:
    """Become the owner. False if the question has ended, or changed hands since `question` was read."""
    _require(actor, user, question)

    def change() -> bool:
        rows = Question.objects.filter(pk=question.pk, state=QuestionState.OPEN, owner_id=question.owner_id)
        rows = rows.filter(expires_at__gt=timezone.now())
        changed = rows.update(version=F("version") + 1, **_owned(actor)) == 1
        if changed:
            notify(question.pk)
        return changed

    taken = partial(question_event, question, AuditAction.QUESTION_TAKE, AuditOutcome.OK, actor)
    return writer().submit_and_wait(change, lambda done: [taken()] if done else [], DURABLE_SECONDS)


def extend(actor: Actor, user: Any, question: Question) -> datetime | None:
    """Take the question and extend its deadline; returns the new one. None if it has ended, cannot be extended, or was
    extended by another person since `question` was read."""
    _require(actor, user, question)
    until = longer(question)
    return until if until is not None and _extend(actor, question, until) else None


def _extend(actor: Actor, question: Question, until: datetime) -> bool:
    def change() -> bool:
        rows = Question.objects.filter(pk=question.pk, state=QuestionState.OPEN, expires_at=question.expires_at)
        rows = rows.filter(expires_at__gt=timezone.now())
        changed = rows.update(version=F("version") + 1, expires_at=until, **_owned(actor)) == 1
        if changed:
            notify(question.pk)
        return changed

    details = {"until": until.isoformat()}
    taken = partial(question_event, question, AuditAction.QUESTION_TAKE, AuditOutcome.OK, actor, details)
    return writer().submit_and_wait(change, lambda done: [taken()] if done else [], DURABLE_SECONDS)


def _owned(actor: Actor) -> dict[str, Any]:
    return {"owner_id": actor.id, "owner_name": actor.name[:150]}


def answer(
    actor: Actor, user: Any, question: Question, action: Action, given: SubmittedArguments | None = None
) -> bool:
    """Give the final answer. False if the question had already ended: another person was faster, or the answer is no
    longer needed.

    `given` is for "accept". For a form: its posted fields, JSON text or value; for sampling: the value {role, content,
    model, stopReason}; for a URL: nothing. May wait for the schema checker: do not call it inside a transaction.
    """
    _require(actor, user, question)
    content = read_answer(question.kind, params_of(question), action, given)
    text = None if content is None else json.dumps(content, separators=(",", ":"), allow_nan=False)
    stored = None if text is None else _redacted(text, question)
    write, events = (
        partial(_write, actor, question, STATES[action], stored),
        partial(_answered, actor, question, action),
    )
    return writer().submit_and_wait(write, events, DURABLE_SECONDS) is not None


def dismiss(actor: Actor, user: Any, question: Question, why: str) -> bool:
    """End the question without a decision: the program that was to answer for `user` sent something that is not an
    answer. False if it had already ended."""
    _require(actor, user, question)

    def change() -> list[Event]:
        events = end(question.uid, QuestionState.CANCELLED, why, actor)
        if events:
            _wake(question)
        return events

    return bool(writer().submit_and_wait(change, list, DURABLE_SECONDS))


def _require(actor: Actor, user: Any, question: Question) -> None:
    permissions.require(user, actor, "answer_question", question.server, subject=question.method)
    if not is_theirs(user, question):
        denied = access.Denied("answer_question", question.server)
        permissions.record_denial(actor, denied, question.method)
        raise denied


def _redacted(text: str, question: Question) -> tuple[Payload, Unredacted | None]:
    """The payload, not yet written, and the unmasked text if values were masked."""
    subject = redaction.Subject(
        RedactedPart.ANSWER, question.server_id, question.method, requested_schema(params_of(question))
    )
    masked, count = redaction.redacted(text, subject, payload_privacy.current())
    try:
        payload = payloads.made(PayloadKind.ANSWER, masked, redacted=count)
        return payload, payloads.unredacted(text) if count else None
    except SealError as problem:
        raise AuditUnavailable(f"The answer cannot be encrypted, so it was not stored. {problem}") from problem


def _write(
    actor: Actor, question: Question, state: QuestionState, answer: tuple[Payload, Unredacted | None] | None
) -> dict[str, str] | None:
    """The digests of what was stored; None if the question was no longer open."""
    mine = Question.objects.filter(pk=question.pk)
    if not ended(mine.filter(expires_at__gt=timezone.now()), state, answered_by=actor.name[:150], **_owned(actor)):
        return None
    _wake(question)
    if answer is None:
        return {}
    stored = payloads.insert(answer[0])
    if answer[1] is not None:
        answer[1].payload_id = stored.pk
        payloads.insert_unredacted(answer[1])
    mine.update(answer=stored)
    return {"answer": stored.digest}


def _wake(question: Question) -> None:
    if question.worker_uid is not None:
        after_commit(hints.wake_worker, question.worker_uid, "answer", question.uid)


def _answered(actor: Actor, question: Question, action: Action, digests: dict[str, str] | None) -> list[Event]:
    if digests is None:
        return []
    outcome = AuditOutcome.OK if action == "accept" else AuditOutcome.CANCELLED
    details = {"action": action}
    return [question_event(question, AuditAction.QUESTION_ANSWER, outcome, actor, details, digests)]
