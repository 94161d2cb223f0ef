"""The life of a question in its row: received by the worker that owns the session, ended once, by the first to act.

Each change is one conditional UPDATE in the caller's transaction. An ended question changes only once more: when its
answer was delivered, or could not be. Answers by people are in `answering`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from servers import limits
from servers.audit import payloads
from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import Payload, Unredacted
from servers.storable import storable
from sessions import hints
from sessions.calls.claims import PendingCall
from sessions.connections import commands
from sessions.connections.lifecycle import Lease, held
from sessions.enums import CallState, QuestionKind, QuestionState
from sessions.inbox import reads
from sessions.inbox.reads import Settled, settled
from sessions.models import Call, Question, ServerTask, Worker

SUMMARY_CHARS = 300
BATCH = 200
#: the time that a call has left after the deadline for an answer
MARGIN = timedelta(seconds=5)
#: a live worker ends its own questions; after this time any worker or web process may
EXPIRE_AFTER = timedelta(seconds=15)
WORKER_GONE = "This session's worker is gone, so answers can no longer reach the server."
NOT_TAKEN = "The answer reached the server too late, or the server did not accept it."
NOT_SENT = "The call ended, so the answer was not sent."
NOT_DELIVERED = "This session's worker stopped before it could deliver this answer."
UNREADABLE = "The answer cannot be decrypted."
NO_ANSWER = f"Not answered in time. {limits.stated('inbox_seconds')} The server was notified."


@dataclass(frozen=True)
class NewQuestion:
    """A question as its worker received it. `params` is JSON text without our secrets. `call`: the call that waits.
    `refused`: why it is declined at once, without a person; empty if people are asked."""

    uid: UUID
    kind: QuestionKind
    method: str
    origin: str
    summary: str
    params: str = field(repr=False)
    refused: str = ""
    call: PendingCall | None = None
    #: seconds for a person, and for the whole call
    patience: float = 600.0
    total: float = 1800.0


# --- received ----------------------------------------------------------------------------------------------------------
def packed(asking: NewQuestion) -> Payload:
    """The row of its content, compressed and sealed but not written. Do not call in the writer's transaction: that
    would hold up all other writes. Raises SealError."""
    return payloads.made(PayloadKind.QUESTION, asking.params)


def receive(asking: NewQuestion, lease: Lease, content: Payload | None = None) -> Question | None:
    """The new row. None if no answer could be used: the session or the call is over, or its time nearly is. `content`: from
    `packed`. Raises SealError.

    Safe to repeat when its commit was not confirmed.
    """
    if known := Question.objects.filter(uid=asking.uid).first():
        return known
    now = timezone.now()
    call = _running(asking.call, lease)
    expires = _expiry(asking, call, now)
    if expires <= now or not held(lease).exists() or (asking.call is not None and call is None):
        return None
    question = Question.objects.create(
        **_origin(asking, lease, call),
        **_owner(asking.call),
        question=payloads.insert(content or packed(asking)),
        created_at=now,
        expires_at=expires,
        **_declined(asking, now),
    )
    if call is not None and not asking.refused:
        Call.objects.filter(pk=call.pk).update(open_questions=F("open_questions") + 1, version=F("version") + 1)
    elif call is None and not asking.refused:
        _of_no_known_call(question)
    notify(question.pk)
    return question


def _of_no_known_call(question: Question) -> None:
    """Show the question, and its end, on the cards of the calls that may have caused it."""
    calls = Call.objects.filter(**reads.possible_callers(question))
    calls.update(version=F("version") + 1)
    for uid in list(calls.values_list("uid", flat=True)[:BATCH]):
        after_commit(hints.call_asked, uid)


def received(question: Question | None, *, refused: bool = False) -> list[Event]:
    """The events of `receive`; `refused`: it was declined at once."""
    if question is None:
        return []
    digests = {"question": question.question.digest}
    events = [question_event(question, AuditAction.QUESTION_RECEIVE, AuditOutcome.PENDING, digests=digests)]
    return [*events, _end_event(question, AuditOutcome.DENIED)] if refused else events


def _declined(asking: NewQuestion, now: datetime) -> dict[str, Any]:
    """The final state of a question that is declined without asking a person."""
    if not asking.refused:
        return {}
    return {"state": QuestionState.DECLINED, "ended_at": now, "detail": asking.refused}


def _running(call: PendingCall | None, lease: Lease) -> Call | None:
    """The call, if it runs in this session, or the server still runs it as a task that this session follows on."""
    if call is None:
        return None
    ours = Q(state=CallState.SENT, worker_uid=lease.worker_uid, epoch=lease.epoch)
    followed_on = ServerTask.objects.followed_on().filter(session_id=lease.session_id)
    return Call.objects.filter(ours | Q(pk__in=followed_on.values("call_id")), pk=call.pk).first()


def _expiry(asking: NewQuestion, call: Call | None, now: datetime) -> datetime:
    """Early enough that the call's own total time does not end first. For a task that is still followed, it has
    ended."""
    began = call.sent_at if call is not None and call.state == CallState.SENT else None
    return min(now + timedelta(seconds=asking.patience), (began or now) + timedelta(seconds=asking.total) - MARGIN)


def _origin(asking: NewQuestion, lease: Lease, call: Call | None) -> dict[str, Any]:
    return {
        "uid": asking.uid,
        "session_id": lease.session_id,
        "server_id": lease.server_id,
        "server_name": lease.server_name,
        "identity_name": lease.identity_name,
        "personal": lease.personal,
        "call": call,
        "worker_uid": lease.worker_uid,
        "epoch": lease.epoch,
        "kind": asking.kind,
        "method": asking.method[:60],
        "origin": asking.origin[:10],
        "summary": storable(" ".join(asking.summary[: 4 * SUMMARY_CHARS].split()), SUMMARY_CHARS),
    }


def _owner(call: PendingCall | None) -> dict[str, Any]:
    """The caller owns the question until another person takes it."""
    if call is None:
        return {}
    known = get_user_model()._default_manager.filter(pk=call.actor.id or 0).exists()
    return {"owner_id": call.actor.id if known else None, "owner_name": call.actor.name[:150]}


# --- ended -------------------------------------------------------------------------------------------------------------
def ended(questions: QuerySet[Question], state: QuestionState, **fields: Any) -> bool:
    """End the one open question in `questions`. False if it has already ended."""
    pk = questions.values_list("pk", flat=True).first()
    rows = questions.filter(state=QuestionState.OPEN)
    if not rows.update(state=state, ended_at=timezone.now(), version=F("version") + 1, **fields):
        return False
    if question := Question.objects.filter(pk=pk or 0, call=None).first():
        _of_no_known_call(question)
    waiting = Call.objects.filter(questions=pk, open_questions__gt=0).values_list("pk", flat=True)
    for call_pk in list(waiting):
        Call.objects.filter(pk=call_pk).update(open_questions=F("open_questions") - 1, version=F("version") + 1)
    notify(pk)
    return True


def end(uid: UUID, state: QuestionState, detail: str, actor: Actor = SYSTEM, **only: Any) -> list[Event]:
    """An end without an answer. Nothing if another process was faster, or its row does not match `only`."""
    if not ended(Question.objects.filter(uid=uid, **only), state, detail=detail):
        return []
    return [_end_event(Question.objects.select_related("server", "call").get(uid=uid), actor=actor)]


def withdraw(uid: UUID, detail: str) -> list[Event]:
    """The answer is no longer needed. An answer given a moment before is marked as not delivered."""
    if events := end(uid, QuestionState.WITHDRAWN, detail):
        return events
    late = Question.objects.filter(uid=uid, delivered_at=None, detail="").exclude(state=QuestionState.OPEN)
    if late.update(detail=f"{detail} It could not be delivered.", version=F("version") + 1):
        _forget_unmasked(Question.objects.filter(uid=uid))
        notify(Question.objects.values_list("pk", flat=True).get(uid=uid))
    return []


def not_delivered(uid: UUID, detail: str) -> None:
    """The server did not take the answer, or it is not sent any more."""
    rows = Question.objects.filter(uid=uid, detail="").exclude(state=QuestionState.OPEN)
    if rows.update(delivered_at=None, detail=detail, version=F("version") + 1):
        _forget_unmasked(Question.objects.filter(uid=uid))
        notify(Question.objects.values_list("pk", flat=True).get(uid=uid))


def delivered(uid: UUID) -> None:
    """The answer was sent to the server. It stays undelivered if that was reported first."""
    rows = Question.objects.filter(uid=uid, delivered_at=None).exclude(detail=NOT_TAKEN)
    if rows.update(delivered_at=timezone.now(), version=F("version") + 1):
        _forget_unmasked(Question.objects.filter(uid=uid))
        notify(Question.objects.values_list("pk", flat=True).get(uid=uid))


def _forget_unmasked(questions: QuerySet[Question]) -> None:
    """Delete the values behind their masked answers: these were sent, or will not be sent any more."""
    Unredacted.objects.filter(payload__in=questions.exclude(answer=None).values("answer")).delete()


def withdraw_of_dead_workers(dead: list[UUID]) -> list[Event]:
    """End the questions of dead workers, and of workers whose rows are gone."""
    living = Worker.objects.filter(uid=OuterRef("worker_uid"))
    theirs = Question.objects.filter(Q(worker_uid__in=dead) | ~Exists(living))
    undelivered = Q(delivered_at=None, detail="") & ~Q(state=QuestionState.OPEN)
    lost = theirs.filter(undelivered, worker_uid__in=dead)
    _forget_unmasked(lost)
    lost.update(detail=NOT_DELIVERED, version=F("version") + 1)
    return _end_all(theirs, QuestionState.WITHDRAWN, WORKER_GONE)


def expire(uid: UUID) -> tuple[Settled | datetime, list[Event]]:
    """End a question at its deadline. Returns its final state, which may be an answer from the last moment, or the new
    deadline if a person extended it. An answer that still cannot be decrypted is given up."""
    events = end(uid, QuestionState.EXPIRED, NO_ANSWER, expires_at__lte=timezone.now())
    if over := settled([uid]):
        return over[0], events
    if Question.objects.filter(uid=uid, expires_at__lte=timezone.now()).exclude(state=QuestionState.OPEN).exists():
        withdraw(uid, UNREADABLE)
        return Settled(uid, QuestionState.WITHDRAWN, None), events
    return Question.objects.values_list("expires_at", flat=True).get(uid=uid), events


def expire_overdue() -> list[Event]:
    """End questions whose time is over and that no worker ended."""
    due = Question.objects.filter(expires_at__lt=timezone.now() - EXPIRE_AFTER)
    return _end_all(due, QuestionState.EXPIRED, "Not answered in time.")


def expire_without_worker() -> int:
    """`expire_overdue` for the web, while no worker is alive to do it. Returns how many are due."""
    due = Question.objects.filter(state=QuestionState.OPEN, expires_at__lt=timezone.now() - EXPIRE_AFTER).count()
    if not due or commands.live_workers():
        return 0
    writer().submit(expire_overdue, list)
    return due


def _end_all(questions: QuerySet[Question], state: QuestionState, detail: str) -> list[Event]:
    uids = questions.filter(state=QuestionState.OPEN).order_by("pk").values_list("uid", flat=True)[:BATCH]
    return [event for uid in list(uids) for event in end(uid, state, detail)]


# --- announcing ------------------------------------------------------------------------------------------------------
def notify(pk: int | None) -> None:
    """Notify the pages once the current transaction is committed."""
    question = Question.objects.select_related("call", "server").filter(pk=pk or 0).first()
    if question is not None:
        after_commit(_notify, question)


def _notify(question: Question) -> None:
    call, server = question.call, question.server
    hints.question_changed(question.uid, question.version, call.uid if call else None, server.uid if server else None)
    if server is not None:
        hints.session_changed(server.uid)  # its pages show how many are open


def question_event(
    question: Question,
    action: AuditAction,
    outcome: AuditOutcome,
    actor: Actor = SYSTEM,
    details: dict[str, Any] | None = None,
    digests: dict[str, str] | None = None,
) -> Event:
    """Questions and answers are stored as payloads: an event contains only their digests."""
    return Event(
        action=action,
        outcome=outcome,
        actor=actor,
        server=None if question.server is None else ServerRef.of(question.server),
        identity_name=question.identity_name,
        subject=question.method,
        call_uid=None if question.call is None else question.call.uid,
        details={"question": str(question.uid), "kind": str(question.kind), **(details or {})},
        digests=digests or {},
    )


def _end_event(question: Question, outcome: AuditOutcome | None = None, actor: Actor = SYSTEM) -> Event:
    if outcome is None:
        outcome = AuditOutcome.OK if question.state == QuestionState.ACCEPTED else AuditOutcome.CANCELLED
    details = {"state": str(question.state), "detail": question.detail[:500]}
    return question_event(question, AuditAction.QUESTION_END, outcome, actor, details)
