"""The log of each server in the database: a ring of KEPT rows, numbered without a gap by the session's owner."""

from collections.abc import Iterable
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
    newest = LogLine.objects.filter(server_id=hold.server_id).aggregate(Max("seq"))["seq__max"] or 0
    last = newest + len(lines)
    LogLine.objects.bulk_create([line.row(hold.server_id, seq) for seq, line in enumerate(lines, newest + 1)])
    if newest // TRIM_EVERY != last // TRIM_EVERY:
        trim(hold.server_id, last)
    transaction.on_commit(lambda: _announce(hold.server_uid, last, {line.call_uid for line in lines}))


def _announce(server_uid: UUID, last: int, calls: set[UUID | None]) -> None:
    bus.log_appended(server_uid, last)
    for uid in [uid for uid in calls if uid is not None][:CALLS_TOLD]:
        bus.publish(f"call.{uid}", None, "call")


def trim(server_id: int, last: int) -> None:
    LogLine.objects.filter(server_id=server_id, seq__lte=last - KEPT).delete()


def trim_all() -> int:
    """Cut every ring that is longer than KEPT, whatever left it so. Returns the number of rings cut."""
    long = LogLine.objects.values_list("server_id").annotate(last=Max("seq"), lines=Count("id")).filter(lines__gt=KEPT)
    found = list(long.values_list("server_id", "last"))
    for server_id, last in found:
        trim(server_id, last)
    return len(found)
