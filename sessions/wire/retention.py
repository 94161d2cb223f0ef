"""How much of the wire is kept: the newest messages of each session, by size and age."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Count, Max, Min, Sum
from django.db.models.functions import Length
from django.utils import timezone

from sessions.models import WireMessage

#: rows per transaction: a call waits for it
BATCH = 1_000
_STEPS = 64


class LogKey(NamedTuple):
    """Which log: the shared identity has no identity."""

    server_id: int
    identity_id: int | None

    @property
    def columns(self) -> dict[str, int | None]:
        return {"server_id": self.server_id, "identity_id": self.identity_id}


def newest(key: LogKey) -> tuple[int, int]:
    """Number and position of the newest row; zeros before the first one."""
    rows = WireMessage.objects.filter(**key.columns).order_by("-seq").values_list("seq", "position")
    return rows.first() or (0, 0)


def trim(key: LogKey, before: tuple[int, int], now: tuple[int, int]) -> None:
    """Remove what is over the size, at most BATCH rows, each time the log has grown by a small part of it. In the current
    transaction."""
    step = max(1, limit() // _STEPS)
    if before[1] // step != now[1] // step:
        _trim(key, now[1])


def limit() -> int:
    """Bytes of one log."""
    return int(settings.WIRE_MIB * 1024 * 1024)


def _trim(key: LogKey, position: int) -> int:
    """Returns how many rows were removed: BATCH if there may be more."""
    rows = WireMessage.objects.filter(**key.columns).order_by("seq")
    oldest = list(rows.values_list("seq", "position")[: BATCH + 1])
    over = [seq for seq, end in oldest if end <= position - limit()][:BATCH]
    return rows.filter(seq__lte=over[-1]).delete()[0] if over else 0


def trim_all(on_progress: Callable[[], None] = lambda: None) -> int:
    """Remove what is too old or over the size of its log, in small transactions. Returns the number of rows."""
    removed = 0
    while count := _forget(timezone.now() - timedelta(days=settings.WIRE_DAYS)):
        removed += count
        on_progress()
    for key, position in _logs():
        while count := _trim(key, position):
            removed += count
            on_progress()
    return removed


def _forget(before: datetime) -> int:
    old = WireMessage.objects.filter(at__lt=before).order_by("at").values_list("pk", flat=True)
    return WireMessage.objects.filter(pk__in=list(old[:BATCH])).delete()[0]


def _logs() -> list[tuple[LogKey, int]]:
    """Logs that are over their size, with the position of their newest row."""
    logs = WireMessage.objects.order_by().values("server_id", "identity_id")
    ends = logs.annotate(newest=Max("position"), oldest=Min("position"))
    return [
        (LogKey(row["server_id"], row["identity_id"]), row["newest"])
        for row in ends
        if row["newest"] - row["oldest"] > limit()
    ]


def usage() -> dict[str, Any]:
    """What all recorded messages take: rows, and the bytes of their texts."""
    texts = Sum(Length("body") + Length("headers") + Length("target") + Length("detail"))
    return WireMessage.objects.aggregate(rows=Count("pk"), bytes=texts, oldest=Min("at"))
