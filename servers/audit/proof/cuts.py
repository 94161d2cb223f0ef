"""Cuts: retention removes the oldest events and leaves a signed statement of what it removed.

The database trigger allows only events that a cut covers to be removed. The cut is signed before the first event is
removed, so that an interruption leaves a chain that verifies: the events not removed yet still link to the cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import Min, Model, QuerySet

from servers.audit.batches import Batches, in_turn
from servers.audit.proof import checkpoints
from servers.audit.proof.notes import stamp
from servers.audit.record import SYSTEM, Actor, Event
from servers.enums import AuditAction, AuditOutcome, StatementKind
from servers.models import AuditAlarm, AuditEvent, Checkpoint

_FIRST_BATCH = 100


class CutRefused(Exception):
    """The message can be shown on a page."""


@dataclass(frozen=True)
class Cut:
    """The events `first` to `seq`, both included, were removed; `hash` is that of the last one. `removed` is 0 if there
    was nothing to do."""

    first: int
    seq: int
    hash: str
    removed: int


def cut(before_seq: int, actor: Actor = SYSTEM, on_batch: Callable[[int, int], None] = lambda done, total: None) -> Cut:
    """Remove all events before `before_seq`, in short transactions, and record that as an event.

    The newest event is always kept. A second call finishes what an interrupted one left. Do not call it inside
    `atomic()`. `on_batch(removed, total)` is called between two transactions and may sleep; an exception from it stops
    the cut there. Raises OperationalError if the database refuses, KeyMissing and KeyReplaced without the checkpoint
    key, and CutRefused while an alarm is open.
    """
    require_no_alarm()
    first = AuditEvent.objects.aggregate(first=Min("seq"))["first"]
    known, (last_seq, _) = checkpoints.newest_cut(), checkpoints.head()
    if first is None:
        return Cut(0, 0, "", 0)
    begun = known.seq if known is not None else 0
    end = AuditEvent.objects.filter(seq=min(before_seq, last_seq) - 1).values_list("seq", "hash", "at").first()
    if end is not None and end[0] > begun:
        begun, digest = end[0], end[1]
        details = {"first": first, "last": begun, "hash": digest, "events": begun - first + 1}
        note = {"first": str(first), "until": stamp(end[2])}
        event = Event(
            AuditAction.AUDIT_CUT, AuditOutcome.OK, actor, subject=f"events {first} to {begun}", details=details
        )
        in_turn(lambda: checkpoints.sign(StatementKind.CUT, begun, digest, **note), lambda _: [event])
    elif known is None or first > begun:
        return Cut(first, begun, known.hash if known is not None else "", 0)
    else:
        digest = known.hash
    total = begun - first + 1
    removed = _remove(AuditEvent.objects.filter(seq__lte=begun).order_by("seq"), total, on_batch)
    older = Checkpoint.objects.filter(kind__in=[StatementKind.REGULAR, StatementKind.CUT], seq__lt=begun)
    _remove(older.order_by("pk"), total, lambda _done, total: on_batch(removed, total))
    return Cut(first, begun, digest, removed)


def require_no_alarm() -> None:
    """Raises CutRefused, and KeyMissing."""
    if AuditAlarm.objects.filter(acknowledged_at=None).exists() or checkpoints.misfits():
        raise CutRefused("The audit log has an open alarm, so no events are removed. Acknowledge the alarm first.")


def _remove(rows: QuerySet[Any], total: int, on_batch: Callable[[int, int], None]) -> int:
    removed, after, batches = 0, 0, Batches(_FIRST_BATCH)
    while keys := list(rows.filter(pk__gt=after).values_list("pk", flat=True)[: batches.size]):
        batches.each(keys, partial(_delete, rows.model))
        removed, after = removed + len(keys), keys[-1]
        on_batch(removed, total)
    return removed


def _delete(model: type[Model], keys: Sequence[int]) -> None:
    """A plain DELETE: the rows have neither signals nor relations. A range of keys needs no list of parameters. Without
    the lower bound, PostgreSQL would also read all rows that were deleted before but that an older transaction, such as
    a backup, may still see."""
    rows = model._default_manager.all()
    rows = rows.filter(pk__range=(keys[0], keys[-1])) if model is AuditEvent else rows.filter(pk__in=keys)
    rows._raw_delete(rows.db)
