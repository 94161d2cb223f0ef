"""Removals: the retention's signed leave to delete rows beside the log."""

from datetime import datetime
from typing import Literal

from servers.audit.proof import checkpoints
from servers.audit.proof.notes import stamp, time_of
from servers.enums import StatementKind
from servers.models import Checkpoint

Rows = Literal["calls", "payloads"]


def allow(rows: Rows, before: datetime) -> None:
    """Sign that `rows` whose request is older than `before` may be missing. Call it before they are deleted.

    Raises KeyMissing and KeyReplaced: then nothing may be deleted.
    """
    known = allowed(rows)
    if known is None or known < before:
        checkpoints.sign(StatementKind.REMOVAL, *checkpoints.head(), rows=rows, before=stamp(before))


def allowed(rows: Rows) -> datetime | None:
    """Before which time rows may be missing. Raises KeyMissing."""
    signed = checkpoints.statements(Checkpoint.objects.filter(kind=StatementKind.REMOVAL))
    times = [time_of(one.more["before"]) for one in signed if one.more.get("rows") == rows and "before" in one.more]
    return max(times, default=None)
