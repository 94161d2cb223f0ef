"""Requests to a bundle: to which member each goes, and under which name there. Each read is for a thread.

A routed request is one to the member's own endpoint with the server's own names, so what follows knows no bundles. It
carries the way back (`BundleRoute`): what goes to the agent has its names again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any, Final

from django.db.models import Q, Value

from servers.bundles import exposed, offers, overrides, uris
from servers.bundles.exposed import Renamed
from servers.bundles.names import Target
from servers.bundles.overrides import Override
from servers.enums import BundleListing, DefinitionKind
from servers.models import Definition, Server
from sessions.agents.call_request import text_of, unknown_tool
from sessions.agents.catalog import search
from sessions.agents.endpoints import BundleEndpoint, Endpoint, Entry, Member
from sessions.agents.exchange import BundleRoute, Exchange
from sessions.mcp.core import jsonrpc, methods
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import RESOURCE_NOT_FOUND, Refusal, invalid_params

_NAMED: Final = (DefinitionKind.TOOL, DefinitionKind.PROMPT)
_BY_NAME: Final = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET})
_OF_URI: Final = frozenset({methods.RESOURCES_READ, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE})


@dataclass(frozen=True)
class Row:
    """A definition that a member offers to this principal."""

    member: Member
    kind: DefinitionKind
    key: str
    digest: str
    body: str  # empty where it was not read
    override: Override = overrides.NONE
    unseen: bool = False  # it changed in a way that breaks what it was, and no person has seen that
    pk: int = 0
    title: str = ""

    @property
    def target(self) -> Target:
        return self.member.uid, self.key


# --- what is offered -------------------------------------------------------------------------------------------------
def offered(
    entry: Entry,
    kinds: Iterable[DefinitionKind],
    members: Iterable[Member],
    *,
    bodies: bool = True,
    most: int | None = None,
) -> list[Row]:
    """To this principal, in the order of the members, and of each one's own list. One query. Also what rules deny: a call
    of it is told so."""
    rows = rows_of(members, kinds, bodies=bodies, most=most)
    return [row for row in rows if row.kind != DefinitionKind.TOOL or entry.principal.may_use(row.key)]


def rows_of(
    members: Iterable[Member],
    kinds: Iterable[DefinitionKind],
    *,
    hidden: bool = False,
    bodies: bool = True,
    most: int | None = None,
) -> list[Row]:
    """What a bundle of these members offers; with `hidden`, all that they have, each member's own. One query; a second one where there are
    more than `most`: then no bodies are read, which may be many megabytes."""
    chosen = list(members)
    if not chosen:
        return []
    rows = Definition.objects.filter(_mine(chosen), kind__in=list(kinds), removed_at=None).order_by("position", "pk")
    found: dict[int, list[Row]] = {one.endpoint.server.pk: [] for one in chosen}
    by_server = {one.endpoint.server.pk: one for one in chosen}
    columns = ("pk", "server_id", "kind", "key", "title", "digest", "approved_digest")
    read = list(rows.values_list(*columns, "body" if bodies else Value(""))[: None if most is None else most + 1])
    if most is not None and len(read) > most:
        read = list(rows.values_list(*columns, Value("")))
    for pk, server_id, kind, key, title, digest, approved, body in read:
        member = by_server[server_id]
        if hidden or chosen_by(member, DefinitionKind(kind), key):
            override = overrides.stored(member.row.overrides, key) if kind == DefinitionKind.TOOL else overrides.NONE
            digest += override.digest
            row = Row(member, DefinitionKind(kind), key, digest, body, override, bool(approved), pk, title)
            found[server_id].append(row)
    listed = [row for one in chosen for row in found[one.endpoint.server.pk]]
    return listed if hidden else _once(listed)


def shows(entry: Entry, member: Member, kind: DefinitionKind, key: str) -> bool:
    """Whether the bundle offers it, and the token allows it."""
    return chosen_by(member, kind, key) and (kind != DefinitionKind.TOOL or entry.principal.may_use(key))


def chosen_by(member: Member, kind: DefinitionKind, key: str) -> bool:
    if kind == DefinitionKind.TOOL:
        return offers.offers(member.row.tools, key)
    if kind == DefinitionKind.PROMPT:
        return offers.offers(member.row.prompts, key)
    if kind == DefinitionKind.RESOURCE_TEMPLATE and uris.template_outward(member.alias, key) is None:
        return False
    if kind == DefinitionKind.RESOURCE and not uris.is_readable(key):
        return False
    return offers.offers(member.row.resources, key)


def is_shared(row: Row) -> bool:
    """Whether the URI is the same for each member that lists it."""
    return row.kind not in _NAMED and uris.is_global(row.key)


def _once(rows: list[Row]) -> list[Row]:
    """A global URI that several members list is the first one's."""
    seen: set[tuple[DefinitionKind, str]] = set()
    found = []
    for row in rows:
        if is_shared(row):
            if (row.kind, row.key) in seen:
                continue
            seen.add((row.kind, row.key))
        found.append(row)
    return found


