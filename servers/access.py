"""From a request to a row: what a user may see and do. Deny by default. Each view reads its rows through this module
or, where more than the server decides, through a query of the feature that uses it: `sessions.calls.visibility` has
the rules for calls.

A row that the user may not even see answers like one that does not exist (Http404); a permission that is missing on a
row that is visible raises Denied, which `servers.views.denied` writes into the audit log.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404
from django.utils import timezone

from servers.enums import IdentityKind, SignsInAs
from servers.models import AuditEvent, Identity, Server, ServerDraft
from servers.numbers import uuids

User = Any  # the configured user model with PermissionsMixin, or AnonymousUser

_PERMISSIONS = {
    "view_server": "see servers",
    "add_server": "register servers",
    "change_server": "change servers",
    "delete_server": "delete servers",
    "call_tool": "call tools",
    "answer_question": "answer server requests",
    "manage_subscription": "subscribe to resources",
    "view_payload": "read arguments and results",
    "erase_payload": "erase arguments and results",
    "view_auditevent": "read the audit log",
    "manage_stdio": "register commands",
    "verify_chain": "verify the audit log",
    "view_backgroundjob": "see background jobs",
    "view_credential": "see credentials",
    "manage_credential": "manage credentials",
    "grant_reference": "grant references",
    "manage_users": "manage users",
    # No permission of this name exists, so it cannot be granted: only superusers have it.
    "administer": "administer this installation",
}
#: Permissions without which another one has no effect.
NEEDS = {
    **dict.fromkeys(("add_server", "change_server", "delete_server", "manage_stdio"), ("view_server",)),
    **dict.fromkeys(("call_tool", "answer_question", "manage_subscription"), ("view_server",)),
    **dict.fromkeys(("view_payload", "erase_payload"), ("view_server",)),
    "manage_credential": ("view_credential",),
    "verify_chain": ("view_auditevent",),
}
_SHORT = {"view": "view_server", "add": "add_server", "change": "change_server", "delete": "delete_server"}


class Denied(PermissionDenied):
    """A permission is missing. `permission` is its codename; `recorded` becomes true once the audit log has it."""

    def __init__(self, permission: str, server: Server | None = None, words: str = "") -> None:
        words = words or f"You don't have permission to {_PERMISSIONS[permission]}."
        super().__init__(f"{words} Ask an administrator for access.")
        self.permission = permission
        self.server = server
        self.recorded = False


class Replaced(Exception):
    """What a form was opened for is gone, and another row has its short name now. Answered by `mcpadmin.errors`."""

    def __init__(self, noun: str) -> None:
        super().__init__(
            f"The {noun} that this page was opened for was deleted, and another {noun} now has its short name. "
            "Nothing was changed."
        )


class ServerReplaced(Replaced):
    """`server` has the short name now."""

    def __init__(self, server: Server) -> None:
        super().__init__("server")
        self.server = server


#: of a page that was opened for an endpoint of agents
ANOTHER_ENDPOINT = (
    "The server or bundle that this page was opened for was deleted or renamed, and another one now has its short name."
)


def may(user: User, permission: str) -> bool:
    """`permission` is a codename of this app ("call_tool") or one of view, add, change, delete. It has no effect
    without those that it needs."""
    return not _missing(user, permission)


def _missing(user: User, permission: str) -> str:
    """The codename of the permission itself or of one that it needs; empty: the user may."""
    codename = _SHORT.get(permission, permission)
    if codename not in _PERMISSIONS:
        raise ValueError(f"no such permission: {permission}")
    for name in (codename, *NEEDS.get(codename, ())):
        if not (user.is_active and user.has_perm(f"servers.{name}")):
            return name
    return ""


def require(user: User, permission: str, server: Server | None = None) -> None:
    """Raises Denied."""
    if missing := _missing(user, permission):
        raise Denied(missing, server)


def permissions(user: User) -> dict[str, bool]:
    """What templates ask for, by codename."""
    return {codename: may(user, codename) for codename in _PERMISSIONS}


def administrators(most: int = 3) -> list[str]:
    """Names of those who can grant a permission, for the page of a user who lacks it."""
    found = get_user_model()._default_manager.filter(is_superuser=True, is_active=True).order_by("date_joined", "pk")
    return [user.get_username() for user in found[:most]]


def lacking(permission: str) -> str:
    """The text for a person without `permission`, shown instead of the button."""
    names = administrators()
    who = f"Ask an administrator for it: {', '.join(names)}." if names else "Ask an administrator for it."
    return f"You don't have permission to {_PERMISSIONS[permission]}. {who}"


def visible_servers(user: User) -> QuerySet[Server]:
    """Archived ones included."""
    servers = Server.objects.all()
    return servers if may(user, "view") else servers.none()


def server_for(user: User, slug: str, permission: str = "view") -> Server:
    """Raises Http404 for a server that the user may not see, Denied for one that is seen but lacks `permission`."""
    return _with_permission(user, visible_servers(user).filter(slug=slug).first(), permission)


def server_by_uid(user: User, uid: UUID, permission: str = "view") -> Server:
    return _with_permission(user, visible_servers(user).filter(uid=uid).first(), permission)


def server_of_form(user: User, slug: str, uid: str, permission: str) -> Server:
    """The server that a form was opened for, whatever its short name is now. `uid`: as the form posted it, empty for a page
    that is only opened. Raises ServerReplaced, too."""
    if not uid:
        return server_for(user, slug, permission)
    server = visible_servers(user).filter(uid__in=uuids([uid])).first()
    if server is None:
        raise ServerReplaced(server_for(user, slug, permission))
    return _with_permission(user, server, permission)


def _with_permission(user: User, server: Server | None, permission: str) -> Server:
    if server is None:
        raise Http404("This server does not exist, or you don't have access to it.")
    if permission != "view":
        require(user, permission, server)
    return with_identity_of(user, server)


def with_identity_of(user: User, server: Server) -> Server:
    """With the identity under which this user sees it."""
    server.seen_as = identity_key(user, server)
    return server


def seen_by_each(user: User, servers: Collection[Server]) -> None:
    """The same for several servers. One query; none if all have only a shared identity."""
    asked = [server.pk for server in servers if server.signs_in_as != SignsInAs.SHARED]
    own = dict(own_identities(user).filter(server__in=asked).values_list("server_id", "pk")) if asked else {}
    for server in servers:
        server.seen_as = _identity_key_of_viewer(server, own.get(server.pk))


# --- identities: the one place that says which identity a user has at a server ----------------------------------------
def own_identities(user: User) -> QuerySet[Identity]:
    """The user's own identities that are in use: a server with only a shared identity ignores them."""
    return Identity.objects.filter(user_id=user.pk, kind=IdentityKind.PERSONAL, ended_at=None)


