"""The life of a batch: claimed, read, sent by a worker, and its end in the sink's row.

A conditional UPDATE gives a sink to one worker, with a fence that grows each time. The cursor moves after the receiver has
confirmed. A worker that dies in between leaves the batch to the next one, which sends it again: every record has its
number, so the receiver sees the repeat.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from servers import instance
from servers.audit.record import SYSTEM, Event
from servers.enums import AuditAction, AuditOutcome, SinkKind
from servers.forwarding import sinks
from servers.forwarding.records import Record, Source
from servers.forwarding.sinks import Secrets
from servers.jobs.lifecycle import announce
from servers.models import AuditEvent, AuditHead, Sink

#: events and bytes of one batch; the first event is sent whatever its size
EVENTS: Final = 500
BYTES: Final = 1_000_000
#: after this many failures in a row, a batch is one event
MOST_HALVINGS: Final = EVENTS.bit_length()
#: length of a lease: longer than an attempt may take
LEASE: Final = timedelta(seconds=60)
#: seconds before the attempts after a failure: doubled each time, scaled by TIME_SCALE, cut at random by half at most
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
#: what a receiver may ask for (Retry-After)
LONGEST_RETRY_AFTER: Final = 300.0
DETAIL_CHARS: Final = 500
#: the log was restored to an older state, or rebuilt: the receiver has events that this log does not have
DIVERGED: Final = (
    "The log does not continue from event {seq}, the last one forwarded: it was restored or replaced. "
    "Check the audit log, then choose the event to forward from."
)


@dataclass(frozen=True)
class Claimed:
    """A sink that this worker has claimed. `halvings`: how often its batch is halved. `asked`: when the waiting test
    was requested. `secrets` are decrypted; never log it."""

    pk: int
    uid: UUID
    fence: int
    kind: SinkKind
    address: str
    lines: bool
    header: str
    ca: str
    certificate: str
    cursor: int
    cursor_hash: str
    halvings: int
    test: bool
    forward: bool
    asked: datetime | None
    secrets: Secrets = field(repr=False)


@dataclass(frozen=True)
class Batch:
    """`skipped`: how many events before the first one are gone. `full`: more may follow at once."""

    records: Sequence[Record]
    skipped: int
    full: bool

    @property
    def last(self) -> Record:
        return self.records[-1]

    def half(self) -> "Batch":
        return Batch(self.records[: len(self.records) // 2], self.skipped, True)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `rejected`: records that the receiver reports as dropped."""

    delivered: bool
    detail: str = ""
    retry_after: float | None = None
    rejected: int = 0


@dataclass(frozen=True)
class Ended:
    """`claimed` None: the sink is not ours any more, or waits for its next attempt."""

    claimed: Claimed | None
    events: list[Event]


def source() -> Source:
    return Source(settings.INSTANCE_NAME, urlsplit(settings.PUBLIC_URL).hostname or "mcpadmin", settings.VERSION)


# --- claiming -----------------------------------------------------------------------------------------------------------
def due() -> list[int]:
    """Only reads. A held copy of an installation forwards nothing: the original does."""
    now = timezone.now()
    test_waits = Q(test_requested_at__isnull=False, test_ended_at=None)
    news = Q(Exists(AuditEvent.objects.order_by().filter(seq__gt=OuterRef("cursor"))))
    runs_backwards = Q(Exists(AuditHead.objects.filter(seq__lt=OuterRef("cursor"))))
    rows = Sink.objects.filter(_free(now)).filter(test_waits | _may_forward(now) & (news | runs_backwards))
    found = list(rows.values_list("pk", flat=True))
    return found if found and not instance.is_held() else []


def _free(now: datetime) -> Q:
    """A lease that ends far later than one taken now was taken before the clock was set back. The same is true of
    attempts."""
    return Q(lease_until=None) | Q(lease_until__lt=now) | Q(lease_until__gt=now + 2 * LEASE)


def _may_forward(now: datetime) -> Q:
    later = now + timedelta(seconds=2 * settings.TIME_SCALE * LONGEST_RETRY_AFTER)
    due = Q(next_attempt_at=None) | Q(next_attempt_at__lte=now) | Q(next_attempt_at__gt=later)
    return Q(paused_at=None) & due


def claim(pk: int) -> Claimed | None:
    """None if another worker has it. Raises crypto.SealError."""
    now = timezone.now()
    if not Sink.objects.filter(_free(now), pk=pk).update(fence=F("fence") + 1, lease_until=now + LEASE):
        return None
    sink = Sink.objects.get(pk=pk)
    return Claimed(
        pk=pk,
        uid=sink.uid,
        fence=sink.fence,
        kind=SinkKind(sink.kind),
        address=sink.address,
        lines=sink.lines,
        header=sink.header,
        ca=sink.ca,
        certificate=sink.certificate,
        cursor=sink.cursor,
        cursor_hash=sink.cursor_hash,
        halvings=min(sink.failures, MOST_HALVINGS),
        test=sink.test_requested_at is not None and sink.test_ended_at is None,
        forward=Sink.objects.filter(_may_forward(now), pk=pk).exists(),
        asked=sink.test_requested_at,
        secrets=sinks.opened(sink),
    )


def not_opened(pk: int, detail: str) -> list[Event]:
    """The claim failed because the key ring cannot open the sink's secrets."""
    sink = Sink.objects.get(pk=pk)
    announce()
    Sink.objects.filter(pk=pk, test_ended_at=None).exclude(test_requested_at=None).update(
        test_ended_at=timezone.now(), test_ok=False, test_detail=detail[:DETAIL_CHARS]
    )
    return _failed(sink, Outcome(False, detail)) if sink.paused_at is None else []


