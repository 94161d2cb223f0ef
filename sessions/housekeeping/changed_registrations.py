"""Applies a changed registration to its sessions: updates their rows and wakes their workers.

Hosts open only enabled, unarchived servers whose session's desired state is open. After a change of the connection they
reopen the session.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Model, QuerySet

from servers.audit.batches import Batches
from servers.audit.record import SYSTEM
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, ConnectionPolicy, IdentityKind
from servers.models import AgentToken, Identity, Server
from sessions import hints
from sessions.calls import final_states
from sessions.calls.final_states import FinalState
from sessions.connections import commands, lifecycle
from sessions.enums import UNSENT, CallState, Desired
from sessions.models import AgentCall, Call, McpSession
from sessions.subscriptions import subscribing, watches

_MAY_OPEN = {
    AuditAction.SERVER_REGISTER,
    AuditAction.SERVER_CLONE,
    AuditAction.SERVER_ENABLE,
    AuditAction.SERVER_CHANGE,
}
#: up to this many calls lose their server or user in the transaction that deletes it
_FEW = 500
_ENDED = [state for state in CallState if state.final]
_READ = 5_000
_CLOSES = {AuditAction.SERVER_DISABLE, AuditAction.SERVER_ARCHIVE}


def registration_changed(
    server_uid: UUID, change: AuditAction, *, reconnect: bool = False, identity_id: int | None = None
) -> None:
    """Call this after the commit of a registration's change. `reconnect`: its live sessions must be reopened, or only
    that of `identity_id`, whose credentials changed."""
    server = Server.objects.filter(uid=server_uid).first()
    whose = {} if identity_id is None else {"identity_id": identity_id}
    if server is not None:
        for identity in Identity.objects.filter(pk=identity_id or 0):
            commands.session_of(identity, server)  # the first credential of an identity creates the session's row
        if reconnect:
            McpSession.objects.filter(server=server, **whose).update(remembered={})
        if change in _CLOSES or not server.enabled or server.archived_at is not None:
            if (
                reconnect
            ):  # a slow worker may first look when the server is enabled again, and must not keep its old settings
                _restart(McpSession.objects.filter(server=server, **whose))
            _close(server)
        elif change in _MAY_OPEN and (reconnect or change != AuditAction.SERVER_CHANGE):
            _open(server, whose, restart=reconnect)
        else:
            _wake_owners(server)
    hints.session_changed(server_uid)


def _open(server: Server, whose: Mapping[str, int], *, restart: bool) -> None:
    """Set an always-on server's desired state to open, and restart the running sessions of a changed one."""
    commands.shared_session(server)
    unserved = McpSession.objects.filter(server=server).exclude(lifecycle.IN_SERVICE)
    _close_sessions(unserved.filter(desired=Desired.OPEN))
    for session in McpSession.objects.filter(lifecycle.IN_SERVICE, server=server, **whose).select_related("identity"):
        _open_session(server, session, restart=restart, given=bool(whose))


def _open_session(server: Server, session: McpSession, *, restart: bool, given: bool) -> None:
    """A personal session is open while it is used. Each new credential also opens it, to show whether it works."""
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
        _restart(rows.filter(desired=Desired.OPEN))
    commands.wake_owner(session.uid)


def _restart(sessions: QuerySet[McpSession]) -> None:
    sessions.update(restart_requested=F("restart_requested") + 1, version=F("version") + 1)


def _wake_owners(server: Server) -> None:
    """Wake the owners of live sessions, which apply changed roots without a restart."""
    for uid in McpSession.objects.filter(server=server).exclude(owner=None).values_list("uid", flat=True):
        commands.wake_owner(uid)


def _close(server: Server) -> None:
    _close_sessions(McpSession.objects.filter(server=server), final_states.SERVER_CLOSED_BEFORE)
    waiting = Call.objects.filter(server=server, state__in=UNSENT).values_list("uid", flat=True)
    final_states.end_all(list(waiting), final_states.SERVER_CLOSED_BEFORE)


def _close_sessions(sessions: QuerySet[McpSession], final: FinalState = final_states.SESSION_CLOSED_BEFORE) -> None:
    """Also ends the calls that wait for these sessions. Their workers cancel the calls in flight."""
    for session in list(sessions):
        rows = McpSession.objects.filter(pk=session.pk, desired=Desired.OPEN)
        rows.update(desired=Desired.CLOSED, version=F("version") + 1)
        lifecycle.unowned(session.pk)
        commands.wake_owner(session.uid)
        waiting = Call.objects.filter(session=session, state__in=UNSENT).values_list("uid", flat=True)
        final_states.end_all(list(waiting), final)


