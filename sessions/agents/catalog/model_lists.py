"""What a model sees of an endpoint: the tools list exactly as for a token with every scope and no rules, with the cost
of each tool and advice on making it easier to use."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servers.agents import policies
from servers.agents.policies import KIND_OF, Policies
from servers.bundles import exposed, offers
from servers.bundles.names import shown_by_claude_code
from servers.definitions import model_tokens
from servers.definitions.advice import Advice, advice
from servers.enums import BundleListing, DefinitionKind
from servers.models import Bundle, BundleMember, Definition, Server
from sessions.agents import endpoints
from sessions.agents.catalog import bundles, lists, search
from sessions.agents.catalog.bundle_contents import tokens_of
from sessions.agents.catalog.bundles import Row
from sessions.agents.catalog.preview import ANY
from sessions.agents.endpoints import BundleEndpoint, Member


@dataclass(frozen=True)
class ModelTool:
    """`row` is None for tools at a server's own endpoint, and for those that mcpadmin adds. `listed`: not only found by
    search."""

    name: str
    definition: dict[str, Any]
    tokens: int
    advice: list[Advice]
    row: Row | None = None
    listed: bool = True

    @property
    def text(self) -> str:
        return json.dumps(self.definition, ensure_ascii=False, indent=2)

    @property
    def before(self) -> dict[str, Any] | None:
        """The server's own definition, if the bundle overrides it."""
        return json.loads(self.row.body) if self.row is not None and self.row.override else None


@dataclass(frozen=True)
class ModelList:
    """`withheld`: tools that no token gets: a rule denies them, a change awaits approval, or clients cannot read them.
    `off`: members of a bundle whose lists agents currently do not get."""

    tools: list[ModelTool]
    instructions: str
    withheld: int
    off: tuple[Member, ...] = ()

    @property
    def listed(self) -> list[ModelTool]:
        return [tool for tool in self.tools if tool.listed]

    @property
    def tokens(self) -> int:
        return sum(tool.tokens for tool in self.listed)

    @property
    def instruction_tokens(self) -> int:
        return model_tokens.count(self.instructions)

    @property
    def advised(self) -> int:
        return sum(bool(tool.advice) for tool in self.tools)


def of_server(user: Any, server: Server) -> ModelList:
    place, known = endpoints.of_server(user, server), Policies(policies.policy_of(server), ANY)
    rows = Definition.objects.filter(server=server, kind=DefinitionKind.TOOL, removed_at=None, **place.identity)
    every = list(rows.order_by("position", "pk").values_list("key", "approved_digest", "body"))
    bodies = [
        lists.item(body)
        for key, approved, body in every
        if not approved and not known.denies(KIND_OF[DefinitionKind.TOOL], key)
    ]
    return ModelList(_judged(server.slug, bodies), place.instructions, len(every) - len(bodies))


def of_bundle(user: Any, bundle: Bundle, rows: Sequence[BundleMember]) -> ModelList:
    place = BundleEndpoint(bundle, tuple(endpoints.members_of(user, list(rows))))
    every = bundles.rows_of([one for one in place.members if not one.off], [DefinitionKind.TOOL])
    names = exposed.preview(bundle.pk, DefinitionKind.TOOL, {row.target: row.member.alias for row in every})
    known = policies.policies_of_each([bundle, *(one.endpoint.server for one in place.members)])

    def denied(row: Row) -> bool:
        here = Policies(known[row.member.endpoint.server], ANY, known[bundle])
        return row.unseen or here.denies(KIND_OF[DefinitionKind.TOOL], row.key, names[row.target])

    found = [row for row in every if not denied(row)]
    twins = lists.twin_titles(found)
    exposed_bodies = [(row, lists.exposed_body(row, names, twins)) for row in found]
    found = [row for row, body in exposed_bodies if body is not None]
    bodies = [body for _, body in exposed_bodies if body is not None]
    searches = bundle.listing == BundleListing.SEARCH
    listed = [not searches or offers.offers(bundle.pinned, names[row.target]) for row in found]
    own = _judged(bundle.slug, list(search.DEFINITIONS)) if searches else []
    tools = [*own, *_judged(bundle.slug, bodies, found, listed)]
    off = tuple(one for one in place.members if one.off)
    return ModelList(tools, place.instructions, len(every) - len(found), off)


def _judged(
    slug: str, bodies: list[str], rows: Sequence[Row | None] = (), listed: Sequence[bool] = ()
) -> list[ModelTool]:
    definitions: list[dict[str, Any]] = [json.loads(body) for body in bodies]
    counts = [tokens_of(body) for body in bodies]
    # no known client has a longer prefix
    judged = advice(definitions, counts, shown_by_claude_code(slug, ""))
    return [
        ModelTool(str(definition.get("name", "")), definition, tokens, found, row, shown)
        for definition, tokens, found, row, shown in zip(
            definitions, counts, judged, rows or [None] * len(bodies), listed or [True] * len(bodies), strict=True
        )
    ]