def renewed(claimed: Claimed) -> bool:
    """Renew the lease for another attempt. False if the sink is no longer ours."""
    return bool(_ours(claimed).update(lease_until=timezone.now() + LEASE))


def release(claimed: Claimed) -> None:
    _ours(claimed).update(lease_until=None)


# --- a batch ------------------------------------------------------------------------------------------------------------
def next_batch(claimed: Claimed) -> "Batch | str | None":
    """None if nothing is left; a text if the log does not continue from the cursor. Only reads.

    Half as much after each failure: a receiver that is too slow for a batch would otherwise get the same one for
    ever."""
    known = AuditEvent.objects.filter(seq=claimed.cursor).values_list("hash", flat=True).first()
    head = AuditHead.objects.values_list("seq", flat=True).first() or 0
    if head < claimed.cursor or (claimed.cursor_hash and known is not None and known != claimed.cursor_hash):
        return DIVERGED.format(seq=claimed.cursor)
    following = AuditEvent.objects.filter(seq__gt=claimed.cursor).order_by("seq")
    most, most_bytes = max(1, EVENTS >> claimed.halvings), BYTES >> claimed.halvings
    rows = following.values_list("seq", "hash", "body", "at", "action", "outcome")[:most]
    records: list[Record] = []
    size = 0
    for row in rows:
        record = Record(*row)
        size += len(record.body)
        if records and size > most_bytes:
            return Batch(records, records[0].seq - claimed.cursor - 1, True)
        records.append(record)
    return Batch(records, records[0].seq - claimed.cursor - 1, len(records) == most) if records else None


def ended(claimed: Claimed, batch: Batch, outcome: Outcome) -> Ended:
    """Runs in the writer's transaction."""
    sink = _ours(claimed).first()
    if sink is None:
        return Ended(None, [])
    if not outcome.delivered:
        return Ended(None, _failed(sink, outcome))
    now, last = timezone.now(), batch.last
    # the sink may have been taken away since it was read
    still_ours = _ours(claimed).update(
        cursor=last.seq,
        cursor_hash=last.hash,
        delivered_at=now,
        delivered=F("delivered") + len(batch.records),
        skipped=F("skipped") + batch.skipped,
        rejected=F("rejected") + outcome.rejected,
        lease_until=now + LEASE,
        failures=0,
        failing_since=None,
        next_attempt_at=None,
        stalled_at=None,
        last_detail=outcome.detail[:DETAIL_CHARS],
    )
    if not still_ours:
        return Ended(None, [])
    announce()
    events = []
    if batch.skipped:
        first = batch.records[0].seq
        gap = {"first": first - batch.skipped, "last": first - 1}
        events.append(_event(AuditAction.SINK_SKIP, AuditOutcome.FAILED, sink, gap))
    if sink.stalled_at is not None:
        seconds = round((now - sink.stalled_at).total_seconds())
        events.append(_event(AuditAction.SINK_RECOVER, AuditOutcome.OK, sink, {"stood_still_seconds": seconds}))
    further = {"cursor": last.seq, "cursor_hash": last.hash, "halvings": max(0, claimed.halvings - 1)}
    goes_on = Claimed(**(vars(claimed) | further))
    return Ended(goes_on if sink.paused_at is None else None, events)


def diverged(claimed: Claimed, detail: str) -> Ended:
    sink = _ours(claimed).first()
    return Ended(None, _failed(sink, Outcome(False, detail)) if sink else [])


def tested(claimed: Claimed, outcome: Outcome) -> None:
    """Does nothing if the sink was changed since, or another test was requested, which goes to the sink as it is
    now."""
    words = {"test_ok": outcome.delivered, "test_detail": outcome.detail[:DETAIL_CHARS]}
    waiting = _ours(claimed).filter(test_requested_at=claimed.asked, test_ended_at=None)
    waiting.update(test_ended_at=timezone.now(), **words)
    announce()


# --- failing ------------------------------------------------------------------------------------------------------------
def _failed(sink: Sink, outcome: Outcome) -> list[Event]:
    now = timezone.now()
    since = sink.failing_since or now
    stalls = sink.stalled_at is None and now - since >= timedelta(seconds=settings.FORWARDING_ALERT_SECONDS)
    as_read = Sink.objects.filter(pk=sink.pk, fence=sink.fence).update(
        failures=F("failures") + 1,
        failing_since=since,
        next_attempt_at=now + delay(sink.failures, outcome.retry_after),
        last_detail=outcome.detail[:DETAIL_CHARS],
        lease_until=None,
        **({"stalled_at": now} if stalls else {}),
    )
    announce()
    if not (as_read and stalls):
        return []
    details = {"since": since.isoformat(), "last": sink.cursor, "detail": outcome.detail[:DETAIL_CHARS]}
    return [_event(AuditAction.SINK_STALL, AuditOutcome.FAILED, sink, details)]


def delay(failures: int, retry_after: float | None = None) -> timedelta:
    """The delay before the next attempt, after one more failure than this many in a row."""
    longest = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures, 10))
    seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads attempts, guards nothing
    return timedelta(seconds=settings.TIME_SCALE * max(seconds, min(retry_after or 0.0, LONGEST_RETRY_AFTER)))


def _event(action: AuditAction, outcome: AuditOutcome, sink: Sink, details: dict[str, Any]) -> Event:
    return Event(action, outcome, SYSTEM, subject=sink.name, details={"address": sinks.where(sink), **details})


def _ours(claimed: Claimed) -> Any:
    return Sink.objects.filter(pk=claimed.pk, fence=claimed.fence)
