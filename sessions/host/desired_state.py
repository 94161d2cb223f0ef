"""The desired state, as stored in the rows, of the sessions that this worker owns."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Value, When

from servers.configuration import Registration
from servers.models import Server
from sessions.connections.lifecycle import IN_SERVICE
from sessions.enums import Desired
from sessions.models import McpSession, Worker

Roots = tuple[tuple[str, str], ...]  # (URI, name)
#: the columns after the third are fields of DesiredState with the same names
_COLUMNS = (
    *("pk", "uid", "desired", "epoch", "paused", "restart_requested", "restart_done"),
    *("refresh_requested", "refresh_done", "watch_requested", "log_level"),
)
_SERVER = ("in_service", "server__worker_label", "server__roots", "server__recording")


_IN_SERVICE = Case(When(IN_SERVICE, then=Value(True)), default=Value(False), output_field=BooleanField())


@dataclass(frozen=True)
class DesiredState:
    session_id: int
    session_uid: UUID
    epoch: int
    requested: bool  # desired, and its server may be opened
    open: bool  # desired, not paused, and this worker carries the label
    paused: bool
    elsewhere: bool  # the server requires a label that this worker does not carry
    restart_requested: int
    restart_done: int
    refresh_requested: int
    refresh_done: int
    watch_requested: int
    log_level: str
    roots: Roots
    recording: str
    idle: bool = False  # the host closed it because it was unused

    @property
    def why_closed(self) -> str:
        if self.open:
            return "Session closed to reconnect."
        if self.idle:
            return "Session closed: idle."
        if not self.requested:
            return "Session closed."
        return "Session closed: paused." if self.paused else "Session closed: requires a worker with a different label."


def read_desired_states(worker_id: int, **only: Any) -> dict[int, DesiredState]:
    """The desired states of all sessions of a worker, or of those that a filter selects. Call in a reader thread.

    This runs every few seconds for up to a thousand sessions, so it reads only the columns it needs."""
    labels = Worker.objects.filter(pk=worker_id).values_list("labels", flat=True).first() or []
    sessions = McpSession.objects.filter(owner_id=worker_id, **only).annotate(in_service=_IN_SERVICE)
    rows = sessions.values_list(*_COLUMNS, *_SERVER)
    return {row[0]: _desired(dict(zip(_COLUMNS, row, strict=False)), row[len(_COLUMNS) :], labels) for row in rows}


def roots_of(server: Server | Registration) -> Roots:
    return _roots(server.roots)


def _roots(found: list[dict[str, str]]) -> Roots:
    return tuple((root["uri"], root["name"]) for root in found)


def _desired(row: dict[str, Any], server: tuple[Any, ...], labels: list[str]) -> DesiredState:
    session_id, uid, desired = row.pop("pk"), row.pop("uid"), row.pop("desired")
    in_service, label, roots, recording = server
    requested = desired == Desired.OPEN and bool(in_service)
    elsewhere = label not in ("", *labels)
    return DesiredState(
        session_id=session_id,
        session_uid=uid,
        requested=requested,
        open=requested and not row["paused"] and not elsewhere,
        elsewhere=elsewhere,
        roots=_roots(roots),
        recording=recording,
        **row,
    )