def named(place: BundleEndpoint, kind: DefinitionKind, rows: Iterable[Row]) -> dict[Target, str]:
    """The names of `rows`. Writes those that are new."""
    known, wanted = exposed.known(place.bundle.pk, kind), {row.target: row.member.alias for row in rows}
    if wanted.keys() <= known.keys():
        return known
    return exposed.assign(place.bundle.pk, kind, wanted)


# --- routing ---------------------------------------------------------------------------------------------------------
def routed(exchange: Exchange) -> Exchange:
    """The same request at the member that it concerns. A request to one server stays as it is. Raises Refusal."""
    place = exchange.entry.place
    if not isinstance(place, BundleEndpoint):
        return exchange
    if exchange.method in _OF_URI:
        uri = text_of(exchange, "uri")
        member, original = _resource(exchange, place, uri)
        return at(exchange, member, uri, uri=original)
    if exchange.method == methods.COMPLETE:
        return _completion(exchange, place)
    if exchange.method == methods.TOOLS_CALL and _calls_by_search(exchange, place):
        exchange = search.inner(exchange)
    name = text_of(exchange, "name")
    kind = DefinitionKind.TOOL if exchange.method == methods.TOOLS_CALL else DefinitionKind.PROMPT
    member, original = _target(exchange.entry, place, kind, name)
    hidden = _hidden(member, original) if kind == DefinitionKind.TOOL else frozenset()
    return at(exchange, member, name, hidden, name=original)


def concerned(exchange: Exchange) -> tuple[Member, ...]:
    """The members whose lists must be known before a request to a bundle is routed: the one that it names, or all. Raises
    Refusal."""
    place = exchange.entry.place
    assert isinstance(place, BundleEndpoint)  # noqa: S101  # nothing else has members
    if exchange.method == methods.TOOLS_CALL and _calls_by_search(exchange, place):
        exchange = search.inner(exchange)
    ref = exchange.params.get("ref") if exchange.method == methods.COMPLETE else exchange.params
    asked = ref if isinstance(ref, dict) else {}
    uri, name = asked.get("uri"), asked.get("name")
    found: list[Member | None] = []
    if isinstance(uri, str) and exchange.method not in _BY_NAME:
        found = [one for one, _ in _owners(place, uri)]
    elif isinstance(name, str):
        kind = DefinitionKind.TOOL if exchange.method == methods.TOOLS_CALL else DefinitionKind.PROMPT
        named = exposed.find(place.bundle.pk, kind, name)
        found = [place.member((named.target if isinstance(named, Renamed) else named)[0])] if named is not None else []
    return tuple(one for one in found if one is not None) or tuple(place.members)


def _calls_by_search(exchange: Exchange, place: BundleEndpoint) -> bool:
    return place.bundle.listing == BundleListing.SEARCH and exchange.params.get("name") == search.CALL_TOOL


def _hidden(member: Member, tool: str) -> frozenset[str]:
    """The parameters that the bundle leaves out. One query for a tool that has such."""
    override = overrides.stored(member.row.overrides, tool)
    if not override.hidden:
        return frozenset()
    rows = Definition.objects.filter(
        server_id=member.endpoint.server.pk,
        kind=DefinitionKind.TOOL,
        key=tool,
        removed_at=None,
        **member.endpoint.identity,
    )
    body = rows.values_list("body", flat=True).first()
    return overrides.left_out(json.loads(body), override) if body else frozenset()


