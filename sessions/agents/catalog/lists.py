"""The lists of an endpoint, from the rows of the catalogue: an agent's list never causes a request to the server."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

from django.core import signing

from servers.agents.policies import KIND_OF
from servers.bundles import offers, overrides, uris
from servers.bundles.names import Target
from servers.bundles.overrides import Override
from servers.enums import BundleListing, DefinitionKind
from servers.models import Definition
from servers.sql import fetch, fetch_one
from sessions.agents.catalog import bundles, search
from sessions.agents.catalog.bundles import Row
from sessions.agents.endpoints import BundleEndpoint, Endpoint, Entry, Member
from sessions.agents.policy.policy_check import policies_of, policies_of_members
from sessions.catalog import reading
from sessions.mcp.core import json_text, jsonrpc, methods
from sessions.mcp.core.capabilities import declares
from sessions.mcp.core.headers import BadAnnotation, Mirrored, mirrored_arguments
from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers, definitions, rewriting
from sessions.mcp.server.refusals import invalid_params, later

PAGE: Final = 250
#: a longer definition is made anew for each list, not kept: what is kept is bounded by number
KEPT_CHARS: Final = 64 * 1024
TTL_MS: Final = 60_000
#: in `_meta` of a bundle's lists: what became of each member
MEMBERS_KEY: Final = "mcpadmin/members"
_SALT: Final = "mcpadmin.agents.cursor"
_NAMED: Final = (DefinitionKind.TOOL, DefinitionKind.PROMPT)
KINDS: Final[Mapping[str, DefinitionKind]] = {
    methods.TOOLS_LIST: DefinitionKind.TOOL,
    methods.RESOURCES_LIST: DefinitionKind.RESOURCE,
    methods.TEMPLATES_LIST: DefinitionKind.RESOURCE_TEMPLATE,
    methods.PROMPTS_LIST: DefinitionKind.PROMPT,
}
#: what `list_changed` is told of -> the lists that it covers
CHANGED: Final[Mapping[str, tuple[DefinitionKind, ...]]] = {
    "tools": (DefinitionKind.TOOL,),
    "resources": (DefinitionKind.RESOURCE, DefinitionKind.RESOURCE_TEMPLATE),
    "prompts": (DefinitionKind.PROMPT,),
}


def was_read(endpoint: Endpoint, method: str) -> bool:
    """Whether the list was ever read: before that, empty would be a lie."""
    session = endpoint.session
    return session is not None and reading.was_read(session.catalog_counts, KINDS[method])


def problem(endpoint: Endpoint, method: str) -> str:
    """Why the list could not be read; empty if it could, or was not tried yet."""
    session = endpoint.session
    note = session.catalog_counts.get(KINDS[method].value) if session is not None else None
    return str(note.get("problem") or "") if isinstance(note, dict) else ""


def page(entry: Entry, method: str, params: Mapping[str, Any], era: Era) -> str:
    """A page as JSON text. Raises Refusal for a cursor that is not ours, or of a list that changed since."""
    if isinstance(entry.place, BundleEndpoint):
        return _page_of_bundle(entry, entry.place, method, params, era)
    kind, shown = KINDS[method], _shown(entry)
    found, whole = _rows(entry, kind)
    rows = [row for row in found if shown(kind, row[0])]
    generation = _digest(rows)
    start = _start(entry, method, generation, params.get("cursor"))
    here = [row[2] for row in rows[start : start + PAGE]]
    items = [item(body, era) for body in (here if whole else _bodies(here))]
    more = start + PAGE < len(rows)
    cursor = _cursor(entry, method, generation, start + PAGE) if more else ""
    return answers.page(method, items, cursor, era, TTL_MS if entry.endpoint.ready else 0)


#: by hand: building this with the ORM is a sixth of what a list costs
_OFFERED: Final = f"""
FROM {Definition._meta.db_table}
WHERE identity_id = %s AND kind = %s AND removed_at IS NULL AND approved_digest = '' ORDER BY position, id
"""
_LIST: Final = f"SELECT key, digest, body {_OFFERED} LIMIT {PAGE + 1}"
_KEYS: Final = f"SELECT key, digest, id {_OFFERED}"


def _rows(entry: Entry, kind: DefinitionKind) -> tuple[list[tuple[str, str, Any]], bool]:
    """Key and digest of what is offered, in the server's order, with the body; or with the row's key, False, where there
    are more than a page: a hostile list has many megabytes, and all else of this process waits for this thread."""
    session = entry.endpoint.session
    if session is None:
        return [], True
    values = [session.identity_id, kind.value]
    found = fetch(_LIST, values)
    return (found, True) if len(found) <= PAGE else (fetch(_KEYS, values), False)


def _bodies(keys: list[int]) -> list[str]:
    """In this order."""
    found = dict(Definition.objects.filter(pk__in=keys).values_list("pk", "body"))
    return [found[key] for key in keys if key in found]


#: only the row of a tool that has such
_MIRRORED: Final = f"""
SELECT body FROM {Definition._meta.db_table}
WHERE identity_id = %s AND kind = %s AND key = %s AND removed_at IS NULL AND approved_digest = '' AND body LIKE %s
"""  # noqa: S608  # the name of our own model


def _shown(entry: Entry) -> Callable[[DefinitionKind, str], bool]:
    """Whether a list names a definition: what may never be used only costs a model its attention."""
    known, principal = policies_of(entry), entry.principal
    filters = known.deny_anything

    def shown(kind: DefinitionKind, key: str) -> bool:
        if kind == DefinitionKind.TOOL and not principal.may_use(key):
            return False
        return not filters or not known.denies(KIND_OF[kind], key)

    return shown


def _digest(rows: list[Any]) -> str:
    return hashlib.sha256(repr([row[:2] for row in rows]).encode()).hexdigest()[:16]


def item(body: str, era: Era = Era.MODERN) -> str:
    """As the server wrote it, except what the agent's era does not have. `execution` is left out: it offers tasks, which
    this endpoint does not."""
    legacy = _is_other_for_legacy(body, era)
    if not legacy and '"execution"' not in body:
        return body
    return (_item if len(body) <= KEPT_CHARS else _item.__wrapped__)(body, legacy)


def _is_other_for_legacy(body: str, era: Era) -> bool:
    return era is Era.LEGACY and '"outputSchema"' in body


@lru_cache(maxsize=2_048)
def _item(body: str, legacy: bool) -> str:
    value = json.loads(body)
    changed = value.pop("execution", None) is not None
    if legacy:
        changed |= definitions.drop_other_structure(value)
    return json.dumps(value, separators=(",", ":")) if changed else body


def _cursor(entry: Entry, method: str, generation: str, offset: int) -> str:
    return signing.dumps([entry.place.owner, method, generation, offset], salt=_SALT)


def _start(entry: Entry, method: str, generation: str, cursor: Any) -> int:
    if cursor is None:
        return 0
    try:
        owner, listed, before, offset = signing.loads(str(cursor), salt=_SALT)
    except signing.BadSignature as problem:
        raise invalid_params("This cursor was not issued here.") from problem
    if (owner, listed) != (entry.place.owner, method):
        raise invalid_params("This cursor belongs to another list.")
    if before != generation:
        raise invalid_params("The list has changed. Request it again without a cursor.")
    return int(offset)


# --- bundles -----------------------------------------------------------------------------------------------------------
def _page_of_bundle(entry: Entry, place: BundleEndpoint, method: str, params: Mapping[str, Any], era: Era) -> str:
    """The members' lists, one after the other. Raises Refusal also if no member can be listed, or none of those that offer
    such: an agent would keep an empty list."""
    kind, outcomes = KINDS[method], {one.alias: _outcome(one, method) for one in place.members}
    listed = [one for one in place.members if _is_listed(one, method)]
    missing = [one for one in place.members if one not in listed and _offers(one, kind)]
    if not listed or (missing and not any(_offers(one, kind) for one in listed)):
        words = "; ".join(f"{one.endpoint.name}: {outcomes[one.alias]}" for one in place.members)
        words = f"No server of {place.name} that offers {_capability(kind)} can be listed. {words}"
        raise later(503, jsonrpc.INTERNAL_ERROR, words, 5, {"members": outcomes})
    rows, all_names = _usable(entry, place, [kind], listed, most=PAGE)
    names = all_names.get(kind, {})
    own: tuple[str, ...] = ()
    if kind == DefinitionKind.TOOL and place.bundle.listing == BundleListing.SEARCH:
        own, rows = search.DEFINITIONS, _pinned(place, rows, names)
    generation = _digest([(one,) for one in own] + [(_outward(row, names), row.digest) for row in rows])
    start = _start(entry, method, generation, params.get("cursor"))
    twins = twin_titles(rows) if names else frozenset()
    everything = len(own) + len(rows)
    end = min(start + PAGE, everything)
    here = _with_bodies(rows[max(0, start - len(own)) : end - len(own)])
    shown = [(row, exposed_body(row, names, twins, era)) for row in here]
    items = [*own[start:end], *(body for _, body in shown if body is not None)]
    for alias, count in Counter(row.member.alias for row, body in shown if body is None).items():
        outcomes[alias] += f"; {count} left out. {definitions.BAD_SCHEMA}"
    cursor = _cursor(entry, method, generation, start + PAGE) if start + PAGE < everything else ""
    ready = all(not one.down for one in place.members) and place.ready
    return answers.page(method, items, cursor, era, TTL_MS if ready else 0, {MEMBERS_KEY: outcomes})


def _capability(kind: DefinitionKind) -> str:
    return {DefinitionKind.TOOL: "tools", DefinitionKind.PROMPT: "prompts"}.get(kind, "resources")


def _has(member: Member, kind: DefinitionKind) -> bool:
    return declares(member.endpoint.capabilities, _capability(kind))


def _offers(member: Member, kind: DefinitionKind) -> bool:
    """Whether anything of this kind may come from it."""
    row = member.row
    patterns = {DefinitionKind.TOOL: row.tools, DefinitionKind.PROMPT: row.prompts}.get(kind, row.resources)
    return bool(patterns) and _has(member, kind)


def is_known(member: Member, method: str) -> bool:
    """Whether nothing more is to be learned of this list by waiting."""
    if member.down or (member.endpoint.connected and not _has(member, KINDS[method])):
        return True
    return was_read(member.endpoint, method) or bool(problem(member.endpoint, method))


def _is_listed(member: Member, method: str) -> bool:
    return member.listed and (not _has(member, KINDS[method]) or was_read(member.endpoint, method))


def _outcome(member: Member, method: str) -> str:
    """The outcome for a member in this list, for people who wonder what is missing."""
    if _is_listed(member, method):
        return f"as before: {member.down}" if member.down else "ok"
    return member.down or problem(member.endpoint, method) or "not connected yet"


def _usable(
    entry: Entry,
    place: BundleEndpoint,
    kinds: Iterable[DefinitionKind],
    members: Iterable[Member],
    *,
    bodies: bool = True,
    most: int | None = None,
) -> tuple[list[Row], dict[DefinitionKind, dict[Target, str]]]:
    """What is offered and not denied, and the names of tools and prompts."""
    rows = bundles.offered(entry, kinds, members, bodies=bodies, most=most)
    names: dict[DefinitionKind, dict[Target, str]] = {
        kind: bundles.named(place, kind, [row for row in rows if row.kind == kind]) for kind in kinds if kind in _NAMED
    }
    known = policies_of_members(entry, place)

    def usable(row: Row) -> bool:
        mine = known[row.member.endpoint.server.pk]
        return not row.unseen and not (
            mine.deny_anything and mine.denies(KIND_OF[row.kind], row.key, _outward(row, names.get(row.kind, {})))
        )

    return [row for row in rows if usable(row)], names


def _pinned(place: BundleEndpoint, rows: list[Row], names: Mapping[Target, str]) -> list[Row]:
    return [row for row in rows if offers.offers(place.bundle.pinned, names[row.target])]


def _outward(row: Row, names: Mapping[Target, str]) -> str:
    return names.get(row.target) or uris.exposed_uri(row.member.alias, row.key)


def _with_bodies(rows: list[Row]) -> list[Row]:
    """One query where they were not read."""
    if all(row.body for row in rows):
        return rows
    bodies = dict(Definition.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", "body"))
    return [replace(row, body=bodies[row.pk]) for row in rows if row.pk in bodies]


def twin_titles(rows: Iterable[Row]) -> frozenset[str]:
    """Titles that tools of several members have."""
    owners: dict[str, set[str]] = {}
    for row in rows:
        if row.title:
            owners.setdefault(row.title, set()).add(row.member.alias)
    return frozenset(title for title, aliases in owners.items() if len(aliases) > 1)


def exposed_body(row: Row, names: Mapping[Target, str], twins: Collection[str], era: Era = Era.MODERN) -> str | None:
    """A definition as a bundle has it, as JSON text. None for one that would cost clients the whole list."""
    owner = row.member.endpoint.name if row.title in twins else ""
    legacy = _is_other_for_legacy(row.body, era)
    expose = _exposed if len(row.body) <= KEPT_CHARS else _exposed.__wrapped__
    return expose(row.body, row.kind, row.member.alias, names.get(row.target, ""), owner, row.override, legacy)


@lru_cache(maxsize=2_048)
def _exposed(
    body: str, kind: DefinitionKind, alias: str, name: str, owner: str, override: Override, legacy: bool
) -> str | None:
    value = definitions.mended(overrides.applied(json.loads(body), override), tool=kind == DefinitionKind.TOOL)
    if value is None:
        return None
    value.pop("execution", None)
    if legacy:
        definitions.drop_other_structure(value)
    changed: dict[str, str] = {}
    if kind == DefinitionKind.RESOURCE:
        changed["uri"] = uris.exposed_uri(alias, value["uri"])
    elif kind == DefinitionKind.RESOURCE_TEMPLATE:
        changed["uriTemplate"] = uris.exposed_uri(alias, value["uriTemplate"])
    else:
        changed["name"] = name
        if owner and isinstance(title := value.get("title"), str):
            changed["title"] = f"{title} ({owner})"
    if kind not in _NAMED and not isinstance(value.get("name"), str):
        changed["name"] = next(iter(changed.values()))
    return json_text.encode(rewriting.definition(value, partial(uris.exposed_uri, alias), **changed))


def findable(entry: Entry) -> list[dict[str, Any]]:
    """Every tool of a bundle in search mode, as a bundle has it."""
    place = entry.place
    if not isinstance(place, BundleEndpoint):
        return []
    rows, names = _usable(entry, place, [DefinitionKind.TOOL], [one for one in place.members if one.listed])
    bodies = (exposed_body(row, names[DefinitionKind.TOOL], ()) for row in rows)
    return [json.loads(body) for body in bodies if body is not None]


def fingerprints(entry: Entry) -> dict[str, str]:
    """Of what this principal may see of each list, to find out which one changed. One query; three for a
    bundle."""
    place = entry.place
    if isinstance(place, BundleEndpoint):
        members = [one for one in place.members if one.listed]
        rows, names = _usable(entry, place, DefinitionKind, members, bodies=False)
        if place.bundle.listing == BundleListing.SEARCH:
            tools = [row for row in rows if row.kind == DefinitionKind.TOOL]
            kept = _pinned(place, tools, names[DefinitionKind.TOOL])
            rows = [row for row in rows if row.kind != DefinitionKind.TOOL] + kept
        known = [(row.kind, f"{row.member.alias} {row.key}", row.digest) for row in rows]
    else:
        listed = Definition.objects.filter(
            server_id=place.server.pk, removed_at=None, approved_digest="", **place.identity
        )
        shown = _shown(entry)
        every = listed.order_by("kind", "position", "pk").values_list("kind", "key", "digest")
        known = [(DefinitionKind(kind), key, digest) for kind, key, digest in every if shown(DefinitionKind(kind), key)]
    return {
        word: _digest([(key, digest) for kind, key, digest in known if kind in kinds])
        for word, kinds in CHANGED.items()
    }


def mirrored(entry: Entry, tool: str) -> tuple[Mirrored, ...]:
    """The arguments of a tool that headers must repeat."""
    session = entry.endpoint.session
    if session is None:
        return ()
    row = fetch_one(_MIRRORED, [session.identity_id, DefinitionKind.TOOL.value, tool, "%x-mcp-header%"])
    return mirrored_by(json.loads(row[0])) if row is not None else ()


def mirrored_by(definition: Mapping[str, Any]) -> tuple[Mirrored, ...]:
    """The same of the definition of a tool."""
    try:
        return mirrored_arguments(definition.get("inputSchema"))
    except BadAnnotation:
        return ()
