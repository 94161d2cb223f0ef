"""What would happen: the verdict on each definition of a server, and the rule that decides. Only reads."""

import json
from dataclasses import dataclass
from typing import Final

from servers.agents import policies
from servers.agents.policies import KIND_OF, TOKEN, Policies, Policy, Verdict
from servers.enums import AgentScope, DefinitionKind, PolicyEffect
from servers.models import AgentToken, Definition, Server

MOST: Final = 500


@dataclass(frozen=True)
class Previewed:
    definition: Definition
    verdict: Verdict

    @property
    def kind(self) -> str:
        return str(DefinitionKind(self.definition.kind).label)


@dataclass(frozen=True)
class Preview:
    """`cut`: there are more than are shown."""

    rows: list[Previewed]
    cut: bool


def preview(server: Server, token: AgentToken | None) -> Preview:
    """`server` as `access.seen_by` returned it. Without a token: for one with every scope and no rules."""
    known = policies.policies_of(server, token) if token is not None else _of_any(server)
    scoped = token is None or AgentScope.DESTRUCTIVE.value in token.scopes
    found = server.definitions.filter(removed_at=None, **server.identity_filter).order_by("kind", "position", "pk")
    rows = list(found[: MOST + 1])
    return Preview([Previewed(row, _verdict(known, row, scoped=scoped)) for row in rows[:MOST]], len(rows) > MOST)


def _of_any(server: Server) -> Policies:
    return Policies(policies.policy_of_server(server), Policy(TOKEN, ""))


def _verdict(known: Policies, row: Definition, *, scoped: bool) -> Verdict:
    if row.approved_digest:
        return Verdict(PolicyEffect.DENY, "It changed in a way that breaks what it was, and waits for approval.")
    destructive = row.kind == DefinitionKind.TOOL and policies.marked_destructive(
        json.loads(row.body), trusted=known.endpoint.trusts_annotations
    )
    return known.decide(KIND_OF[DefinitionKind(row.kind)], row.key, destructive=destructive, scoped=scoped)