def at(exchange: Exchange, member: Member, shown: str, hidden: frozenset[str] = frozenset(), **params: Any) -> Exchange:
    via = BundleRoute(exchange.entry.place.name, shown, member.outward, hidden)
    return replace(exchange, entry=exchange.entry.at(member), params={**exchange.params, **params}, via=via)


def at_server(exchange: Exchange, server_id: int | None, target: str) -> Exchange:
    """For a call that was placed before: at the member whose call it is. `target` as the server names it."""
    place = exchange.entry.place
    if not isinstance(place, BundleEndpoint):
        return exchange
    member = next((one for one in place.members if one.endpoint.server.pk == server_id), None)
    if member is None:
        raise invalid_params("The server of this call is no longer part of this bundle.")
    shown = member.outward(target)
    if exchange.method in (methods.TOOLS_CALL, methods.PROMPTS_GET):
        kind = DefinitionKind.TOOL if exchange.method == methods.TOOLS_CALL else DefinitionKind.PROMPT
        shown = exposed.known(place.bundle.pk, kind).get((member.uid, target), target)
    return at(exchange, member, shown)


def _target(entry: Entry, place: BundleEndpoint, kind: DefinitionKind, name: str) -> tuple[Member, str]:
    """Resolved by the table. A hidden definition is refused like one that does not exist."""
    unknown = unknown_tool(name) if kind == DefinitionKind.TOOL else invalid_params(f"Unknown prompt: {name[:200]}")
    found = exposed.find(place.bundle.pk, kind, name)
    if found is None or (isinstance(found, Renamed) and not found.now):
        # an agent may call what no one has listed yet
        named(place, kind, offered(entry, [kind], place.members, bodies=False))
        found = exposed.find(place.bundle.pk, kind, name)
    if isinstance(found, Renamed):
        raise _former(entry, place, kind, found) or unknown
    member = place.member(found[0]) if found is not None else None
    if found is None or member is None or not shows(entry, member, kind, found[1]):
        raise unknown
    return member, found[1]


def _former(entry: Entry, place: BundleEndpoint, kind: DefinitionKind, found: Renamed) -> Refusal | None:
    """What a name of before became. None for an agent that may not use what it meant: names are told to no one else."""
    uid, original = found.target
    member = place.member(uid)
    if member is not None:
        told = found.now and shows(entry, member, kind, original)
        return invalid_params(f"{found.exposed} was renamed to {found.now}.") if told else None
    principal = entry.principal
    left = Server.objects.filter(uid=uid).values_list("pk", flat=True).first()
    reached = principal.server_ids is None if left is None else principal.reaches(left)
    if not reached or (kind == DefinitionKind.TOOL and not principal.may_use(original)):
        return None
    return invalid_params(f"{found.exposed} is no longer part of {place.name}.")


def _resource(exchange: Exchange, place: BundleEndpoint, uri: str) -> tuple[Member, str]:
    asked = _owners(place, uri)
    known = _lists(asked)
    for member, original in asked:
        if _readable(exchange.entry, member, original, known, listed=uris.is_global(uri)):
            return member, original
    raise _no_resource(exchange, uri)


def _owners(place: BundleEndpoint, uri: str) -> list[tuple[Member, str]]:
    """The members that a URI may belong to, in their order, and what it is there. A global one may be of any."""
    if uris.is_global(uri):
        return [(one, uri) for one in place.members]
    found = uris.inward(uri)
    return [] if found is None else [(one, found[1]) for one in place.members if one.alias == found[0]]


def readable_differ(before: Endpoint | BundleEndpoint, after: Endpoint | BundleEndpoint) -> bool:
    """Whether other resources may be offered now. A server's own endpoint offers all that the server has."""
    return _reach(before) != _reach(after)


def _reach(place: Endpoint | BundleEndpoint) -> list[tuple[str, list[str]]]:
    return [(one.alias, one.row.resources) for one in place.members] if isinstance(place, BundleEndpoint) else []


