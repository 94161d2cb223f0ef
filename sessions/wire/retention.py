"""Limits the size of recorded messages: keeps the newest ones of each server. sessions.retention limits their age."""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from django.conf import settings
from django.db.models import OuterRef, Subquery

from servers.audit.batches import Batches
from servers.enums import IdentityKind
from sessions.models import McpSession, WireMessage

#: rows that the writer removes at once, while a call waits
BATCH = 1_000
#: number of a server's sessions whose oldest rows are compared at the same time
_COMPARED = 8
_STEPS = 64


class LogKey(NamedTuple):
    """Identifies a log. The shared identity has no `identity_id`."""

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
    """Remove at most BATCH rows over the server's size limit, each time a log has grown by a small part of it. Runs in
    the current transaction."""
    step = max(1, limit() // _STEPS)
    if before[1] // step != now[1] // step:
        _remove(_over(logs(key.server_id), BATCH))


def limit() -> int:
    """Maximum bytes of all logs of one server."""
    return int(settings.WIRE_MIB * 1024 * 1024)


def trim_all(on_progress: Callable[[], None] = lambda: None) -> int:
    """Remove what exceeds the size limit of its server, in small transactions. Returns the number of rows."""
    removed, batches = 0, Batches()
    for server_id, found in groupby(logs(), lambda log: log.key.server_id):
        while keys := _over(list(found), min(BATCH, batches.size)):
            batches.each(keys, _remove)
            removed += len(keys)
            found = iter(logs(server_id))
            on_progress()
    return removed


def _remove(keys: Sequence[int]) -> None:
    if keys:
        WireMessage.objects.filter(pk__in=keys).delete()


def _over(found: "list[LogSize]", most: int) -> list[int]:
    """The oldest rows of a server that must be removed, at most `most`; the newest row of each log stays."""
    over = sum(log.bytes for log in found) - limit()
    if over <= 0:
        return []
    candidates: list[tuple[int, int]] = []
    long = [log for log in found if log.bytes]
    for log in sorted(long, key=lambda log: log.first)[:_COMPARED]:
        rows = WireMessage.objects.filter(**log.key.columns).order_by("seq").values_list("pk", "position")
        candidates += [(key, end - position) for (key, position), (_, end) in pairwise(rows[: most + 1])]
    going = []
    for key, freed in sorted(candidates)[:most]:
        if over <= 0:
            break
        going.append(key)
        over -= freed
    return going


class LogSize(NamedTuple):
    """`first` is the key of the oldest row, which `bytes` does not include."""

    key: LogKey
    first: int
    bytes: int
    rows: int


def logs(server_id: int | None = None) -> list[LogSize]:
    """The size of each log that has messages, of one server or of all, by server. Needs two lookups per session,
    whatever the length of its log."""
    found = []
    for kind in (IdentityKind.SHARED, IdentityKind.PERSONAL):
        identity = None if kind == IdentityKind.SHARED else OuterRef("identity")
        rows = WireMessage.objects.filter(server=OuterRef("server"), identity=identity)
        ends = {
            f"{end}_{name}": Subquery(rows.order_by(order).values(name)[:1])
            for end, order in (("oldest", "seq"), ("newest", "-seq"))
            for name in ("pk", "seq", "position")
            if (end, name) != ("newest", "pk")
        }
        sessions = McpSession.objects.filter(identity__kind=kind).annotate(**ends)
        if server_id is not None:
            sessions = sessions.filter(server=server_id)
        for row in sessions.order_by().values_list("server_id", "identity_id", *ends):
            of_server, identity_id, key, first, start, last, end = row
            if key is not None:
                log = LogKey(of_server, None if kind == IdentityKind.SHARED else identity_id)
                found.append(LogSize(log, key, end - start, last - first + 1))
    return sorted(found, key=lambda log: log.key.server_id)
