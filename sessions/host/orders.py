"""What people want of the sessions that this worker owns, as it stands in their rows."""

from dataclasses import dataclass
from uuid import UUID

from servers.domain.form_data import Registration
from servers.models import Server
from sessions.enums import Desired
from sessions.models import McpSession

Roots = tuple[tuple[str, str], ...]  # (URI, name)


@dataclass(frozen=True)
class Orders:
    session_id: int
    session_uid: UUID
    epoch: int
    open: bool  # wanted, and its server may be opened
    closed_by_wish: bool
    restart_requested: int
    restart_done: int
    refresh_requested: int
    refresh_done: int
    roots: Roots


def read_orders(worker_id: int, session_uid: UUID | None = None) -> dict[int, Orders]:
    """Of all sessions of a worker, or of the one named. In a reader thread."""
    rows = McpSession.objects.filter(owner_id=worker_id)
    if session_uid is not None:
        rows = rows.filter(uid=session_uid)
    return {row.pk: _orders(row) for row in rows.select_related("server")}


def roots_of(server: Server | Registration) -> Roots:
    return tuple((root["uri"], root["name"]) for root in server.roots)


def _orders(row: McpSession) -> Orders:
    return Orders(
        session_id=row.pk,
        session_uid=row.uid,
        epoch=row.epoch,
        open=row.desired == Desired.OPEN and row.server.enabled and row.server.archived_at is None,
        closed_by_wish=row.desired == Desired.CLOSED,
        restart_requested=row.restart_requested,
        restart_done=row.restart_done,
        refresh_requested=row.refresh_requested,
        refresh_done=row.refresh_done,
        roots=roots_of(row.server),
    )
