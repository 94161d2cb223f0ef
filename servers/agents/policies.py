"""Policies of agents: *allow*, *ask* or *deny*, by patterns of tools, resources and prompts.

The endpoint of a server, a bundle and a token have a policy each. In each, the strictest rule that matches counts, or
`otherwise` where none does; then the strictest of those that apply to the request. So the order of rules means nothing, a
further rule *allow* never permits what another one denies, and an *ask* of an endpoint applies whatever a token says. A
tool that is marked destructive asks unless the token has the scope for it, which is one more rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q

from servers.enums import AgentScope, DefinitionKind, OwnApproval, PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentToken, Bundle, Server
from servers.patterns import matches

STRICTNESS: Final = {PolicyEffect.DENY: 0, PolicyEffect.ASK: 1, PolicyEffect.ALLOW: 2}
_OWN: Final = (OwnApproval.NEVER, OwnApproval.EXCEPT_DESTRUCTIVE, OwnApproval.ALWAYS)
KIND_OF: Final = {
    DefinitionKind.TOOL: PolicyKind.TOOL,
    DefinitionKind.RESOURCE: PolicyKind.RESOURCE,
    DefinitionKind.RESOURCE_TEMPLATE: PolicyKind.RESOURCE,
    DefinitionKind.PROMPT: PolicyKind.PROMPT,
}
#: who has a policy
Owner = Server | Bundle | AgentToken


@dataclass(frozen=True)
class Rule:
    effect: PolicyEffect
    kind: PolicyKind
    pattern: str
    calls_per_minute: int | None = None

    def matches(self, kind: PolicyKind, key: str) -> bool:
        return self.kind is kind and matches(self.pattern, key)


@dataclass(frozen=True)
class Verdict:
    """`why`: a sentence that names the rule, for people and for the model."""

    effect: PolicyEffect
    why: str


@dataclass(frozen=True)
class Policy:
    """`of` names its owner, such as `the endpoint GitHub`. A limit that is None is that of the product."""

    of: str
    otherwise: PolicyEffect = PolicyEffect.ALLOW
    rules: tuple[Rule, ...] = ()
    own_approval: OwnApproval = OwnApproval.EXCEPT_DESTRUCTIVE
    trusts_annotations: bool = False
    equal_calls: int | None = None
    asks_to_repeat: bool = False
    requests_per_second: int | None = None
    calls_in_flight: int | None = None

    def verdict(self, kind: PolicyKind, key: str) -> Verdict:
        found = [rule for rule in self.rules if rule.matches(kind, key)]
        if not found:
            return Verdict(self.otherwise, f"No rule of {self.of} matches. Its default is {self.otherwise.label}.")
        rule = min(found, key=lambda one: STRICTNESS[one.effect])
        return Verdict(rule.effect, f"Rule “{rule.effect.label} {rule.pattern}” of {self.of}.")

    def calls_per_minute(self, kind: PolicyKind, key: str) -> int | None:
        """For one name or URI: the lowest number of the matching rules; None for no limit."""
        found = [rule.calls_per_minute for rule in self.rules if rule.calls_per_minute and rule.matches(kind, key)]
        return min(found, default=None)

    @property
    def denies_anything(self) -> bool:
        return self.otherwise is PolicyEffect.DENY or any(rule.effect is PolicyEffect.DENY for rule in self.rules)


@dataclass(frozen=True)
class Policies:
    """All policies that apply to a request. `bundle`: the policy of the bundle that it came through."""

    endpoint: Policy
    token: Policy
    bundle: Policy | None = None

    def decide(
        self, kind: PolicyKind, key: str, shown: str = "", *, destructive: bool = False, scoped: bool = True
    ) -> Verdict:
        """`key`: the server's own name or URI; `shown`: the one in the bundle. `scoped`: the token has the scope for
        destructive tools. Of equally strict reasons, the first counts."""
        found = [self.endpoint.verdict(kind, key), self.token.verdict(kind, key)]
        if self.bundle is not None:
            found.append(self.bundle.verdict(kind, shown or key))
        if destructive and not scoped:
            why = f"The server marks it as destructive, and the token does not have the scope {AgentScope.DESTRUCTIVE.value}."
            found.append(Verdict(PolicyEffect.ASK, why))
        return min(found, key=lambda one: STRICTNESS[one.effect])

    def denies(self, kind: PolicyKind, key: str, shown: str = "") -> bool:
        return self.decide(kind, key, shown).effect is PolicyEffect.DENY

    @property
    def deny_anything(self) -> bool:
        """Whether a list has to be filtered at all."""
        return any(policy.denies_anything for policy in (self.endpoint, self.token, self.bundle) if policy is not None)

    @property
    def equal_calls(self) -> int | None:
        """Calls of a tool with identical arguments per minute before a person is asked. None: no limit."""
        set_here = [policy.equal_calls for policy in (self.endpoint, self.bundle) if policy is not None]
        return min(filter(None, set_here), default=None)

    @property
    def asks_to_repeat(self) -> bool:
        """Whether a person is asked before a tool is called again whose identical call may have run."""
        return any(policy.asks_to_repeat for policy in (self.endpoint, self.bundle) if policy is not None)


def own_approval(of: Iterable[Policy]) -> OwnApproval:
    """The strictest of an endpoint and a bundle."""
    return min((policy.own_approval for policy in of), key=_OWN.index)


# --- what a tool says of itself ------------------------------------------------------------------------------------------
def marked_destructive(tool: Mapping[str, Any], *, trusted: bool) -> bool:
    """A server that marks its tool as dangerous is believed. One that marks it as harmless is believed only if an admin
    trusts it: then *read-only* overrides *destructive*. A tool without annotations is not destructive: most have none,
    and a person who is asked about every call soon stops reading."""
    hints = _annotations(tool)
    return hints.get("destructiveHint") is True and not (trusted and hints.get("readOnlyHint") is True)


def marked_harmless(tool: Mapping[str, Any], *, trusted: bool) -> bool:
    """Whether running it repeatedly has the same effect as running it once."""
    hints = _annotations(tool)
    return trusted and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)


def _annotations(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found = tool.get("annotations")
    return found if isinstance(found, dict) else {}


# --- reads -----------------------------------------------------------------------------------------------------------------
def policy_of(owner: Owner) -> Policy:
    return policies_of_each([owner])[owner]


def policies_of_each(owners: Iterable[Owner]) -> dict[Owner, Policy]:
    """Two queries, however many owners there are; one if none of them has a policy."""
    chosen = list(owners)
    mine = {
        field: [owner.pk for owner in chosen if isinstance(owner, model)]
        for field, model in (("server", Server), ("bundle", Bundle), ("token", AgentToken))
    }
    wanted = Q()
    for field, pks in mine.items():
        if pks:
            wanted |= Q(**{f"{field}__in": pks})
    rows = {
        (row.server_id, row.bundle_id, row.token_id): row
        for row in AgentPolicy.objects.filter(wanted).prefetch_related("rules")
    }
    return {owner: _policy(owner, rows.get(_columns(owner)) or AgentPolicy()) for owner in chosen}


def policies_at(server: Server, token: AgentToken, bundle: Bundle | None = None) -> Policies:
    """Two queries."""
    found = policies_of_each([server, token] if bundle is None else [server, token, bundle])
    return Policies(found[server], found[token], found[bundle] if bundle is not None else None)


def _columns(owner: Owner) -> tuple[int | None, int | None, int | None]:
    pk = owner.pk
    if isinstance(owner, Server):
        return pk, None, None
    return (None, pk, None) if isinstance(owner, Bundle) else (None, None, pk)


def _policy(owner: Owner, row: AgentPolicy) -> Policy:
    place = "token" if isinstance(owner, AgentToken) else "bundle" if isinstance(owner, Bundle) else "endpoint"
    return Policy(
        f"the {place} {owner.name}",
        PolicyEffect(row.otherwise),
        _rules(row.rules.all() if row.pk else ()),
        OwnApproval(row.own_approval),
        row.trusts_annotations,
        row.equal_calls,
        row.asks_to_repeat,
        row.requests_per_second,
        row.calls_in_flight,
    )


def _rules(rows: Iterable[Any]) -> tuple[Rule, ...]:
    return tuple(
        Rule(PolicyEffect(row.effect), PolicyKind(row.kind), row.pattern, row.calls_per_minute) for row in rows
    )
