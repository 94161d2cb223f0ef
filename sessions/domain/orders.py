"""What a change of a registration orders of its session: the row already says it, here the worker is told.

Hosts open only enabled, unarchived servers whose session is desired; one whose connection changed is opened anew.
"""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from servers.audit.record import SYSTEM
from servers.enums import AuditAction, ConnectionPolicy, IdentityKind
from servers.models import Identity, Server
from sessions import bus
from sessions.domain import commands, endings, lifecycle, subscriptions, watches
from sessions.domain.endings import Ending
from sessions.enums import CallState, Desired
from sessions.models import Call, McpSession

_MAY_OPEN = {
    AuditAction.SERVER_REGISTER,
    AuditAction.SERVER_CLONE,
    AuditAction.SERVER_ENABLE,
    AuditAction.SERVER_CHANGE,
}
_CLOSES = {AuditAction.SERVER_DISABLE, AuditAction.SERVER_ARCHIVE}


def registration_changed(
    server_uid: UUID, change: AuditAction, *, reconnect: bool = False, identity_id: int | None = None
) -> None:
    """After the commit of a registration's change; `reconnect`: live sessions must be opened anew for it, or only that
    of `identity_id`, whose credentials changed."""
    server = Server.objects.filter(uid=server_uid).first()
    whose = {} if identity_id is None else {"identity_id": identity_id}
    if server is not None:
        for identity in Identity.objects.filter(pk=identity_id):
            commands.session_of(identity, server)  # its first credential makes the session's row
        if reconnect:
            McpSession.objects.filter(server=server, **whose).update(remembered={})
        if change in _CLOSES or not server.enabled or server.archived_at is not None:
            _close(server)
        elif change in _MAY_OPEN and (reconnect or change != AuditAction.SERVER_CHANGE):
            _open(server, whose, restart=reconnect)
        else:
            _tell_owners(server)
    bus.session_changed(server_uid)


def _open(server: Server, whose: Mapping[str, int], *, restart: bool) -> None:
    """An always-on server is wanted from now on; running sessions of a changed one are restarted."""
    commands.shared_session(server)
    unserved = McpSession.objects.filter(server=server).exclude(lifecycle.IN_SERVICE)
    _close_sessions(unserved.filter(desired=Desired.OPEN))
    for session in McpSession.objects.filter(lifecycle.IN_SERVICE, server=server, **whose).select_related("identity"):
        _open_session(server, session, restart=restart, given=bool(whose))


def _open_session(server: Server, session: McpSession, *, restart: bool, given: bool) -> None:
    """Somebody's own is open while it is used, and from each new credential on, to show what it is good for."""
    rows = McpSession.objects.filter(pk=session.pk)
    always = server.connection_policy == ConnectionPolicy.ALWAYS_ON
    own = session.identity.kind == IdentityKind.PERSONAL
    if (always and not own) or (own and given and session.identity.uses.filter(blanked_at=None).exists()):
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
    _close_sessions(McpSession.objects.filter(server=server), endings.SERVER_CLOSED_BEFORE)
    waiting = Call.objects.filter(server=server, state=CallState.REQUESTED).values_list("uid", flat=True)
    endings.end(list(waiting[: endings.BATCH]), endings.SERVER_CLOSED_BEFORE)


def _close_sessions(sessions: QuerySet[McpSession], ending: Ending = endings.SESSION_CLOSED_BEFORE) -> None:
    """With calls that wait for them; their workers cancel those in flight."""
    for session in list(sessions):
        rows = McpSession.objects.filter(pk=session.pk, desired=Desired.OPEN)
        rows.update(desired=Desired.CLOSED, version=F("version") + 1)
        lifecycle.unowned(session.pk)
        commands.summon(session.uid)
        waiting = Call.objects.filter(session=session, state=CallState.REQUESTED).values_list("uid", flat=True)
        endings.end(list(waiting[: endings.BATCH]), ending)


# --- identities of people ------------------------------------------------------------------------------------------------
def identity_ended(identity_id: int) -> int:
    """In the transaction that ends it: its subscriptions end with their history kept, its session closes afterwards.
    How many subscriptions it were."""
    sessions = McpSession.objects.filter(identity_id=identity_id)
    sessions.update(remembered={})
    transaction.on_commit(partial(_close_told, list(sessions.select_related("server"))), robust=True)
    return subscriptions.end_all(identity_id, "The identity was given up.")


def user_left(user_id: int) -> None:
    """Deactivated: nothing goes on in their name."""
    for identity in Identity.objects.filter(user_id=user_id, kind=IdentityKind.PERSONAL):
        with transaction.atomic():
            subscriptions.end_all(identity.pk, "The user was deactivated.")
    _close_told(list(McpSession.objects.filter(identity__user_id=user_id).select_related("server")))


def _close_told(sessions: list[McpSession]) -> None:
    _close_sessions(McpSession.objects.filter(pk__in=[session.pk for session in sessions]))
    for session in sessions:
        bus.session_changed(session.server.uid)


def before_user_delete(user_id: int) -> None:
    """In the transaction that deletes a user with the identities of theirs, whose sessions go with them."""
    theirs = McpSession.objects.filter(identity__user_id=user_id)
    _leave(Call.objects.filter(session__in=theirs), theirs, None)


def before_delete(server: Server) -> None:
    """In the transaction that deletes the server, while its sessions and calls can still be found.

    Calls that nobody sent end as cancelled, running ones are asked to stop, and the owner finds its session gone.
    """
    _leave(Call.objects.filter(server=server), McpSession.objects.filter(server=server), server.uid)


def _leave(calls: QuerySet[Call], sessions: QuerySet[McpSession], server_uid: UUID | None) -> None:
    waiting = list(calls.filter(state=CallState.REQUESTED).values_list("uid", flat=True))
    running = list(
        calls.filter(state=CallState.SENT).exclude(worker_uid=None).values_list("uid", "worker_uid", "epoch")
    )
    held = list(sessions.exclude(owner=None).values_list("uid", "owner__uid", "epoch"))
    endings.wish_cancelled([uid for uid, _, _ in running], SYSTEM.name)
    transaction.on_commit(partial(_after_delete, server_uid, waiting, running, held), robust=True)


_Doorbells = list[tuple[UUID, UUID, int]]  # row, worker, epoch


def _after_delete(server_uid: UUID | None, waiting: list[UUID], running: _Doorbells, held: _Doorbells) -> None:
    if server_uid is not None:
        bus.session_changed(server_uid)
    for uid, worker_uid, epoch in running:
        bus.ring_later(worker_uid, "cancel", uid, epoch)
    for uid, worker_uid, epoch in held:
        bus.ring_later(worker_uid, "session", uid, epoch)
    for start in range(0, len(waiting), endings.BATCH):
        endings.end(waiting[start : start + endings.BATCH], endings.SERVER_DELETED_BEFORE)
