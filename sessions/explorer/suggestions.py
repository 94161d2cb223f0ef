"""Values that the query bar offers while a condition is typed: only what this person may see anyway."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from servers import access
from servers.models import Definition, Identity
from sessions.explorer import search, streams
from sessions.explorer.language import COMPLETIONS, SUGGESTIONS, Query

_MOST = COMPLETIONS


def _servers(user: access.User, begun: str) -> list[tuple[str, str]]:
    servers = access.visible_servers(user).filter(Q(slug__istartswith=begun) | Q(name__istartswith=begun))
    return list(servers.order_by("slug").values_list("slug", "name")[:_MOST])


def _tools(user: access.User, begun: str) -> list[tuple[str, str]]:
    identities = access.identities_of(user).filter(server__in=access.visible_servers(user))
    tools = Definition.objects.filter(identity__in=identities, removed_at=None, key__istartswith=begun)
    return [(key, "") for key in _distinct(tools, "key")]


def _users(user: access.User, begun: str) -> list[tuple[str, str]]:
    if not access.may(user, "view"):
        return []
    if access.may(user, "manage_users") or access.may(user, "view_auditevent"):
        people = get_user_model()._default_manager.filter(username__istartswith=begun)
        return [(name, "") for name in _distinct(people, "username")]
    names = sorted({user.get_username(), *_callers(user)})
    return [(name, "") for name in names if name.casefold().startswith(begun.casefold())][:_MOST]


def _callers(user: access.User) -> set[str]:
    """The callers of the newest calls that this person may see."""
    calls = search.select(user, Query(), streams.STREAMS["calls"])
    rows = [] if calls is None else calls.read(search.FACET_ROWS, "user_name")[0]
    return {name for _, name in rows if name}


def _identities(user: access.User, begun: str) -> list[tuple[str, str]]:
    seen = access.seen_of_people(user, ~Q(user=None), Q(user_id=user.pk))
    shown = Identity.objects.filter(seen, server__in=access.visible_servers(user), name__istartswith=begun)
    return [(name, "") for name in _distinct(shown, "name")]


def _distinct(rows: QuerySet[Any], column: str) -> list[str]:
    return list(rows.order_by(column).values_list(column, flat=True).distinct()[:_MOST])


def register() -> None:
    """Call once, at startup."""
    SUGGESTIONS.update(server=_servers, tool=_tools, user=_users, identity=_identities)