def readable(entry: Entry, asked: Iterable[str]) -> set[str]:
    """The URIs, as the agent knows them, that a bundle offers. One query."""
    place = entry.place
    if not isinstance(place, BundleEndpoint):
        return set()
    owners = {uri: _owners(place, uri) for uri in asked}
    known = _lists([one for found in owners.values() for one in found])
    return {
        uri
        for uri, found in owners.items()
        if any(_readable(entry, one, original, known, listed=uris.is_global(uri)) for one, original in found)
    }


@dataclass(frozen=True)
class _Lists:
    """For one member: the requested URIs that it lists, and its templates."""

    resources: set[str] = field(default_factory=set)
    templates: list[str] = field(default_factory=list)


def _lists(asked: Sequence[tuple[Member, str]]) -> dict[str, _Lists]:
    """The lists by the uid of the member. One query."""
    members, originals = {one.endpoint.server.pk: one for one, _ in asked}, {original for _, original in asked}
    found = {one.uid: _Lists() for one in members.values()}
    if not members:
        return found
    wanted = Q(kind=DefinitionKind.RESOURCE, key__in=originals) | Q(kind=DefinitionKind.RESOURCE_TEMPLATE)
    rows = Definition.objects.filter(_mine(members.values()), wanted, removed_at=None)
    for server_id, kind, key in rows.order_by("position", "pk").values_list("server_id", "kind", "key"):
        lists = found[members[server_id].uid]
        if kind == DefinitionKind.RESOURCE:
            lists.resources.add(key)
        else:
            lists.templates.append(key)
    return found


def _readable(entry: Entry, member: Member, uri: str, known: Mapping[str, _Lists], *, listed: bool) -> bool:
    """A URI is offered if its entry in a list is. One that no list has is by the template that it fits; where none fits,
    a server may know it all the same, unless it must be `listed`."""
    lists = known[member.uid]
    if uri in lists.resources:
        return shows(entry, member, DefinitionKind.RESOURCE, uri)
    fitting = [one for one in lists.templates if uris.fits(one, uri)]
    if fitting:
        return any(shows(entry, member, DefinitionKind.RESOURCE_TEMPLATE, one) for one in fitting)
    return not listed and offers.offers(member.row.resources, uri)


def _mine(members: Iterable[Member]) -> Q:
    """The rows of these members, as this person sees them."""
    return reduce(or_, (Q(server_id=one.endpoint.server.pk, **one.endpoint.identity) for one in members))


def _completion(exchange: Exchange, place: BundleEndpoint) -> Exchange:
    ref = exchange.params.get("ref")
    if isinstance(ref, dict) and ref.get("type") == "ref/prompt" and isinstance(name := ref.get("name"), str):
        member, original = _target(exchange.entry, place, DefinitionKind.PROMPT, name)
        return at(exchange, member, name, ref={**ref, "name": original})
    if isinstance(ref, dict) and ref.get("type") == "ref/resource" and isinstance(uri := ref.get("uri"), str):
        member, original = _template(exchange, place, uri)
        return at(exchange, member, uri, ref={**ref, "uri": original})
    raise invalid_params("completion/complete needs ref (ref/prompt with name, or ref/resource with uri) and argument.")


def _template(exchange: Exchange, place: BundleEndpoint, uri: str) -> tuple[Member, str]:
    """One query."""
    asked = _owners(place, uri) or [(one, uri) for one in place.members if uris.inward(uri) is None]
    if asked and "\0" not in uri:
        kinds = (DefinitionKind.RESOURCE_TEMPLATE, DefinitionKind.RESOURCE)
        originals = {original for _, original in asked}
        rows = Definition.objects.filter(
            _mine(one for one, _ in asked), removed_at=None, kind__in=kinds, key__in=originals
        )
        found = set(rows.values_list("server_id", "kind"))
        for member, original in asked:
            mine = [kind for kind in kinds if (member.endpoint.server.pk, kind.value) in found]
            if any(shows(exchange.entry, member, kind, original) for kind in mine):
                return member, original
    raise invalid_params(f"Unknown resource template: {uri[:200]}", {"uri": uri})


def _no_resource(exchange: Exchange, uri: str) -> Refusal:
    code = jsonrpc.INVALID_PARAMS if exchange.era is Era.MODERN else RESOURCE_NOT_FOUND
    return Refusal(200, code, f"Resource not found: {uri[:200]}", {"uri": uri})
