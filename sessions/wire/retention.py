"""How much of the wire is kept: the newest messages of each session, by size. sessions.retention limits their age."""

from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings
from django.db.models import OuterRef, Subquery

from servers.enums import IdentityKind
from sessions.models import McpSession, WireMessage

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
    """Remove what is over the size of its log, in small transactions. Returns the number of rows."""
    removed = 0
    for log in logs():
        while log.bytes > limit() and (count := _trim(log.key, log.position)):
            removed += count
            on_progress()
    return removed


class LogSize(NamedTuple):
    """`position` is that of the newest row. `bytes` leaves out the oldest row."""

    key: LogKey
    position: int
    bytes: int
    rows: int


def logs() -> list[LogSize]:
    """The size of each log that has messages, found by its ends: two look-ups a session, whatever its length."""
    found = []
    for kind in (IdentityKind.SHARED, IdentityKind.PERSONAL):
        identity = None if kind == IdentityKind.SHARED else OuterRef("identity")
        rows = WireMessage.objects.filter(server=OuterRef("server"), identity=identity)
        ends = {
            f"{end}_{name}": Subquery(rows.order_by(order).values(name)[:1])
            for end, order in (("oldest", "seq"), ("newest", "-seq"))
            for name in ("seq", "position")
        }
        sessions = McpSession.objects.filter(identity__kind=kind).annotate(**ends)
        for row in sessions.values_list("server_id", "identity_id", *ends):
            server_id, identity_id, first, start, last, end = row
            if first is None:
                continue
            key = LogKey(server_id, None if kind == IdentityKind.SHARED else identity_id)
            found.append(LogSize(key, end, end - start, last - first + 1))
    return found