def identity_key(user: User, server: Server) -> int | None:
    """As Server.seen_as: the key of the user's own identity, 0 where they need one and have none, None: the shared one."""
    if server.signs_in_as == SignsInAs.SHARED:
        return None
    own = own_identities(user).filter(server_id=server.pk).values_list("pk", flat=True).first()
    return _identity_key_of_viewer(server, own)


def _identity_key_of_viewer(server: Server, own: int | None) -> int | None:
    if server.signs_in_as == SignsInAs.SHARED:
        return None
    return own or (0 if server.signs_in_as == SignsInAs.PERSONAL else None)


def may_control(user: User, server: Server) -> bool:
    """Whether the user may pause, disconnect or reconnect the session that their calls use: their own one with
    permission to call, one that others use with permission to change the server. `server`: as `with_identity_of` returned it."""
    return may(user, "change" if server.seen_as is None else "call_tool")


def require_control(user: User, server: Server) -> None:
    """Raises Denied."""
    if may_control(user, server):
        return
    if server.seen_as is not None:
        raise Denied("call_tool", server)
    words = f"Others use this session of {server.name}, so only people with permission to {_PERMISSIONS['change_server']} can pause, disconnect, retry or reconnect it or set its log level."
    raise Denied("change_server", server, words)


def identities_of(user: User | None) -> QuerySet[Identity]:
    """The identities that `user` acts as, at most one per server. None: those of everyone without an identity of their
    own."""
    shared = Q(kind=IdentityKind.SHARED) & ~Q(server__signs_in_as=SignsInAs.PERSONAL)
    if user is None:
        return Identity.objects.filter(shared)
    own = own_identities(user).exclude(server__signs_in_as=SignsInAs.SHARED)
    return Identity.objects.filter(Q(pk__in=own.values("pk")) | shared & ~Q(server__in=own.values("server_id")))


def may_see_personal_sessions(user: User) -> bool:
    """Whether the user may see sessions of other people's own identities, with their calls, log lines and questions:
    people who may read everyone's results may. The identities themselves are never used for anyone else."""
    return may(user, "view_payload")


def seen_of_people(user: User, personal: Q, own: Q) -> Q:
    """Shared rows and this user's own; all rows for a user who may see everyone's."""
    return Q() if may_see_personal_sessions(user) else ~personal | own


def draft_for(user: User, uid: UUID) -> ServerDraft:
    """A draft belongs to its author alone. Raises Http404 for an expired one, too."""
    if (draft := _drafts(user).filter(uid=uid).exclude(transport="").first()) is None:
        raise Http404("This test has expired. Start it again.")
    return draft


def import_for(user: User, uid: UUID) -> ServerDraft:
    """The preview of an import: a draft without a transport. Raises Http404 also for an expired one."""
    if (draft := _drafts(user).filter(uid=uid, transport="").first()) is None:
        raise Http404("This preview has expired. Start the import again.")
    return draft


def _drafts(user: User) -> QuerySet[ServerDraft]:
    return ServerDraft.objects.filter(user_id=user.pk, expires_at__gt=timezone.now())


def audit_events(user: User) -> QuerySet[AuditEvent]:
    """Raises Denied without permission to read the log."""
    require(user, "view_auditevent")
    return AuditEvent.objects.all()


def may_read_payloads(user: User) -> bool:
    return may(user, "view_payload")
