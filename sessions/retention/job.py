"""The background job: measure, plan, record what will be removed, remove. The dry run stops after the plan."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from servers import instance
from servers.audit.batches import in_turn
from servers.audit.proof import cuts, removals
from servers.audit.proof.checkpoints import KeyReplaced
from servers.audit.proof.cuts import CutRefused
from servers.audit.proof.key import KeyMissing
from servers.audit.record import SYSTEM, Event
from servers.enums import AuditAction, AuditOutcome
from servers.forwarding.board import needed_from
from servers.jobs.lifecycle import JobOutcome
from servers.jobs.running import JobProgress
from servers.kit.words import format_bytes, format_count
from servers.models import AuditEvent
from sessions.enums import StoredKind
from sessions.retention import batched_deletes, ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.limits import limits
from sessions.retention.plan import Removal, plan

#: a request's event is slightly newer than its row
_MARGIN = timedelta(minutes=1)
#: payloads are removed with their calls
_ALLOWED: Mapping[StoredKind, tuple[removals.Rows, ...]] = {
    StoredKind.CALLS: ("calls", "payloads"),
    StoredKind.PAYLOADS: ("payloads",),
}
_ON_HOLD = "This instance is on hold. Nothing is removed until an administrator releases it."


def run(progress: JobProgress, now: datetime | None = None) -> JobOutcome:
    """Safe to restart: removed rows are not planned again. A copy of an installation that is on hold keeps everything:
    it may have been restored for data older than the limits, and the original signs its removals with the same key."""
    if instance.is_held():
        return JobOutcome(False, _ON_HOLD)
    found = _planned(progress, now)
    if not found:
        return JobOutcome(True, "Measured. Nothing exceeds its limit.")
    stopped: dict[str, list[str]] = {}
    if any(removal.kind == StoredKind.EVENTS for removal in found):
        try:
            cuts.require_no_alarm()  # before the event says that they are removed
        except (KeyMissing, CutRefused) as problem:
            stopped[str(problem)] = [StoredKind.EVENTS.label.lower()]
            found = [removal for removal in found if removal.kind != StoredKind.EVENTS]
    removed = _remove_all(progress, found, stopped) if found else {}
    words = [f"{StoredKind(kind).label.lower()}: {count:,}" for kind, count in removed.items()]
    told = [f"Removed {', '.join(words)}."] if words else []
    told += [f"Not removed: {', '.join(labels)}. {problem}" for problem, labels in stopped.items()]
    return JobOutcome(not stopped, " ".join(told), {"removed": removed})


def _remove_all(progress: JobProgress, found: list[Removal], stopped: dict[str, list[str]]) -> dict[str, int]:
    """The number of rows removed of each kind. A problem with one kind goes to `stopped` and does not affect others."""
    event = Event(AuditAction.RETENTION_RUN, AuditOutcome.OK, SYSTEM, subject="retention", details=_details(found))
    in_turn(_nothing, lambda _: [event])
    total, gone = sum(removal.rows for removal in found), 0
    removed: dict[str, int] = {}
    for removal in found:
        try:
            count = _remove(removal, partial(_report, progress, gone, total))
        except (KeyMissing, KeyReplaced, CutRefused) as problem:
            stopped.setdefault(str(problem), []).append(removal.kind.label.lower())
            continue
        gone += count
        removed[removal.kind.value] = count
    return removed


def dry_run(progress: JobProgress, now: datetime | None = None) -> JobOutcome:
    found = _planned(progress, now)
    result: dict[str, Any] = {"would_remove": _details(found)}
    if not found:
        return JobOutcome(True, "Nothing exceeds its limit.", result)
    rows, size = sum(removal.rows for removal in found), sum(removal.bytes for removal in found)
    return JobOutcome(True, f"Would remove {format_count(rows, 'row')}, {format_bytes(size)}.", result)


def _nothing() -> None:
    """Writes nothing besides the event."""


def _planned(progress: JobProgress, now: datetime | None) -> list[Removal]:
    ledger.measure_all(now, lambda rows: progress(0))
    found = [_without_needed(removal) for removal in plan(limits(), now)]
    return [removal for removal in found if batched_deletes.finds_any(removal)]


def _without_needed(removal: Removal) -> Removal:
    """The removal, limited to the events that `_cut` removes if it is of events."""
    last = _last_not_needed(removal) if removal.kind == StoredKind.EVENTS else removal.last
    if last == removal.last:
        return removal
    events = AuditEvent.objects.order_by("seq")
    first = events.values_list("seq", flat=True).first() or removal.first
    rows = max(0, last - max(first, removal.first) + 1)
    before = events.filter(seq=last).values_list("at", flat=True).first() or removal.before
    size = round(removal.bytes * rows / max(1, removal.rows))
    return Removal(removal.kind, removal.first, last, before, rows, size)


def _last_not_needed(removal: Removal) -> int:
    needed = needed_from()
    return removal.last if needed is None else min(removal.last, needed - 1)


def _details(found: list[Removal]) -> dict[str, Any]:
    return {
        removal.kind.value: {"before": removal.before.isoformat(), "rows": removal.rows, "bytes": removal.bytes}
        for removal in found
    }


def _report(progress: JobProgress, before: int, total: int, rows: int) -> None:
    progress(before + rows, max(total, before + rows))


def _remove(removal: Removal, on_progress: Callable[[int], None]) -> int:
    for rows in _ALLOWED.get(removal.kind, ()):
        _allow(rows, removal)
    if removal.kind == StoredKind.EVENTS:
        return _cut(removal, on_progress)
    return batched_deletes.trim(removal, on_progress)


def _allow(rows: removals.Rows, removal: Removal) -> None:
    """Make verification accept that these rows are missing."""
    removals.allow(rows, min(removal.before + _MARGIN, timezone.now()))


def _cut(removal: Removal, on_progress: Callable[[int], None]) -> int:
    """Keeps events that a sink or an export schedule has not received yet. A stalled sink raises an alarm, the page
    shows a schedule whose exports fail, and pausing either one lets the events be removed."""
    cut = cuts.cut(_last_not_needed(removal) + 1, on_batch=lambda done, total: on_progress(done))
    ledger.recount(stored_kinds()[StoredKind.EVENTS], removal.first, removal.last)
    return cut.removed
