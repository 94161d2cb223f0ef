"""What a change of a registration orders of its session: the row already says it, here the worker is told.

Hosts open only enabled, unarchived servers whose session is desired; one whose connection changed is opened anew.
"""

from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import F

from servers.audit.record import SYSTEM
from servers.enums import AuditAction, ConnectionPolicy
from servers.models import Server
from sessions import bus
from sessions.domain import commands, endings, lifecycle, watches
from sessions.enums import CallState, Desired
from sessions.models import Call, McpSession

_MAY_OPEN = {
    AuditAction.SERVER_REGISTER,
    AuditAction.SERVER_CLONE,
    AuditAction.SERVER_ENABLE,
    AuditAction.SERVER_CHANGE,
}
_CLOSES = {AuditAction.SERVER_DISABLE, AuditAction.SERVER_ARCHIVE}


def registration_changed(server_uid: UUID, change: AuditAction, *, reconnect: bool = False) -> None:
    """After the commit of a registration's change; `reconnect`: a live session must be opened anew for it."""
    server = Server.objects.filter(uid=server_uid).first()
    if server is not None:
        if reconnect:
            McpSession.objects.filter(server=server).update(remembered={})
        if change in _CLOSES or not server.enabled or server.archived_at is not None:
            _close(server)
        elif change in _MAY_OPEN and (reconnect or change != AuditAction.SERVER_CHANGE):
            _open(server, restart=reconnect)
        else:
            _tell_owners(server)
    bus.session_changed(server_uid)


def _open(server: Server, *, restart: bool) -> None:
    """An always-on server is wanted from now on; a running session of a changed one is restarted."""
    session = commands.shared_session(server)
    rows = McpSession.objects.filter(pk=session.pk)
    if server.connection_policy == ConnectionPolicy.ALWAYS_ON:
        rows.filter(desired=Desired.CLOSED).update(desired=Desired.OPEN, version=F("version") + 1)
    else:
        watched = rows.filter(watches.watched_session(), desired=Desired.CLOSED)
        watched.update(desired=Desired.OPEN, version=F("version") + 1)
    lifecycle.unowned(session.pk)
    if restart:
        rows.filter(desired=Desired.OPEN).update(restart_requested=F("restart_requested") + 1, version=F("version") + 1)
    commands.summon(session.uid)


def _tell_owners(server: Server) -> None:
    """What a live session is told while it lives on: its roots."""
    for uid in McpSession.objects.filter(server=server).exclude(owner=None).values_list("uid", flat=True):
        commands.summon(uid)


def _close(server: Server) -> None:
    for session in McpSession.objects.filter(server=server):
        rows = McpSession.objects.filter(pk=session.pk, desired=Desired.OPEN)
        rows.update(desired=Desired.CLOSED, version=F("version") + 1)
        lifecycle.unowned(session.pk)
        commands.summon(session.uid)
    waiting = Call.objects.filter(server=server, state=CallState.REQUESTED).values_list("uid", flat=True)
    endings.end(list(waiting[: endings.BATCH]), endings.SERVER_CLOSED_BEFORE)


def before_delete(server: Server) -> None:
    """In the transaction that deletes the server, while its sessions and calls can still be found.

    Calls that nobody sent end as cancelled, running ones are asked to stop, and the owner finds its session gone.
    """
    calls = Call.objects.filter(server=server)
    waiting = list(calls.filter(state=CallState.REQUESTED).values_list("uid", flat=True))
    running = list(
        calls.filter(state=CallState.SENT).exclude(worker_uid=None).values_list("uid", "worker_uid", "epoch")
    )
    held = list(McpSession.objects.filter(server=server).exclude(owner=None).values_list("uid", "owner__uid", "epoch"))
    endings.wish_cancelled([uid for uid, _, _ in running], SYSTEM.name)
    transaction.on_commit(partial(_after_delete, server.uid, waiting, running, held), robust=True)


_Doorbells = list[tuple[UUID, UUID, int]]  # row, worker, epoch


def _after_delete(server_uid: UUID, waiting: list[UUID], running: _Doorbells, held: _Doorbells) -> None:
    bus.session_changed(server_uid)
    for uid, worker_uid, epoch in running:
        bus.ring_later(worker_uid, "cancel", uid, epoch)
    for uid, worker_uid, epoch in held:
        bus.ring_later(worker_uid, "session", uid, epoch)
    for start in range(0, len(waiting), endings.BATCH):
        endings.end(waiting[start : start + endings.BATCH], endings.SERVER_DELETED_BEFORE)
