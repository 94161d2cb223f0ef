"""What pages show about sinks: state, lag, and the warning when one has stalled."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import BigIntegerField, Case, Count, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum, When
from django.utils import timezone

from servers.audit import query
from servers.forwarding.sinks import where
from servers.kit.words import Look
from servers.models import AuditEvent, ExportSchedule, Sink

_PAUSED = Look("Paused", "", "player-pause")
_WAITING = Look("Up to date", "ok", "circle-check")
_BEHIND = Look("Catching up", "run", "loader-2")
_FAILING = Look("Failing", "warn", "alert-triangle")
_STALLED = Look("Stalled", "bad", "circle-x")


@dataclass(frozen=True)
class SinkRow:
    """`waiting`: events not delivered yet. `waiting_since`: when the oldest of them happened."""

    sink: Sink
    waiting: int
    waiting_since: datetime | None
    now: datetime
    log_ends_before: bool
    """The log ends before the last event forwarded: it was cut off, or replaced."""

    @property
    def look(self) -> Look:
        if self.sink.paused_at is not None:
            return _PAUSED
        if self.stalled:
            return _STALLED
        if self.sink.failing_since is not None:
            return _FAILING
        return _BEHIND if self.waiting else _WAITING

    @property
    def stalled(self) -> bool:
        """Nothing has been delivered for this long although events wait: it fails, or no worker runs."""
        limit = self.now - timedelta(seconds=settings.FORWARDING_ALERT_SECONDS)
        waits = self.waiting_since is not None and self.waiting_since < limit
        failing = self.sink.failing_since
        waits = waits or (self.log_ends_before and failing is not None and failing < limit)
        delivered = self.sink.delivered_at is not None and self.sink.delivered_at >= limit
        young = self.sink.created_at >= limit
        return self.sink.paused_at is None and waits and not delivered and not young

    @property
    def where(self) -> str:
        return where(self.sink)

    @property
    def waiting_words(self) -> str:
        return f"{self.waiting:,}"

    @property
    def delivered_words(self) -> str:
        return f"{self.sink.delivered:,}"

    @property
    def test_waits(self) -> bool:
        return self.sink.test_requested_at is not None and self.sink.test_ended_at is None


def rows() -> list[SinkRow]:
    return _rows(Sink.objects.all())


def row_of(sink: Sink) -> SinkRow:
    return _rows(Sink.objects.filter(pk=sink.pk))[0]


def quiet() -> "QuerySet[Sink]":
    """Sinks to which nothing was delivered for so long that they may have stalled, if events wait for them."""
    limit = timezone.now() - timedelta(seconds=settings.FORWARDING_ALERT_SECONDS)
    undelivered = Q(delivered_at=None) | Q(delivered_at__lt=limit)
    return Sink.objects.filter(undelivered, paused_at=None, created_at__lt=limit)


def stalled() -> list[SinkRow]:
    """For the warning on every page for administrators."""
    return [row for row in _rows(quiet()) if row.stalled]


def mark() -> str:
    """A value that differs after any change."""
    counted = Sink.objects.order_by().aggregate(
        Count("pk"), Count("paused_at"), Count("failing_since"), Sum("delivered"), Sum("failures"), Sum("fence"),
        Max("test_ended_at"), Max("test_requested_at"),
    )  # fmt: skip
    return ".".join("" if value is None else str(value) for value in counted.values())


def needed_from() -> int | None:
    """The number of the oldest event that a sink or an export schedule still needs: retention may keep it. None if
    there is none. Paused ones block nothing. One whose cursor is beyond the log has received nothing of this log."""
    beyond = When(cursor__gt=query.head_seq(), then=0)
    kinds: tuple[type[Sink | ExportSchedule], ...] = (Sink, ExportSchedule)
    cursors = [
        kind._default_manager.filter(paused_at=None).aggregate(
            least=Min(Case(beyond, default="cursor", output_field=BigIntegerField()))
        )["least"]
        for kind in kinds
    ]
    return min((cursor + 1 for cursor in cursors if cursor is not None), default=None)


def _rows(found: "QuerySet[Sink]") -> list[SinkRow]:
    following = AuditEvent.objects.filter(seq__gt=OuterRef("cursor")).order_by("seq")
    sinks = list(found.annotate(waiting_since=Subquery(following.values("at")[:1])))
    if not sinks:
        return []
    head, now = query.head_seq(), timezone.now()
    return [SinkRow(sink, max(0, head - sink.cursor), sink.waiting_since, now, head < sink.cursor) for sink in sinks]
