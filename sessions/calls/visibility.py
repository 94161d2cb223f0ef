"""Who may see a call, and who may read its arguments and result. These are the only such rules, as those in
`servers.access` are for servers: a call outlives its server, and through a personal session it belongs to one person.
"""

from typing import Any

from django.db.models import Q, QuerySet

from servers import access
from sessions.models import Call


def visible(user: access.User) -> QuerySet[Call]:
    """The calls that the user may see."""
    rows = Call.objects.filter(on_visible_servers(user), visible_q(user))
    return rows if access.may(user, "view") else rows.none()


def on_visible_servers(user: access.User) -> Q:
    """A call whose server was deleted is visible to everyone who may view servers."""
    return Q(server__in=access.visible_servers(user)) | Q(server=None)


def visible_q(user: access.User) -> Q:
    """Calls through a person's own session are visible to that person and to those who may see all."""
    return access.seen_of_people(user, Q(personal=True), Q(user_id=user.pk))


def may_read(user: Any, call: Call) -> bool:
    """The person who made the call, and everyone with the permission, may read arguments and results."""
    return call.user_id == user.pk or access.may_read_payloads(user)
