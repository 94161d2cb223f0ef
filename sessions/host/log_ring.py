"""The log of each session in the database: a ring of KEPT rows, numbered without a gap by the session's owner.

That of the shared identity has no identity in its rows.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max

from sessions import bus
from sessions.domain.lifecycle import Hold, held
from sessions.host.log_line import Line
from sessions.models import LogLine

KEPT = 2_000
#: trimming each time would cost a DELETE a batch
TRIM_EVERY = 100
#: cards of calls that hear at once of their new lines; the others show them with their next change
CALLS_TOLD = 32


def append_all(batches: Iterable[tuple[Hold, list[Line]]]) -> None:
    for hold, lines in batches:
        append(hold, lines)


def append(hold: Hold, lines: list[Line]) -> None:
    """Number and store `lines` in the current transaction, if the session is still ours."""
    if not held(hold).exists():
        return
    ring = {"server_id": hold.server_id, "identity_id": hold.identity_id if hold.personal else None}
    newest = LogLine.objects.filter(**ring).aggregate(Max("seq"))["seq__max"] or 0
    last = newest + len(lines)
    LogLine.objects.bulk_create([line.row(ring, seq) for seq, line in enumerate(lines, newest + 1)])
    if newest // TRIM_EVERY != last // TRIM_EVERY:
        trim(ring, last)
    transaction.on_commit(lambda: _announce(hold.server_uid, last, {line.call_uid for line in lines}))


def _announce(server_uid: UUID, last: int, calls: set[UUID | None]) -> None:
    bus.log_appended(server_uid, last)
    for uid in [uid for uid in calls if uid is not None][:CALLS_TOLD]:
        bus.publish(f"call.{uid}", None, "call")


def trim(ring: Mapping[str, int | None], last: int) -> None:
    LogLine.objects.filter(**ring, seq__lte=last - KEPT).delete()


def trim_all() -> int:
    """Cut every ring that is longer than KEPT, whatever left it so. Returns the number of rings cut."""
    rings = LogLine.objects.values("server_id", "identity_id").annotate(last=Max("seq"), lines=Count("id"))
    found = list(rings.filter(lines__gt=KEPT))
    for ring in found:
        trim({"server_id": ring["server_id"], "identity_id": ring["identity_id"]}, ring["last"])
    return len(found)
