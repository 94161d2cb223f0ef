"""The list of servers: filters, order and pages. Each row has its session, what the server offers, and its last day."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, Count, F, IntegerField, Max, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Lower

from servers import access
from servers.enums import DefinitionKind
from servers.kit.words import Look
from servers.models import Definition, Server
from sessions.connections import icons
from sessions.enums import Desired, SessionState
from sessions.models import McpSession, Worker
from sessions.overview import activity
from sessions.overview.rows import session_of, with_session
from sessions.overview.server_row import Reason, ServerRow, reason, row_of
from sessions.overview.shown import shown

PAGE: Final = 40
SHOWN: Final = {
    "active": Q(archived_at=None),
    "enabled": Q(archived_at=None, enabled=True),
    "disabled": Q(archived_at=None, enabled=False),
    "archived": Q(archived_at__isnull=False),
    "all": Q(),
}
STATES: Final = {
    "failing": "Failing",
    "connecting": "Connecting",
    "paused": "Paused",
    "ready": "Ready",
    "closed": "Not connected",
}
#: sort orders of the list -> labels. A leading minus reverses them.
SORTS: Final = {
    "name": "Name",
    "state": "State",
    "transport": "Transport",
    "tools": "Tools",
    "calls": "Calls",
    "failed": "Failed",
    "environment": "Environment",
    "owner": "Owner",
    "used": "Last used",
}
#: columns whose first sort order is descending
DESCENDING: Final = frozenset({"tools", "calls", "failed", "used"})
#: only sessions that should be open: a paused one was paused by a person
FAILED: Final = Q(desired=Desired.OPEN, paused=False) & ~Q(fault="") & ~Q(state=SessionState.READY)
_IN_STATE: Final = {
    "failing": FAILED,
    "connecting": Q(desired=Desired.OPEN, paused=False, fault="") & ~Q(state=SessionState.READY),
    "paused": Q(paused=True),
    "ready": Q(state=SessionState.READY),
}


@dataclass(frozen=True)
class ServerPage:
    """`number` counts from 1."""

    rows: list[ServerRow]
    total: int
    number: int

    @property
    def pages(self) -> int:
        return max(1, math.ceil(self.total / PAGE))

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE + 1

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.pages else None


def matching(user: access.User, criteria: Mapping[str, str]) -> QuerySet[Server]:
    """Criteria: show (see SHOWN), text (in name, slug, description, tag, URL, command), environment, state (see
    STATES)."""
    servers = access.visible_servers(user).filter(SHOWN.get(criteria.get("show") or "active", SHOWN["active"]))
    if environment := criteria.get("environment"):
        servers = servers.filter(environment=environment)
    if text := (criteria.get("text") or "").strip():
        servers = servers.filter(_contains(text))
    state = criteria.get("state", "")
    if state == "closed":
        return servers.filter(enabled=True).exclude(pk__in=_servers_in(user, *_IN_STATE))
    return servers.filter(enabled=True, pk__in=_servers_in(user, state)) if state in _IN_STATE else servers


def page(user: access.User, servers: QuerySet[Server], sort: str, number: int, *, picks: bool = False) -> ServerPage:
    """The page `number` of what `matching` found, or the last one if there are fewer. `picks`: rows can be selected."""
    every = _ordered_keys(user, servers, sort)
    number = min(max(1, number), max(1, math.ceil(len(every) / PAGE)))
    keys = every[(number - 1) * PAGE : number * PAGE]
    found = {row.pk: row for row in with_session(Server.objects.filter(pk__in=keys).select_related("owner"), user)}
    listed = [found[key] for key in keys if key in found]
    days, tools = activity.last_days(user, listed), _tools(user, listed)
    icons.load(listed)
    rows = [
        row_of(server, session_of(server), tools.get(server.pk, 0), days[server.uid], picks=picks) for server in listed
    ]
    return ServerPage(rows, len(every), number)


def _contains(text: str) -> Q:
    # SQLite stores tags as JSON text, with non-ASCII letters escaped.
    found = Q(tags__icontains=json.dumps(text)[1:-1])
    for field in ("name", "slug", "description", "url", "command", "tags"):
        found |= Q(**{f"{field}__icontains": text})
    return found


def _sessions(user: access.User) -> QuerySet[McpSession]:
    return McpSession.objects.filter(identity__in=access.identities_of(user))


def _servers_in(user: access.User, *states: str) -> QuerySet[McpSession, Any]:
    condition = Q()
    for state in states:
        condition |= _IN_STATE[state]
    return _sessions(user).filter(condition).values("server_id")


def _tools(user: access.User, servers: list[Server]) -> dict[int, int]:
    counted = _offered(user).filter(server__in=servers).order_by().values_list("server_id")
    return dict(counted.annotate(Count("pk")))


def _offered(user: access.User) -> QuerySet[Definition]:
    return Definition.objects.filter(kind=DefinitionKind.TOOL, removed_at=None, identity__in=access.identities_of(user))


# --- while it is open -----------------------------------------------------------------------------------------------
def mark() -> str:
    """Differs whenever a server, a session or a worker changed: a page with the current mark is up to date."""
    counted = [
        rows.annotate(place=Value(place)).order_by().values("place").annotate(Count("pk"), Max("pk"), Sum(changing))
        for place, (rows, changing) in enumerate(
            ((Server.objects.all(), "version"), (McpSession.objects.all(), "version"), (Worker.objects.living(), "pk"))
        )
    ]
    first, *others = (
        rows.values_list("place", "pk__count", "pk__max", f"{changing}__sum")
        for rows, changing in zip(counted, ("version", "version", "pk"), strict=True)
    )
    seen = sorted(first.union(*others, all=True))  # in one statement
    return ".".join(str(number) for row in seen for number in row)


@dataclass(frozen=True)
class ServerState:
    """The part of a row that changes while the list is open. `reason`: why the session failed."""

    uid: UUID
    look: Look
    reason: Reason | None


def states(user: access.User, uids: Iterable[UUID]) -> list[ServerState]:
    """The states of servers that the user may see."""
    servers = access.visible_servers(user).filter(uid__in=list(uids)[:PAGE])
    return [
        ServerState(server.uid, shown(server, session).look, reason(session))
        for server in with_session(servers, user)
        for session in [session_of(server)]
    ]


# --- order -----------------------------------------------------------------------------------------------------------
#: SQLite compares bytes, which would sort "Zulu" before "alpha"
_BY_NAME: Final = Lower("name")


def _ordered_keys(user: access.User, servers: QuerySet[Server], sort: str) -> list[int]:
    """The keys of all servers. Orders by roll-up numbers or session state are computed here."""
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    if name in ("calls", "failed"):
        counts = activity.counts_of_last_day(user)
        known = servers.order_by(_BY_NAME, "pk").values_list("pk", "uid")
        number = {uid: (one.calls if name == "calls" else one.errors) for uid, one in counts.items()}
        return [pk for pk, _ in sorted(known, key=lambda row: number.get(row[1], 0), reverse=descending)]
    if name == "state":
        ranks = _ranks(user)
        enabled = servers.order_by(_BY_NAME, "pk").values_list("pk", "enabled")
        rank = {pk: ranks.get(pk, _NO_STATE) if on else _OFF for pk, on in enabled}
        return sorted(rank, key=rank.__getitem__, reverse=descending)
    if name == "tools":
        tools = _offered(user).filter(server=OuterRef("pk")).order_by().values("server").annotate(n=Count("pk"))
        servers = servers.annotate(order_key=Subquery(tools.values("n")))
    elif name == "used":
        servers = servers.annotate(
            order_key=Subquery(_sessions(user).filter(server=OuterRef("pk")).values("last_used_at")[:1])
        )
    elif name == "owner":
        servers = servers.annotate(order_key=Lower("owner__username"))
    else:
        servers = servers.annotate(order_key=_KEYS.get(name, _BY_NAME))
    chosen = F("order_key")
    ordered = chosen.desc(nulls_last=True) if descending else chosen.asc(nulls_last=True)
    return list(servers.order_by(ordered, _BY_NAME, "pk").values_list("pk", flat=True))


_KEYS = {"transport": F("transport"), "environment": F("environment")}


#: ranks after the session states: servers without any of these, and disabled servers
_NO_STATE, _OFF = len(_IN_STATE), len(_IN_STATE) + 1


def _ranks(user: access.User) -> dict[int, int]:
    """Ranks by server key, problems first."""
    whens = [When(condition, then=Value(rank)) for rank, condition in enumerate(_IN_STATE.values())]
    rank = Case(*whens, default=Value(_NO_STATE), output_field=IntegerField())
    return dict(_sessions(user).order_by().values_list("server_id", rank))
