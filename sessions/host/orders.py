"""What people want of the sessions that this worker owns, as it stands in their rows."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Value, When

from servers.domain.form_data import Registration
from servers.models import Server
from sessions.domain.lifecycle import IN_SERVICE
from sessions.enums import Desired
from sessions.models import McpSession, Worker

Roots = tuple[tuple[str, str], ...]  # (URI, name)
#: those after the third are fields of Orders by the same name
_COLUMNS = (
    *("pk", "uid", "desired", "epoch", "paused", "restart_requested", "restart_done"),
    *("refresh_requested", "refresh_done", "watch_requested"),
)
_SERVER = ("in_service", "server__worker_label", "server__roots")


_IN_SERVICE = Case(When(IN_SERVICE, then=Value(True)), default=Value(False), output_field=BooleanField())


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


def read_orders(worker_id: int, **only: Any) -> dict[int, Orders]:
    """Of all sessions of a worker, or of those that a filter names. In a reader thread. Read every few seconds, of a
    thousand sessions: no more than is needed."""
    labels = Worker.objects.filter(pk=worker_id).values_list("labels", flat=True).first() or []
    sessions = McpSession.objects.filter(owner_id=worker_id, **only).annotate(in_service=_IN_SERVICE)
    rows = sessions.values_list(*_COLUMNS, *_SERVER)
    return {row[0]: _orders(dict(zip(_COLUMNS, row, strict=False)), row[len(_COLUMNS) :], labels) for row in rows}


def roots_of(server: Server | Registration) -> Roots:
    return _roots(server.roots)


def _roots(found: list[dict[str, str]]) -> Roots:
    return tuple((root["uri"], root["name"]) for root in found)


def _orders(row: dict[str, Any], server: tuple[Any, ...], labels: list[str]) -> Orders:
    session_id, uid, desired = row.pop("pk"), row.pop("uid"), row.pop("desired")
    in_service, label, roots = server
    wanted = desired == Desired.OPEN and bool(in_service)
    elsewhere = label not in ("", *labels)
    return Orders(
        session_id=session_id,
        session_uid=uid,
        wanted=wanted,
        open=wanted and not row["paused"] and not elsewhere,
        closed_by_wish=desired == Desired.CLOSED,
        elsewhere=elsewhere,
        roots=_roots(roots),
        **row,
    )
