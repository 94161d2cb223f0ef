"""Removing rows in small transactions, so that no call waits for one.

A batch adapts its size to BATCH_SECONDS. What is removed from the log of events is cut by `servers.audit.proof`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import Model, Q

from servers.audit import payloads
from servers.audit.statements import database
from servers.models import Payload, Unredacted
from servers.signals import payload_erased, rows_removed
from sessions.enums import CallState, QuestionState, StoredKind
from sessions.models import Attempt, Call, Question, ResourceVersion
from sessions.retention import ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.plan import Removal
from sessions.retention.turn import in_turn

BATCH_SECONDS = 0.010
FIRST_BATCH, MOST, FEWEST = 20, 2_000, 5
#: returns the keys that it looked at, in order, and how many rows are gone
Batch = Callable[[int, int, int], tuple[list[int], int]]


def trim(removal: Removal, on_progress: Callable[[int], None] = lambda rows: None) -> int:
    """Returns how many rows are gone. Raises OperationalError when the database refuses for too long."""
    batch, after, gone, size = _BATCHES.get(removal.kind, _plain), removal.first - 1, 0, FIRST_BATCH
    while True:
        seconds, keys, removed = in_turn(partial(timed, batch, removal.kind, after, removal.last, size))
        if not keys:
            break
        after, gone = keys[-1], gone + removed
        size = max(FEWEST, min(MOST, size * 2, int(size * BATCH_SECONDS / max(seconds, 0.0001))))
        on_progress(gone)
    stored = stored_kinds()
    if removal.kind == StoredKind.CALLS:
        while removed := in_turn(partial(_questions, removal.before, size)):
            on_progress(gone := gone + removed)
        ledger.recount_before(stored[StoredKind.PAYLOADS], removal.before)
    ledger.recount(stored[removal.kind], removal.last, emptied=removal.kind == StoredKind.PAYLOADS)
    return gone


def timed(batch: Any, kind: StoredKind, after: int, last: int, most: int) -> tuple[float, list[int], int]:
    began = time.perf_counter()
    keys, removed = batch(kind, after, last, most)
    return time.perf_counter() - began, keys, removed


# --- one batch of each kind ---------------------------------------------------------------------------------------------
def _calls(kind: StoredKind, after: int, last: int, most: int) -> tuple[list[int], int]:
    """With attempts, questions and payloads. A call that has not ended stays."""
    rows = Call.objects.filter(pk__gt=after, pk__lte=last).order_by("pk")
    found = list(rows.values_list("pk", "state", "arguments_id", "result_id", "late_result_id")[:most])
    over = [row for row in found if CallState(row[1]).final]
    ids = [row[0] for row in over]
    owned = {key for row in over for key in row[2:] if key is not None}
    asked = list(Question.objects.filter(call__in=ids).exclude(state=QuestionState.OPEN).order_by())
    owned |= {key for one in asked for key in (one.question_id, one.answer_id) if key is not None}
    _delete(Question, "id", [one.pk for one in asked])
    Question.objects.filter(call__in=ids).update(call=None)
    Call.objects.filter(repeats__in=ids).update(repeats=None)
    _delete(Attempt, "call_id", ids)
    _delete(Call, "id", ids)
    _delete_payloads(sorted(owned))
    return [row[0] for row in found], len(ids)


def _questions(before: datetime, most: int) -> int:
    """Requests of servers that belong to no call."""
    over = Question.objects.filter(call=None, created_at__lte=before).exclude(state=QuestionState.OPEN)
    found = list(over.order_by()[:most])
    _delete(Question, "id", [one.pk for one in found])
    _delete_payloads([key for one in found for key in (one.question_id, one.answer_id) if key is not None])
    return len(found)


def _contents(kind: StoredKind, after: int, last: int, most: int) -> tuple[list[int], int]:
    """Contents of payloads; their rows, with digests, stay with their calls. What is still to be sent stays."""
    rows = stored_kinds()[kind].rows().filter(pk__gt=after, pk__lte=last)
    keys = list(rows.values_list("pk", flat=True)[:most])
    running = [state.value for state in CallState if not state.final]
    needed = set(Call.objects.filter(state__in=running, arguments__in=keys).values_list("arguments_id", flat=True))
    asked = Question.objects.filter(Q(question__in=keys) | Q(answer__in=keys), Q(state=QuestionState.OPEN))
    for question, answer in asked.values_list("question_id", "answer_id"):
        needed |= {question, answer}
    return keys, payloads.erase_all([key for key in keys if key not in needed])


def _versions(kind: StoredKind, after: int, last: int, most: int) -> tuple[list[int], int]:
    """With their contents. The newest version of each subscription stays."""
    rows = ResourceVersion.objects.filter(pk__gt=after, pk__lte=last).order_by("pk")
    found = list(rows.values_list("pk", "contents_id", "number", "subscription__newest")[:most])
    old = [row for row in found if row[2] != row[3]]
    _delete(ResourceVersion, "id", [row[0] for row in old])
    _delete_payloads([row[1] for row in old])
    return [row[0] for row in found], len(old)


def _plain(kind: StoredKind, after: int, last: int, most: int) -> tuple[list[int], int]:
    stored = stored_kinds()[kind]
    keys = list(stored.rows().filter(pk__gt=after, pk__lte=last).values_list("pk", flat=True)[:most])
    _delete(stored.model, "id", keys)
    return keys, len(keys)


_BATCHES: Mapping[StoredKind, Any] = {
    StoredKind.CALLS: _calls,
    StoredKind.PAYLOADS: _contents,
    StoredKind.VERSIONS: _versions,
}


def _delete_payloads(ids: Sequence[int]) -> None:
    payload_erased.send(sender=Payload, payload_ids=list(ids))
    _delete(Unredacted, "payload_id", ids)
    _delete(Payload, "id", ids)


def _delete(model: type[Model], column: str, ids: Sequence[int]) -> None:
    """Without the ORM's collector, which reads every row that it deletes."""
    if not ids:
        return
    if column == "id":
        rows_removed.send(sender=model, ids=list(ids))
    marks = ", ".join(["%s"] * len(ids))
    with database().cursor() as cursor:
        cursor.execute(f'DELETE FROM {model._meta.db_table} WHERE "{column}" IN ({marks})', list(ids))  # noqa: S608  # names of our own models
