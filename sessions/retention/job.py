"""The background job: measure, plan, record what will go, remove. And the dry run, which stops after the plan."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from servers.audit.proof import cuts, removals
from servers.audit.proof.checkpoints import KeyReplaced
from servers.audit.proof.cuts import CutRefused
from servers.audit.proof.key import KeyMissing
from servers.audit.record import SYSTEM, Event
from servers.audit.spare import in_turn
from servers.enums import AuditAction, AuditOutcome
from servers.forwarding.board import needed_from
from servers.jobs.lifecycle import JobOutcome, counted
from servers.jobs.running import JobProgress
from servers.kit.words import byte_words
from sessions.enums import StoredKind
from sessions.retention import batched_deletes, ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.limits import limits
from sessions.retention.plan import Removal, plan

#: an event of the request is a little younger than its row
_MARGIN = timedelta(minutes=1)
#: payloads go with their calls
_ALLOWED: Mapping[StoredKind, tuple[removals.Rows, ...]] = {
    StoredKind.CALLS: ("calls", "payloads"),
    StoredKind.PAYLOADS: ("payloads",),
}


def run(progress: JobProgress, now: datetime | None = None) -> JobOutcome:
    """Safe to start over: what is gone is not planned again."""
    found = _planned(progress, now)
    if not found:
        return JobOutcome(True, "Measured. Nothing exceeds its limit.")
    event = Event(AuditAction.RETENTION_RUN, AuditOutcome.OK, SYSTEM, subject="retention", details=_details(found))
    in_turn(_nothing, lambda _: [event])
    total, gone = sum(removal.rows for removal in found), 0
    removed: dict[str, int] = {}
    for removal in found:
        try:
            count = _remove(removal, partial(_report, progress, gone, total))
        except (KeyMissing, KeyReplaced, CutRefused) as problem:
            return JobOutcome(False, f"Stopped at {removal.kind.label.lower()}. {problem}", {"removed": removed})
        gone += count
        removed[removal.kind.value] = count
    words = [f"{removal.kind.label.lower()}: {removed[removal.kind.value]:,}" for removal in found]
    return JobOutcome(True, f"Removed {', '.join(words)}.", {"removed": removed})


def dry_run(progress: JobProgress, now: datetime | None = None) -> JobOutcome:
    found = _planned(progress, now)
    result: dict[str, Any] = {"would_remove": _details(found)}
    if not found:
        return JobOutcome(True, "Nothing exceeds its limit.", result)
    rows, size = sum(removal.rows for removal in found), sum(removal.bytes for removal in found)
    return JobOutcome(True, f"Would remove {counted(rows, 'row')}, {byte_words(size)}.", result)


def _nothing() -> None:
    """The event alone is written."""


def _planned(progress: JobProgress, now: datetime | None) -> list[Removal]:
    ledger.measure_all(now, lambda rows: progress(0))
    return [removal for removal in plan(limits(), now) if batched_deletes.finds_any(removal)]


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
    """The verification then accepts that they are missing."""
    removals.allow(rows, min(removal.before + _MARGIN, timezone.now()))


def _cut(removal: Removal, on_progress: Callable[[int], None]) -> int:
    """What a sink or a schedule of exports has not received yet stays: a sink that stands still raises an alarm, the page
    shows a schedule whose exports fail, and pausing either lets the events go."""
    needed = needed_from()
    end = removal.last if needed is None else min(removal.last, needed - 1)
    cut = cuts.cut(end + 1, on_batch=lambda done, total: on_progress(done))
    ledger.recount(stored_kinds()[StoredKind.EVENTS], removal.first, removal.last)
    return cut.removed
