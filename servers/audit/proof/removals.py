"""Removals: signed permissions for retention to delete rows that belong to the log."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from django.db import transaction

from servers.audit.proof import checkpoints
from servers.audit.proof.notes import stamp, time_of
from servers.enums import StatementKind
from servers.models import Checkpoint

Rows = Literal["calls", "payloads"]
#: older statements that a new one replaces at once
_MOST_REPLACED = 500


def allow(rows: Rows, before: datetime) -> None:
    """Sign that `rows` whose request is older than `before` may be missing. Call it before they are deleted. The statement
    replaces earlier ones, whose times it covers: retention signs one every hour.

    Raises KeyMissing and KeyReplaced: then nothing may be deleted.
    """
    known = list(_signed(rows))
    if any(time >= before for _, time in known):
        return
    with transaction.atomic():
        checkpoints.sign(StatementKind.REMOVAL, *checkpoints.head(), rows=rows, before=stamp(before))
        replaced = [pk for pk, _ in known[-_MOST_REPLACED:]]
        Checkpoint.objects.filter(pk__in=replaced).delete()


def allowed(rows: Rows) -> datetime | None:
    """The time before which rows may be missing. Raises KeyMissing."""
    return max((time for _, time in _signed(rows)), default=None)


def newest(rows: Rows) -> datetime | None:
    """The same for a page: only from the newest removal, with one signature to check. Raises KeyMissing."""
    return next((time for _, time in _signed(rows)), None)


def _signed(rows: Rows) -> Iterator[tuple[int, datetime]]:
    """Newest first."""
    found = checkpoints.signed_rows(Checkpoint.objects.filter(kind=StatementKind.REMOVAL))
    return (
        (pk, time_of(one.more["before"])) for pk, one in found if one.more.get("rows") == rows and "before" in one.more
    )
