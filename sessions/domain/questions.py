"""The life of a question in its row: received by the worker that holds the session, ended once, by whoever is first.

Each change is one conditional UPDATE in the caller's transaction; a question that was ended changes no more, but for the
note that its answer reached the server. What a person answers stands in `inbox`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain import commands
from sessions.domain.claims import Order
from sessions.domain.inbox_read import Settled, settled
from sessions.domain.lifecycle import Hold, held, storable
from sessions.enums import CallState, QuestionKind, QuestionState
from sessions.models import Call, Question, Worker

SUMMARY_CHARS = 300
BATCH = 200
#: what a call keeps for itself after the last moment for an answer
MARGIN = timedelta(seconds=5)
#: a worker that lives ends its own questions; after this time nobody does
LAPSE_AFTER = timedelta(seconds=15)
WORKER_GONE = "The worker that held the session is gone, so no answer can reach the server any more."
NOT_DELIVERED = "The worker that held the session went away before it could hand over this answer."
NO_ANSWER = "Nobody answered in time. The server was told."


@dataclass(frozen=True)
class Asking:
    """A question as its worker received it; `params` is JSON text without our secrets. `order`: the call that waits."""

    uid: UUID
    kind: QuestionKind
    method: str
    origin: str
    summary: str
    params: str = field(repr=False)
    order: Order | None = None
    #: seconds for a person, and for the whole call
    patience: float = 600.0
    total: float = 1800.0


# --- received ----------------------------------------------------------------------------------------------------------
def receive(asking: Asking, hold: Hold) -> Question | None:
    """The new row; None when nobody can wait for its answer: the session or the call is over, or its time nearly is.

    May be repeated when its commit was not confirmed.
    """
    if known := Question.objects.filter(uid=asking.uid).first():
        return known
    now = timezone.now()
    call = _running(asking.order, hold)
    expires = _expiry(asking, call, now)
    if expires <= now or not held(hold).exists() or (asking.order is not None and call is None):
        return None
    question = Question.objects.create(
        **_origin(asking, hold, call),
        **_owner(asking.order),
        question=payloads.store(PayloadKind.QUESTION, asking.params),
        created_at=now,
        expires_at=expires,
    )
    if call is not None:
        Call.objects.filter(pk=call.pk).update(open_questions=F("open_questions") + 1, version=F("version") + 1)
    tell(question.pk)
    return question


def received(question: Question | None) -> list[Event]:
    if question is None:
        return []
    digests = {"question": question.question.digest}
    return [question_event(question, AuditAction.QUESTION_RECEIVE, AuditOutcome.PENDING, digests=digests)]


def _running(order: Order | None, hold: Hold) -> Call | None:
    if order is None:
        return None
    return Call.objects.filter(pk=order.pk, state=CallState.SENT, worker_uid=hold.worker_uid, epoch=hold.epoch).first()


def _expiry(asking: Asking, call: Call | None, now: datetime) -> datetime:
    """Never so late that the call's own total time would end first."""
    began = call.sent_at if call is not None and call.sent_at is not None else now
    return min(now + timedelta(seconds=asking.patience), began + timedelta(seconds=asking.total) - MARGIN)


def _origin(asking: Asking, hold: Hold, call: Call | None) -> dict[str, Any]:
    return {
        "uid": asking.uid,
        "session_id": hold.session_id,
        "server_id": hold.server_id,
        "server_name": hold.server_name,
        "identity_name": hold.identity_name,
        "personal": hold.personal,
        "call": call,
        "worker_uid": hold.worker_uid,
        "epoch": hold.epoch,
        "kind": asking.kind,
        "method": asking.method[:60],
        "origin": asking.origin[:10],
        "summary": storable(" ".join(asking.summary[: 4 * SUMMARY_CHARS].split()), SUMMARY_CHARS),
    }


def _owner(order: Order | None) -> dict[str, Any]:
    """Whoever made the call, until somebody takes the question."""
    if order is None:
        return {}
    known = get_user_model()._default_manager.filter(pk=order.actor.id).exists()
    return {"owner_id": order.actor.id if known else None, "owner_name": order.actor.name[:150]}


# --- ended -------------------------------------------------------------------------------------------------------------
def ended(questions: QuerySet[Question], state: QuestionState, **fields: Any) -> bool:
    """Give the one open question of `questions` its end. False when it has one."""
    pk = questions.values_list("pk", flat=True).first()
    rows = questions.filter(state=QuestionState.OPEN)
    if not rows.update(state=state, ended_at=timezone.now(), version=F("version") + 1, **fields):
        return False
    waiting = Call.objects.filter(questions=pk, open_questions__gt=0).values_list("pk", flat=True)
    for call_pk in list(waiting):
        Call.objects.filter(pk=call_pk).update(open_questions=F("open_questions") - 1, version=F("version") + 1)
    tell(pk)
    return True


