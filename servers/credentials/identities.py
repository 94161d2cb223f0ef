"""A user's own identity at a server: created with their first credential, or by their first complete sign-in, and ended
to return to the shared one. Which identity a user has is decided in `servers/access.py`, which session belongs to it in
`sessions/connections/commands.py`.

It belongs to one person only. Its row stays after its end, so that calls, lists and subscriptions keep their owner.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from servers import access, limits, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, AuthorizationState, IdentityKind, SignsInAs
from servers.models import Credential, Identity, Server, ServerAuthorization
from servers.signals import identity_ended, server_changed

PERMISSION = "call_tool"
_NAME_CHARS = 60


@contextmanager
def begun(actor: Actor, user: Any, server: Server, *, in_use: bool = True) -> Iterator[tuple[Trail, Identity]]:
    """One audited transaction around the first use of an identity, which is created, or reactivated, when missing.
    Without `in_use` it stays out of use, as one that has ended, until `enter` is called.

    Raises access.Denied (recorded), and ValidationError where personal identities are off or too many exist.
    """
    permissions.require(user, actor, PERMISSION, server)
    with audited(actor) as trail:
        current = Server.objects.select_for_update(no_key=True).get(pk=server.pk)
        identity = access.own_identities(user).filter(server=current).first() or _new(
            trail, user, current, in_use=in_use
        )
        identity.server = current
        yield trail, identity


def _new(trail: Trail, user: Any, server: Server, *, in_use: bool) -> Identity:
    _require_room(user, server)
    name = user.get_username()[:120]
    known = {"server": server, "user_id": user.pk, "kind": IdentityKind.PERSONAL}
    fields = {"name": name, "declared_by_id": user.pk, "challenge": {}}
    fields["ended_at"] = None if in_use else timezone.now()
    identity, _ = Identity.objects.update_or_create(**known, defaults=fields)
    if in_use:
        trail.add(event(trail, identity, AuditAction.IDENTITY_CREATE, server.name))
    return identity


def enter(trail: Trail, identity: Identity) -> None:
    """Runs in the transaction of `trail`: from now on, the user's calls use it."""
    if Identity.objects.filter(pk=identity.pk).exclude(ended_at=None).update(ended_at=None):
        trail.add(event(trail, identity, AuditAction.IDENTITY_CREATE, identity.server.name))


def _require_room(user: Any, server: Server) -> None:
    if server.signs_in_as == SignsInAs.SHARED:
        words = f"{server.name} uses one shared identity. Its managers can allow personal credentials."
        raise ValidationError(words, code="shared")
    signing_in = ServerAuthorization.objects.filter(expires_at__gt=timezone.now()).exclude(
        state=AuthorizationState.FAILED
    )
    used = Q(ended_at=None) | Q(pk__in=signing_in.values("identity"))
    taken = server.identities.filter(used, kind=IdentityKind.PERSONAL).exclude(user_id=user.pk).count()
    if taken >= limits.number("personal_sessions"):
        words = f"{server.name} has {taken} personal identities. {limits.stated('personal_sessions')}"
        raise ValidationError(words, code="too_many")


def end(actor: Actor, user: Any, server: Server) -> bool:
    """Return to the shared identity: the user's own credentials are deleted, the session is closed, and its
    subscriptions end, with their history kept. False if there was no own identity."""
    permissions.require(user, actor, "view_server", server)
    with audited(actor) as trail:
        identity = access.own_identities(user).filter(server=server).select_related("server").first()
        return identity is not None and finish(trail, identity)


def finish(trail: Trail, identity: Identity) -> bool:
    """Runs in the transaction of `trail`. False if another request ended it first."""
    if not Identity.objects.filter(pk=identity.pk, ended_at=None).update(ended_at=timezone.now()):
        return False
    own = Credential.objects.filter(owner_id=identity.user_id, uses__identity=identity)
    names = sorted(own.values_list("name", flat=True))
    ended = sum(int(count or 0) for _, count in identity_ended.send(Identity, identity_id=identity.pk))
    Credential.objects.filter(pk__in=[row.pk for row in own]).delete()
    ServerAuthorization.objects.filter(identity=identity).delete()
    # its uid: its sessions' folders, on any machine, are named after it, and an account is deleted with its identities
    details = {"identity": str(identity.uid), "credentials": names, "subscriptions": ended}
    trail.add(event(trail, identity, AuditAction.IDENTITY_END, identity.server.name, details))
    return True


def event(
    trail: Trail, identity: Identity, action: AuditAction, subject: str, details: dict[str, Any] | None = None
) -> Event:
    server, name = ServerRef.of(identity.server), identity.name
    return Event(
        action, AuditOutcome.OK, trail.actor, server, identity_name=name, subject=subject, details=details or {}
    )


def free_name(server: Server, user: Any) -> str:
    """A free name for a credential, as administrators see it."""
    base = f"{server.name[:_NAME_CHARS]} ({user.get_username()[: _NAME_CHARS - 20]})"
    number, taken = 1, set(Credential.objects.filter(name__startswith=base).values_list("name", flat=True))
    while (name := base if number == 1 else f"{base} {number}") in taken:
        number += 1
    return name


def notify(identity: Identity) -> None:
    """Announce that its session must be opened with something else; other identities' sessions are not affected."""
    server_uid, change = identity.server.uid, AuditAction.SERVER_CHANGE
    send = partial(
        server_changed.send_robust,
        sender=Server,
        server_uid=server_uid,
        change=change,
        reconnect=True,
        identity_id=identity.pk,
    )
    transaction.on_commit(send, robust=True)