# --- personal identities ----------------------------------------------------------------------------------------------
def identity_ended(identity_id: int) -> int:
    """Call this in the transaction that ends the identity. Its subscriptions end but keep their history. Its
    session closes after the commit. Returns the number of subscriptions."""
    sessions = McpSession.objects.filter(identity_id=identity_id)
    sessions.update(remembered={})
    after_commit(_close_and_notify, list(sessions.select_related("server")))
    return subscribing.end_all(identity_id, "The identity was removed.")


def user_left(user_id: int) -> None:
    """The user was deactivated: end everything that runs under their identities."""
    for identity in Identity.objects.filter(user_id=user_id, kind=IdentityKind.PERSONAL):
        with transaction.atomic():
            subscribing.end_all(identity.pk, "The user was disabled.")
    _close_and_notify(list(McpSession.objects.filter(identity__user_id=user_id).select_related("server")))


def _close_and_notify(sessions: list[McpSession]) -> None:
    _close_sessions(McpSession.objects.filter(pk__in=[session.pk for session in sessions]))
    for session in sessions:
        hints.session_changed(session.server.uid)


def before_user_delete(user_id: int) -> None:
    """Call this in the transaction that deletes a user, their identities, and the sessions of those identities."""
    theirs = McpSession.objects.filter(identity__user_id=user_id)
    _leave(Call.objects.filter(session__in=theirs), theirs, None)


def long_history(server: Server) -> Callable[[], None] | None:
    """A function that detaches a long history before the server is deleted, in small transactions. None for a short
    one."""
    return _letting_go((Call.objects.filter(server=server, state__in=_ENDED), ("server", "session", "identity")))


def long_history_of_user(user: Any) -> Callable[[], None] | None:
    """The same for an account: its calls, those of its own identities, and those of its agents."""
    return _letting_go(
        (Call.objects.filter(user=user, state__in=_ENDED), ("user",)),
        (Call.objects.filter(identity__user=user, state__in=_ENDED), ("session", "identity")),
        (AgentCall.objects.filter(token__user=user, call__state__in=_ENDED), ("token", "session")),
    )


def long_history_of_grants(grants: QuerySet[AgentToken]) -> Callable[[], None] | None:
    calls = AgentCall.objects.filter(token__in=grants.order_by().values("pk"), call__state__in=_ENDED)
    return _letting_go((calls, ("token", "session")))


def _letting_go(*histories: tuple[QuerySet[Any], Collection[str]]) -> Callable[[], None] | None:
    """Each history consists of rows and the names of the references that they lose."""
    if not any(rows.order_by()[_FEW : _FEW + 1].exists() for rows, _ in histories):
        return None
    return partial(_let_go, histories)


def _let_go(histories: Iterable[tuple[QuerySet[Any], Collection[str]]]) -> None:
    batches = Batches()
    for rows, references in histories:
        lose = partial(_lose, rows.model, references)
        while keys := list(rows.order_by().values_list("pk", flat=True)[:_READ]):
            batches.each(keys, lose)


def _lose(model: type[Model], references: Collection[str], keys: Sequence[int]) -> None:
    model._default_manager.filter(pk__in=keys).update(**dict.fromkeys(references))


def before_delete(server: Server) -> None:
    """Call this in the transaction that deletes the server, while its sessions and calls can still be found.

    Unsent calls end as cancelled, running ones get a cancel request, and the owner finds that its session is gone.
    """
    _leave(Call.objects.filter(server=server), McpSession.objects.filter(server=server), server.uid)


def _leave(calls: QuerySet[Call], sessions: QuerySet[McpSession], server_uid: UUID | None) -> None:
    waiting = list(calls.filter(state__in=UNSENT).values_list("uid", flat=True))
    sent = calls.filter(state=CallState.SENT).values_list("uid", "worker_uid")
    running = [(uid, worker_uid) for uid, worker_uid in sent if worker_uid is not None]
    held = list(sessions.exclude(owner=None).values_list("uid", "owner__uid"))
    final_states.request_cancel([uid for uid, _ in running], SYSTEM.name)
    after_commit(_after_delete, server_uid, waiting, running, held)


_WorkersToWake = list[tuple[UUID, UUID]]  # row, worker


def _after_delete(server_uid: UUID | None, waiting: list[UUID], running: _WorkersToWake, held: _WorkersToWake) -> None:
    if server_uid is not None:
        hints.session_changed(server_uid)
    for uid, worker_uid in running:
        hints.wake_worker(worker_uid, "cancel", uid)
    for uid, worker_uid in held:
        hints.wake_worker(worker_uid, "session", uid)
    final_states.end_all(waiting, final_states.SERVER_DELETED_BEFORE)
