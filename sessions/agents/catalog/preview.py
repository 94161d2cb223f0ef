"""What would happen: the verdict on each definition of a server, and the rule that decides. Read-only."""

import json
from dataclasses import dataclass
from typing import Any, Final

from django.core.paginator import Page, Paginator

from servers.agents import policies
from servers.agents.policies import KIND_OF, Policies, Policy, Verdict
from servers.agents.tokens import names_tool
from servers.enums import AgentScope, DefinitionKind, PolicyEffect
from servers.models import AgentToken, Bundle, Server
from sessions.agents.catalog.bundle_contents import Contents

#: rows per page
PAGE: Final = 100
#: a token with every scope and no rules
ANY: Final = Policy("the token")


@dataclass(frozen=True)
class Previewed:
    """`name`: the name or URI as agents know it."""

    name: str
    kind: DefinitionKind
    verdict: Verdict


@dataclass(frozen=True)
class Preview:
    """`rows`: the verdicts on the definitions of `page`."""

    rows: list[Previewed]
    page: Page[Any]


def preview(server: Server, token: AgentToken | None, number: str = "") -> Preview:
    """`server` as returned by `access.with_identity_of`. Without `token`: for one with every scope and no rules.
    `number`: of the page."""
    known = policies.policies_at(server, token) if token is not None else Policies(policies.policy_of(server), ANY)
    scoped = token is None or AgentScope.DESTRUCTIVE.value in token.scopes
    found = server.definitions.filter(removed_at=None, **server.identity_filter).order_by("kind", "position", "pk")
    page = Paginator(found, PAGE).get_page(number)
    rows = []
    for row in page:
        kind = DefinitionKind(row.kind)
        verdict = _withheld(token, kind, row.key) if token is not None else None
        verdict = verdict or _verdict(known, kind, row.key, row.key, row.body, row.approved_digest, scoped=scoped)
        rows.append(Previewed(row.key, kind, verdict))
    return Preview(rows, page)


def _withheld(token: AgentToken, kind: DefinitionKind, key: str) -> Verdict | None:
    """The verdict if the token itself excludes the definition, so that no rule is needed."""
    needed = AgentScope.CALL if kind == DefinitionKind.TOOL else AgentScope.READ
    if needed.value not in token.scopes:
        return Verdict(PolicyEffect.DENY, f"The token does not have the scope {needed.value}.")
    if kind == DefinitionKind.TOOL and not names_tool(token, key):
        return Verdict(PolicyEffect.DENY, "The token does not include this tool.")
    return None


def preview_of_bundle(contents: Contents, bundle: Bundle, number: str = "") -> Preview:
    """The preview for a token with every scope and no rules, including what no client can read. Two queries."""
    servers = [one.endpoint.server for one in contents.members]
    known = policies.policies_of_each([bundle, *servers])
    shown = [line for line in contents.lines if line.listed or (line.offered and not line.readable)]
    page = Paginator(shown, PAGE).get_page(number)
    rows = []
    for line in page:
        row = line.row
        here = Policies(known[row.member.endpoint.server], ANY, known[bundle])
        if line.readable:
            verdict = _verdict(here, row.kind, row.key, line.exposed, row.body, row.unseen, scoped=True)
        else:
            verdict = Verdict(PolicyEffect.DENY, line.reason)
        rows.append(Previewed(line.exposed, row.kind, verdict))
    return Preview(rows, page)


def _verdict(
    known: Policies, kind: DefinitionKind, key: str, shown: str, body: str, unseen: object, *, scoped: bool
) -> Verdict:
    if unseen:
        return Verdict(PolicyEffect.DENY, "Breaking change, waiting for approval.")
    destructive = kind == DefinitionKind.TOOL and policies.marked_destructive(
        json.loads(body), trusted=known.endpoint.trusts_annotations
    )
    return known.decide(KIND_OF[kind], key, shown, destructive=destructive, scoped=scoped)
