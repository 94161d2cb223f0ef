"""The only road from a request to a row: what a user may see and do. Deny by default.

A row that the user may not even see answers like one that does not exist (Http404); a right that is lacking on a row
that is visible raises Denied, which `servers.views.denied` writes into the audit log.
"""

from typing import Any
from uuid import UUID

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from servers.models import AuditEvent, Server, ServerDraft

User = AbstractBaseUser | AnonymousUser | Any  # the configured user model with PermissionsMixin

_RIGHTS = {
    "view_server": "see servers",
    "add_server": "register servers",
    "change_server": "change servers",
    "delete_server": "delete servers",
    "call_tool": "call tools",
    "answer_question": "answer questions of servers",
    "manage_subscription": "subscribe to resources",
    "view_payload": "read arguments and results",
    "view_auditevent": "read the audit log",
    "manage_stdio": "register commands that run on the workers",
    "verify_chain": "verify the audit chain",
    "view_credential": "see credentials",
    "manage_credential": "manage credentials",
}
_SHORT = {"view": "view_server", "add": "add_server", "change": "change_server", "delete": "delete_server"}


class Denied(PermissionDenied):
    """A right is lacking. `right` is its codename; `recorded` becomes true once the audit log has it."""

    def __init__(self, right: str, server: Server | None = None) -> None:
        super().__init__(f"You may not {_RIGHTS[right]}. Ask an administrator for the right.")
        self.right = right
        self.server = server
        self.recorded = False


def may(user: User, right: str) -> bool:
    """`right` is a codename of this app ("call_tool") or one of view, add, change, delete."""
    codename = _SHORT.get(right, right)
    if codename not in _RIGHTS:
        raise ValueError(f"no such right: {right}")
    return bool(user.is_active and user.has_perm(f"servers.{codename}"))


def require(user: User, right: str, server: Server | None = None) -> None:
    """Raises Denied."""
    if not may(user, right):
        raise Denied(_SHORT.get(right, right), server)


def rights(user: User) -> dict[str, bool]:
    """What templates ask for, by codename."""
    return {codename: may(user, codename) for codename in _RIGHTS}


def visible_servers(user: User) -> QuerySet[Server]:
    """Archived ones included."""
    servers = Server.objects.all()
    return servers if may(user, "view") else servers.none()


def server_for(user: User, slug: str, right: str = "view") -> Server:
    """Raises Http404 for a server that the user may not see, Denied for one that is seen but lacks `right`."""
    return _with_right(user, visible_servers(user).filter(slug=slug).first(), right)


def server_by_uid(user: User, uid: UUID, right: str = "view") -> Server:
    return _with_right(user, visible_servers(user).filter(uid=uid).first(), right)


def _with_right(user: User, server: Server | None, right: str) -> Server:
    if server is None:
        raise Http404("There is no such server, or you may not see it.")
    if right != "view":
        require(user, right, server)
    return server


def draft_for(user: User, uid: UUID) -> ServerDraft:
    """A draft is its author's alone. Raises Http404 also for an expired one."""
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
    """Raises Denied without the right to read the log."""
    require(user, "view_auditevent")
    return AuditEvent.objects.all()


def may_read_payloads(user: User) -> bool:
    return may(user, "view_payload")
