"""Removes rows in small transactions, so that no call waits for one: rows are read beforehand, and the transactions
only delete. Events are removed by `servers.audit.proof`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Model, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from servers.audit import payloads
from servers.audit.batches import Batches
from servers.models import Payload, Unredacted
from servers.signals import rows_removed
from servers.sql import database
from sessions.enums import CallState, QuestionState, StoredKind
from sessions.explorer import indexing
from sessions.models import (
    AgentAttachment,
    AgentCall,
    AgentRound,
    Approval,
    Attempt,
    Call,
    Question,
    ResourceVersion,
    ServerTask,
)
from sessions.retention import ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.plan import Removal


@dataclass(frozen=True)
class Batch:
    """Keys up to `last` were checked; `remove` deletes those in `going`, in the current transaction."""

    last: int
    going: list[Any]
    remove: Callable[[Sequence[Any]], object]


#: takes rows of one kind in key order, and the maximum number to check; returns None if there are none
Look = Callable[[QuerySet[Any], int], Batch | None]


#: within this time, an agent that repeats a call, with the same key or the same content, does not run the tool again
_REPEATED = timedelta(days=1)
#: rows that are checked together when nothing is written
_SURVEYED = 500


def trim(removal: Removal, on_progress: Callable[[int], None] = lambda rows: None) -> int:
    """Return how many rows were removed. Raises OperationalError if the database refuses for too long."""
    stored = stored_kinds()
    batches, gone = Batches(), 0
    for batch in _looked(removal, lambda: batches.size):
        batches.each(batch.going, batch.remove)
        indexing.merge()
        gone += len(batch.going)
        on_progress(gone)
    if removal.kind == StoredKind.CALLS:
        while asked := _questions(removal.before, batches.size):
            batches.each(asked, _remove_questions)
            on_progress(gone := gone + len(asked))
        ledger.recount_before(stored[StoredKind.PAYLOADS], removal.before)
    ledger.recount(stored[removal.kind], removal.first, removal.last, content=_CONTENT.get(removal.kind))
    return gone


def finds_any(removal: Removal) -> bool:
    """False: all remaining rows are still needed. They stay in the ledger, because they take up space."""
    if any(batch.going for batch in _looked(removal, lambda: _SURVEYED)):
        return True
    return removal.kind == StoredKind.CALLS and bool(_questions(removal.before, 1))


def _looked(removal: Removal, most: Callable[[], int]) -> Iterator[Batch]:
    rows, look = stored_kinds()[removal.kind].rows(), _LOOKS.get(removal.kind, _plain)
    if removal.kind == StoredKind.VERSIONS:
        look = partial(_versions, removal.before)
    for first, last in ledger.spans(removal.kind, removal.first, removal.last):
        after = first - 1
        while (batch := look(rows.filter(pk__gt=after, pk__lte=last), most())) is not None:
            yield batch
            after = batch.last


# --- what is removed, and how -----------------------------------------------------------------------------------
def _calls(rows: QuerySet[Any], most: int) -> Batch | None:
    """Calls, with attempts, questions and payloads. Keeps calls that have not ended, whose task is still followed, or
    that an agent made recently."""
    found = list(rows.values_list("pk", "state", "created_at")[:most])
    young = [key for key, _, at in found if at > timezone.now() - _REPEATED]
    needed = set(AgentCall.objects.filter(call__in=young).values_list("call_id", flat=True)) if young else set()
    unknown = [key for key, state, _ in found if state == CallState.OUTCOME_UNKNOWN]
    if unknown:
        needed |= set(ServerTask.objects.followed_on().filter(call__in=unknown).values_list("call_id", flat=True))
    going = [key for key, state, _ in found if CallState(state).final and key not in needed]
    return Batch(found[-1][0], going, _remove_calls) if found else None


def _remove_calls(ids: Sequence[int]) -> None:
    owned = _delete_questions("call_id", ids)
    _forget_call(Question, "call_id", ids)
    _forget_call(Call, "repeats_id", ids)
    _delete(Attempt, "call_id", ids)
    _delete(ServerTask, "call_id", ids)
    _delete(AgentRound, "call_id", ids)
    _delete(Approval, "call_id", ids)
    AgentCall.objects.filter(continues__call__in=ids).update(continues=None)
    AgentAttachment.objects.filter(call__call__in=ids).delete()
    _delete(AgentCall, "call_id", ids)
    owned += _deleted(Call, "id", ids, ("arguments_id", "result_id", "late_result_id"))
    rows_removed.send(sender=Call, ids=ids)
    _delete_payloads(owned)


def _questions(before: datetime, most: int) -> list[int]:
    """Requests from servers that belong to no call."""
    over = Question.objects.filter(call=None, created_at__lte=before).exclude(state=QuestionState.OPEN)
    return list(over.order_by().values_list("pk", flat=True)[:most])


def _remove_questions(ids: Sequence[int]) -> None:
    _delete_payloads(_delete_questions("id", ids))


def _contents(rows: QuerySet[Any], most: int) -> Batch | None:
    """Contents of payloads. Their rows, with digests, stay with their calls. Keeps anything still to be sent."""
    keys = list(rows.filter(_CONTENT[StoredKind.PAYLOADS]).values_list("pk", flat=True)[:most])
    running = [state.value for state in CallState if not state.final]
    needed = set(Call.objects.filter(state__in=running, arguments__in=keys).values_list("arguments_id", flat=True))
    asked = Question.objects.filter(Q(question__in=keys) | Q(answer__in=keys), _UNDELIVERED)
    for question, answer in asked.values_list("question_id", "answer_id"):
        needed |= {question, answer}
    return Batch(keys[-1], [key for key in keys if key not in needed], _empty) if keys else None


#: requests from servers that wait for an answer, or whose answer waits for delivery
_UNDELIVERED = Q(state=QuestionState.OPEN) | Q(answer__isnull=False, delivered_at=None, detail="")


def _empty(ids: Sequence[int]) -> None:
    payloads.erase_all(ids, everywhere=False)


def _versions(before: datetime, rows: QuerySet[Any], most: int) -> Batch | None:
    """Resource versions, with their contents. Keeps the newest version of each subscription, and any that was replaced
    after `before`: it was the current content until then."""
    next_ones = ResourceVersion.objects.filter(subscription=OuterRef("subscription"), number__gt=OuterRef("number"))
    replaced_at = Subquery(next_ones.order_by("number").values("at")[:1])
    found = list(rows.annotate(replaced_at=replaced_at).values_list("pk", "replaced_at")[:most])
    going = [key for key, at in found if at is not None and at <= before]
    return Batch(found[-1][0], going, _remove_versions) if found else None


def _remove_versions(ids: Sequence[int]) -> None:
    _delete_payloads(_deleted(ResourceVersion, "id", ids, ("contents_id",)))


def _plain(rows: QuerySet[Any], most: int) -> Batch | None:
    keys = list(rows.values_list("pk", flat=True)[:most])
    return Batch(keys[-1], keys, partial(_remove_rows, rows.model)) if keys else None


def _remove_rows(model: type[Model], ids: Sequence[int]) -> None:
    _delete(model, "id", ids)
    rows_removed.send(sender=model, ids=ids)


#: the rows that have contents, for kinds whose rows stay when these are removed
_CONTENT: Mapping[StoredKind, Q] = {StoredKind.PAYLOADS: Q(erased_at=None)}
_LOOKS: Mapping[StoredKind, Look] = {
    StoredKind.CALLS: _calls,
    StoredKind.PAYLOADS: _contents,
}


# --- statements without the ORM, whose collector reads every row that it deletes ------------------------------------------
def _delete_payloads(ids: Sequence[int]) -> None:
    """Delete the payloads of deleted rows, so nothing is left that could have copied their text."""
    _delete(Unredacted, "payload_id", ids)
    _delete(Payload, "id", ids)


def _delete_questions(column: str, ids: Sequence[int]) -> list[int]:
    """Delete those that no longer wait for an answer. Returns the keys of their payloads."""
    return _deleted(Question, column, ids, ("question_id", "answer_id"), "state <> %s", QuestionState.OPEN.value)


def _forget_call(model: type[Model], column: str, ids: Sequence[int]) -> None:
    _run(f'UPDATE {model._meta.db_table} SET "{column}" = NULL WHERE "{column}" IN ({{}})', ids)  # noqa: S608  # names of our own models


def _delete(model: type[Model], column: str, ids: Sequence[int]) -> None:
    _run(f'DELETE FROM {model._meta.db_table} WHERE "{column}" IN ({{}})', ids)  # noqa: S608  # names of our own models


def _deleted(
    model: type[Model], column: str, ids: Sequence[int], returned: Sequence[str], only: str = "1 = 1", *values: str
) -> list[int]:
    """Delete rows, and return the values of their columns `returned`."""
    columns = ", ".join(f'"{name}"' for name in returned)
    sql = f'DELETE FROM {model._meta.db_table} WHERE "{column}" IN ({{}}) AND {only} RETURNING {columns}'  # noqa: S608  # the same
    return [key for row in _run(sql, ids, *values) for key in row if key is not None]


def _run(sql: str, ids: Sequence[int], *values: str) -> list[tuple[Any, ...]]:
    if not ids:
        return []
    with database().cursor() as cursor:
        cursor.execute(sql.format(", ".join(["%s"] * len(ids))), [*ids, *values])
        return list(cursor.fetchall()) if "RETURNING" in sql else []
