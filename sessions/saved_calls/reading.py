"""Saved calls that a person may see, each with its last call."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Max, Q, QuerySet
from django.http import Http404

from servers import access
from servers.models import Server
from sessions.calls import visibility
from sessions.calls.operations import OperationTexts, texts_of
from sessions.models import Call, SavedCall

NOT_FOUND = "This saved call does not exist, or you don't have access to it."


@dataclass(frozen=True)
class Entry:
    """`last`: the newest call made from it that this person may see."""

    saved: SavedCall
    last: Call | None
    may_change: bool

    @property
    def words(self) -> OperationTexts:
        return texts_of(self.saved.method)

    @property
    def runnable(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> str:
        """Why it cannot be run without changes; empty if it can."""
        if self.saved.arguments.erased_at is not None:
            return "Its arguments were erased"
        return "Masked values are missing" if self.saved.arguments.redacted else ""


def seen(user: access.User) -> QuerySet[SavedCall]:
    """The saved calls that the user may see. Users without the permission to call see none."""
    if not access.may(user, "view") or not access.may(user, "call_tool"):
        return SavedCall.objects.none()
    rows = SavedCall.objects.filter(server__in=access.visible_servers(user))
    return rows.filter(Q(shared=True) | Q(owner_id=user.pk)).select_related("arguments", "owner", "server")


def saved_call(user: access.User, uid: UUID) -> SavedCall:
    """Raises Http404."""
    found = seen(user).filter(uid=uid).first()
    if found is None:
        raise Http404(NOT_FOUND)
    return found


def may_change(user: access.User, saved: SavedCall) -> bool:
    return saved.owner_id == user.pk or (saved.shared and access.may(user, "change"))


def may_share(user: access.User, saved: SavedCall) -> bool:
    """Only its owner or, if it outlived its owner, everyone who may change it."""
    return saved.owner_id == user.pk or (saved.owner_id is None and may_change(user, saved))


def own(user: access.User) -> list[Entry]:
    """The user's own calls for all servers, by server."""
    rows = seen(user).filter(owner_id=user.pk).order_by("server__name", "name", "pk")
    return _entries(user, list(rows))


def entries(user: access.User, server: Server, method: str = "", target: str = "") -> list[Entry]:
    """Two queries besides the permissions, for any number of rows."""
    found = seen(user).filter(server=server)
    rows = list(found.filter(method=method, target=target) if method else found)
    return _entries(user, rows)


def _entries(user: access.User, rows: list[SavedCall]) -> list[Entry]:
    calls = Call.objects.filter(visibility.visible_q(user), saved__in=[row.uid for row in rows]).order_by()
    newest = calls.values("saved").annotate(newest=Max("pk")).values("newest")
    last = {call.saved: call for call in Call.objects.filter(pk__in=newest)} if rows else {}
    return [Entry(row, last.get(row.uid), may_change(user, row)) for row in rows]
