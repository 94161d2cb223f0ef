"""The log of each session in the database: its newest KEPT lines, numbered without gaps by the session's owner.

The lines of the shared identity's log have no identity.
"""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max

from sessions import hints
from sessions.connections.lifecycle import Lease, held
from sessions.host.logs.line import ServerLogLine
from sessions.models import LogLine

KEPT = 2_000
#: trimming each time would cost one DELETE per batch
TRIM_EVERY = 100
#: calls whose cards are notified of new lines at once; the others show them at their next change
CALLS_NOTIFIED = 32


def append_all(batches: Iterable[tuple[Lease, list[ServerLogLine]]]) -> None:
    for lease, lines in batches:
        append(lease, lines)


def append(lease: Lease, lines: list[ServerLogLine]) -> None:
    """Number and store `lines` in the current transaction, if the session is still ours."""
    if not held(lease).exists():
        return
    log_key = {"server_id": lease.server_id, "identity_id": lease.identity_id if lease.personal else None}
    newest = LogLine.objects.filter(**log_key).aggregate(Max("seq"))["seq__max"] or 0
    last = newest + len(lines)
    LogLine.objects.bulk_create([line.row(log_key, seq) for seq, line in enumerate(lines, newest + 1)])
    if newest // TRIM_EVERY != last // TRIM_EVERY:
        trim(log_key, last)
    transaction.on_commit(lambda: _announce(lease.server_uid, last, {line.call_uid for line in lines}))


def _announce(server_uid: UUID, last: int, calls: set[UUID | None]) -> None:
    hints.log_appended(server_uid, last)
    for uid in [uid for uid in calls if uid is not None][:CALLS_NOTIFIED]:
        hints.publish(f"call.{uid}", None, "call")


def trim(log_key: Mapping[str, int | None], last: int) -> None:
    LogLine.objects.filter(**log_key, seq__lte=last - KEPT).delete()


def trim_all(on_progress: Callable[[], None] = lambda: None) -> int:
    """Trim every log that is longer than KEPT, calling `on_progress` after each. Returns how many were trimmed."""
    logs = LogLine.objects.values("server_id", "identity_id").annotate(last=Max("seq"), lines=Count("id"))
    found = list(logs.filter(lines__gt=KEPT))
    for row in found:
        trim({"server_id": row["server_id"], "identity_id": row["identity_id"]}, row["last"])
        on_progress()
    return len(found)
