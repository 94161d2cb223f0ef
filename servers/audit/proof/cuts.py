"""Cuts: the retention removes the oldest events and leaves a signed statement of what it removed.

The trigger of the events lets go only what a cut covers. Signed before the first event goes, so that an interruption
leaves a chain that verifies: the rest of the removed events still leads to the cut.
"""

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from django.db.models import Min, Model, QuerySet

from servers.audit.proof import checkpoints
from servers.audit.proof.notes import stamp
from servers.audit.record import SYSTEM, Actor, Event
from servers.audit.writer import AuditUnavailable, writer
from servers.enums import AuditAction, AuditOutcome, StatementKind
from servers.models import AuditAlarm, AuditEvent, Checkpoint

#: a batch is made smaller or larger so that it takes about so long; every writer waits for it
BATCH_SECONDS = 0.015
_FIRST_BATCH, _LARGEST_BATCH = 100, 2_000
#: after a batch, calls have the turn for so many times as long as it took
_REST = 3
_WAIT_SECONDS = 60.0


class CutRefused(Exception):
    """The message is for a page."""


@dataclass(frozen=True)
class Cut:
    """Removed were the events `first` to `seq`, both included; `hash` is that of the last one. `removed` is 0 if there was nothing to do."""

    first: int
    seq: int
    hash: str
    removed: int


def cut(before_seq: int, actor: Actor = SYSTEM, on_batch: Callable[[int, int], None] = lambda done, total: None) -> Cut:
    """Remove all events before `before_seq`, in transactions of at most 50 ms each, and record that as an event.

    The head's event always stays. A second call finishes what an interrupted one left. Not inside of `atomic()`.
    `on_batch(removed, total)` is called between two transactions; what it raises ends the cut there. Raises AuditUnavailable when
    the database refuses, KeyMissing and KeyReplaced without the checkpoint key, CutRefused while an alarm stands.
    """
    if AuditAlarm.objects.filter(acknowledged_at=None).exists() or checkpoints.misfits():
        raise CutRefused(
            "Something does not fit the audit log, so nothing of it is removed. See the alarm on every page."
        )
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
        _written(lambda: checkpoints.sign(StatementKind.CUT, begun, digest, **note), [event])
    elif known is None or first > begun:
        return Cut(first, begun, known.hash if known is not None else "", 0)
    else:
        digest = known.hash
    total = begun - first + 1
    removed = _remove(AuditEvent.objects.filter(seq__lte=begun).order_by("seq"), total, on_batch)
    older = Checkpoint.objects.filter(kind__in=[StatementKind.REGULAR, StatementKind.CUT], seq__lt=begun)
    _remove(older.order_by("pk"), total, lambda _done, total: on_batch(removed, total))
    return Cut(first, begun, digest, removed)


def _remove(rows: QuerySet[Any], total: int, on_batch: Callable[[int, int], None]) -> int:
    removed, size = 0, _FIRST_BATCH

    def write() -> tuple[int, float]:
        began = time.monotonic()
        batch = list(rows.values_list("pk", flat=True)[:size])
        if batch:
            _delete(rows.model, batch)
        return len(batch), time.monotonic() - began

    while True:
        count, took = _written(write)
        removed += count
        if not count:
            return removed
        on_batch(removed, total)
        time.sleep(_REST * took)
        size = max(1, min(_LARGEST_BATCH, int(size * BATCH_SECONDS / max(took, 0.000_1)), size * 2))


def _delete(model: type[Model], keys: list[int]) -> None:
    """A plain DELETE: the rows have neither signals nor relations. Those of a range need no list of parameters."""
    rows = model._default_manager.all()
    rows = rows.filter(pk__lte=keys[-1]) if model is AuditEvent else rows.filter(pk__in=keys)
    rows._raw_delete(rows.db)


def _written(work: Callable[[], Any], events: list[Event] | None = None) -> Any:
    """By the writer, when no call waits for it: it takes turns with the writers of the other processes."""
    future = writer().submit(work, (lambda _: events) if events else None, spare=not events)
    try:
        return future.result(_WAIT_SECONDS)
    except FutureTimeout as exc:
        raise AuditUnavailable("The audit log could not be written in time. Try again later.") from exc
