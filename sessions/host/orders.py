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
    wanted: bool  # and its server may be opened
    open: bool  # wanted, not paused, and by this worker
    closed_by_wish: bool
    paused: bool
    elsewhere: bool  # the server names a label that this worker does not carry
    restart_requested: int
    restart_done: int
    refresh_requested: int
    refresh_done: int
    watch_requested: int
    roots: Roots
    idle: bool = False  # closed by ourselves, since nobody used it

    @property
    def why_closed(self) -> str:
        if self.open:
            return "Session closed to open it again."
        if self.idle:
            return "Session closed: not used for a while."
        if not self.wanted:
            return "Session closed."
        return "Session closed: paused." if self.paused else "Session closed: it needs a worker of another label."


def read_orders(worker_id: int, session_uid: UUID | None = None) -> dict[int, Orders]:
    """Of all sessions of a worker, or of the one named. In a reader thread."""
    rows = McpSession.objects.filter(owner_id=worker_id)
    if session_uid is not None:
        rows = rows.filter(uid=session_uid)
    return {row.pk: _orders(row) for row in rows.select_related("server", "owner")}


def roots_of(server: Server | Registration) -> Roots:
    return tuple((root["uri"], root["name"]) for root in server.roots)


def _orders(row: McpSession) -> Orders:
    wanted = row.desired == Desired.OPEN and row.server.enabled and row.server.archived_at is None
    elsewhere = bool(row.owner) and row.server.worker_label not in ("", *row.owner.labels)
    return Orders(
        session_id=row.pk,
        session_uid=row.uid,
        epoch=row.epoch,
        wanted=wanted,
        open=wanted and not row.paused and not elsewhere,
        closed_by_wish=row.desired == Desired.CLOSED,
        paused=row.paused,
        elsewhere=elsewhere,
        restart_requested=row.restart_requested,
        restart_done=row.restart_done,
        refresh_requested=row.refresh_requested,
        refresh_done=row.refresh_done,
        watch_requested=row.watch_requested,
        roots=roots_of(row.server),
    )