def end(uid: UUID, state: QuestionState, detail: str, **only: Any) -> list[Event]:
    """The end that no person gave; nothing when somebody was faster, or `only` is not true of its row."""
    if not ended(Question.objects.filter(uid=uid, **only), state, detail=detail):
        return []
    return [_end_event(Question.objects.select_related("server", "call").get(uid=uid))]


def withdraw(uid: UUID, detail: str) -> list[Event]:
    """Nobody waits any more. An answer that came a moment before says that it was not handed over."""
    if events := end(uid, QuestionState.WITHDRAWN, detail):
        return events
    late = Question.objects.filter(uid=uid, delivered_at=None, detail="").exclude(state=QuestionState.OPEN)
    if late.update(detail=f"{detail} It could not be handed over.", version=F("version") + 1):
        tell(Question.objects.values_list("pk", flat=True).get(uid=uid))
    return []


def delivered(uid: UUID) -> None:
    """The answer was handed to the server."""
    rows = Question.objects.filter(uid=uid, delivered_at=None)
    if rows.update(delivered_at=timezone.now(), version=F("version") + 1):
        tell(Question.objects.values_list("pk", flat=True).get(uid=uid))


def withdraw_of_the_dead(dead: list[UUID]) -> list[Event]:
    """End what dead workers left, and what workers left whose rows are gone."""
    living = Worker.objects.filter(uid=OuterRef("worker_uid"))
    theirs = Question.objects.filter(Q(worker_uid__in=dead) | ~Exists(living))
    unheard = Q(delivered_at=None, detail="") & ~Q(state=QuestionState.OPEN)
    theirs.filter(unheard, worker_uid__in=dead).update(detail=NOT_DELIVERED, version=F("version") + 1)
    return _end_all(theirs, QuestionState.WITHDRAWN, WORKER_GONE)


def expire(uid: UUID) -> tuple[Settled | datetime, list[Event]]:
    """The time is over; unless somebody answered in the last moment, which counts, or gave it time until a later one."""
    events = end(uid, QuestionState.EXPIRED, NO_ANSWER, expires_at__lte=timezone.now())
    if over := settled([uid]):
        return over[0], events
    return Question.objects.values_list("expires_at", flat=True).get(uid=uid), events


def lapse() -> list[Event]:
    """End questions whose time is over and that no worker ended."""
    due = Question.objects.filter(expires_at__lt=timezone.now() - LAPSE_AFTER)
    return _end_all(due, QuestionState.EXPIRED, "Nobody answered in time.")


def expire_due() -> int:
    """`lapse` for the web, while no worker lives to do it. Returns how many were put to the writer."""
    due = Question.objects.filter(state=QuestionState.OPEN, expires_at__lt=timezone.now() - LAPSE_AFTER).count()
    if not due or commands.live_workers():
        return 0
    writer().submit(lapse, list)
    return due


def _end_all(questions: QuerySet[Question], state: QuestionState, detail: str) -> list[Event]:
    uids = questions.filter(state=QuestionState.OPEN).order_by("pk").values_list("uid", flat=True)[:BATCH]
    return [event for uid in list(uids) for event in end(uid, state, detail)]


# --- telling -----------------------------------------------------------------------------------------------------------
def tell(pk: int | None) -> None:
    """Tell the pages once the current transaction is committed."""
    question = Question.objects.select_related("call", "server").filter(pk=pk).first()
    if question is not None:
        transaction.on_commit(lambda: _tell(question), robust=True)


def _tell(question: Question) -> None:
    call, server = question.call, question.server
    bus.question_changed(question.uid, question.version, call.uid if call else None, server.uid if server else None)
    if server is not None:
        bus.session_changed(server.uid)  # its pages say how many wait


def question_event(
    question: Question,
    action: AuditAction,
    outcome: AuditOutcome,
    actor: Actor = SYSTEM,
    details: dict[str, Any] | None = None,
    digests: dict[str, str] | None = None,
) -> Event:
    """What was asked and answered stands in payloads of their own: an event names their digests only."""
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


def _end_event(question: Question) -> Event:
    outcome = AuditOutcome.OK if question.state == QuestionState.ACCEPTED else AuditOutcome.CANCELLED
    details = {"state": str(question.state), "detail": question.detail[:500]}
    return question_event(question, AuditAction.QUESTION_END, outcome, details=details)
