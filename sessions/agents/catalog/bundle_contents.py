"""What a bundle's page shows: each tool, resource and prompt with its name there, and the weight of the tools list."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from servers.bundles import changing, exposed, names, offers, uris
from servers.definitions import model_tokens
from servers.enums import BundleListing, DefinitionKind
from servers.models import Bundle, BundleMember
from sessions.agents import endpoints
from sessions.agents.catalog import bundles, lists, search
from sessions.agents.catalog.bundles import Row
from sessions.agents.endpoints import Member
from sessions.mcp.server import definitions

#: list lengths: some clients truncate the first, and no model handles the second well
MANY_TOOLS, TOO_MANY_TOOLS = 40, 128
SEEN_BY_MODELS: Final = ("name", "description", "inputSchema")


@dataclass(frozen=True)
class Line:
    """One definition on a bundle's page. `reason`: why its name is not alias plus own name, or why it is not offered.
    `offered`: as chosen; `readable`: by clients; `first`: no earlier server offers this URI."""

    row: Row
    exposed: str
    offered: bool
    reason: str
    tokens: int
    readable: bool = True
    first: bool = True

    @property
    def listed(self) -> bool:
        return self.offered and self.readable and self.first


@dataclass(frozen=True)
class Weight:
    """The weight of the tools list: `before` is that of all the members' tools under their own names."""

    tools_before: int
    tools: int
    before: int
    after: int

    @property
    def many(self) -> bool:
        return self.tools > MANY_TOOLS

    @property
    def too_many(self) -> bool:
        return self.tools > TOO_MANY_TOOLS


@dataclass(frozen=True)
class Contents:
    members: list[Member]
    lines: list[Line]
    weight: Weight

    @property
    def complete(self) -> bool:
        """Whether the lists of every member are known."""
        return all(member.endpoint.connected for member in self.members)

    @property
    def off(self) -> list[Member]:
        """Members whose tools are counted although agents currently do not get them."""
        return [member for member in self.members if member.off]

    def of(self, member: Member) -> dict[str, list[Line]]:
        mine = [line for line in self.lines if line.row.member is member]
        return {kind.value: [line for line in mine if line.row.kind == kind] for kind in DefinitionKind}


def contents(user: Any, bundle: Bundle, rows: Sequence[BundleMember]) -> Contents:
    """The contents as this person sees the servers. `rows` may be members that are not stored yet."""
    members = endpoints.members_of(user, list(rows))
    everything = bundles.rows_of(members, DefinitionKind, hidden=True)
    named = {
        kind: exposed.preview(bundle.pk, kind, {row.target: row.member.alias for row in everything if row.kind == kind})
        for kind in (DefinitionKind.TOOL, DefinitionKind.PROMPT)
    }
    lines = _once([_line(row, named.get(row.kind, {})) for row in everything])
    return Contents(members, lines, _weight(bundle, [line for line in lines if line.row.kind == DefinitionKind.TOOL]))


def _once(lines: list[Line]) -> list[Line]:
    """A URI that several members offer belongs to the first, and the lines of the others say so."""
    owners: dict[tuple[DefinitionKind, str], Member] = {}
    found = []
    for line in lines:
        row = line.row
        if bundles.is_shared(row):
            if (owner := owners.get((row.kind, row.key))) is not None:
                line = replace(line, first=False, reason=f"Belongs to {owner.endpoint.name}, which lists it first.")
            elif line.offered:
                owners[row.kind, row.key] = row.member
        found.append(line)
    return found


def _line(row: Row, named: Mapping[names.Target, str]) -> Line:
    offered = bundles.chosen_by(row.member, row.kind, row.key)
    if row.kind not in (DefinitionKind.TOOL, DefinitionKind.PROMPT):
        reason = ""
        if row.kind == DefinitionKind.RESOURCE_TEMPLATE and uris.template_outward(row.member.alias, row.key) is None:
            reason = uris.HIDDEN
        elif row.kind == DefinitionKind.RESOURCE and not uris.is_readable(row.key):
            reason = uris.NO_HOST
        return Line(row, uris.exposed_uri(row.member.alias, row.key), offered, reason, 0)
    name = named[row.target]
    body = lists.exposed_body(row, named, ()) if row.kind == DefinitionKind.TOOL else ""
    if body is None:
        return Line(row, name, offered, definitions.BAD_SCHEMA, 0, readable=False)
    return Line(row, name, offered, _reason(row, name), tokens_of(body) if body else 0)


def _reason(row: Row, name: str) -> str:
    if name == f"{row.member.alias}{names.SEPARATOR}{row.key}":
        return ""
    if names.plain(row.member.alias, row.key) is not None:
        return "Another name differs only in case or similar characters."
    if len(f"{row.member.alias}{names.SEPARATOR}{row.key}") > names.BUDGET:
        return f"Longer than {names.BUDGET} characters."
    return "Has characters that models do not accept."


def tokens_of(body: str) -> int:
    """The tokens of a tool as a model sees it: clients pass on name, description and input schema."""
    value = json.loads(body)
    seen = {key: value[key] for key in SEEN_BY_MODELS if key in value}
    return model_tokens.count(json.dumps(seen, ensure_ascii=False, separators=(",", ":")))


def _weight(bundle: Bundle, tools: list[Line]) -> Weight:
    before = sum(tokens_of(line.row.body) for line in tools)
    offered = [line for line in tools if line.listed]
    own: tuple[str, ...] = ()
    if bundle.listing == BundleListing.SEARCH:
        own, offered = search.DEFINITIONS, [line for line in offered if offers.offers(bundle.pinned, line.exposed)]
    after = sum(line.tokens for line in offered) + sum(tokens_of(body) for body in own)
    return Weight(len(tools), len(offered) + len(own), before, after)


def assign_names(user: Any, bundle: Bundle) -> None:
    """Assign names to everything that the members have now, so that they are settled before an agent asks."""
    rows = changing.current_members(bundle)
    everything = bundles.rows_of(
        endpoints.members_of(user, list(rows)), (DefinitionKind.TOOL, DefinitionKind.PROMPT), hidden=True
    )
    for kind in (DefinitionKind.TOOL, DefinitionKind.PROMPT):
        wanted = {row.target: row.member.alias for row in everything if row.kind == kind}
        if wanted.keys() - exposed.known(bundle.pk, kind).keys():
            exposed.assign(bundle.pk, kind, wanted)
