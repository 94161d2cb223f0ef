"""Saved views: a query and its columns under a name."""

from dataclasses import dataclass
from uuid import UUID

from django.http import Http404

from servers import access
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction
from sessions.explorer.language import TEXT_CHARS
from sessions.models import SavedView
from sessions.overview.activity import FAILED_CALLS

#: per person
MOST = 50


class Unsaved(Exception):
    """The view cannot be saved. The message is shown on the page."""


@dataclass(frozen=True)
class Ready:
    """A view that every installation has."""

    name: str
    query: str


READY = (
    Ready("Calls", "last:24h in:calls"),
    Ready("Failed calls", f"last:24h in:calls {FAILED_CALLS}"),
    Ready("Slow calls", "last:24h in:calls duration:>2s"),
    Ready("Audit events", "last:7d in:events"),
    Ready("Sign-ins and passwords", "last:7d in:events kind:sign-in"),
    Ready("Changes to servers", "last:30d in:events kind:servers"),
    Ready("Accounts and permissions", "last:30d in:events kind:permissions"),
    Ready("Denied", "last:30d outcome:denied"),
)


def own(user: access.User) -> list[SavedView]:
    return list(SavedView.objects.filter(owner_id=user.pk))


def shared_by_others(user: access.User) -> list[SavedView]:
    rows = SavedView.objects.filter(shared=True).exclude(owner_id=user.pk).select_related("owner")
    return list(rows[:100])


def save(user: access.User, name: str, query: str, columns: str, *, shared: bool) -> SavedView:
    """If the person already has a view of that name, it is replaced. Raises Unsaved."""
    name = " ".join(name.split())
    if not name or len(name) > 80:
        raise Unsaved("Give the view a name of at most 80 characters.")
    if any("\0" in text for text in (name, query, columns)):  # PostgreSQL cannot store it
        raise Unsaved("A view cannot contain a null character.")
    if len(query) > TEXT_CHARS:
        raise Unsaved(f"The query is longer than {TEXT_CHARS:,} characters.")
    mine = SavedView.objects.filter(owner_id=user.pk)
    if mine.count() >= MOST and not mine.filter(name=name).exists():
        raise Unsaved(f"You have {MOST} saved views, which is the limit. Delete one first.")
    fields = {"query": query, "columns": columns[:200], "shared": shared}
    return SavedView.objects.update_or_create(owner_id=user.pk, name=name, defaults=fields)[0]


def delete(actor: Actor, view: SavedView) -> None:
    """Deleting another person's view is recorded: its owner may ask where it went. The query is left out, as it may
    contain words that are erased later."""
    with audited(actor) as trail:
        if view.delete()[0] and view.owner_id != actor.id:
            trail.note(AuditAction.VIEW_DELETE, None, view.name, {"owner": view.owner.get_username()})


def deletable(user: access.User, uid: UUID) -> SavedView:
    """The user's own view or, with permission to administer, any shared view. Raises Http404."""
    view = SavedView.objects.filter(uid=uid).first()
    allowed = view is not None and (view.owner_id == user.pk or (view.shared and access.may(user, "administer")))
    if view is None or not allowed:
        raise Http404("This view does not exist, or you don't have access to it.")
    return view
