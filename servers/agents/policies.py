"""Policies of agents: *allow*, *ask* or *deny*, by patterns of tools, resources and prompts.

An endpoint and a token have a policy each. In each, the strictest rule that matches counts, or `otherwise` where none
does; then the strictest of the two. So the order of rules means nothing, a further rule *allow* never opens what another
one closes, and what an endpoint asks for holds whatever a token says. A tool that is marked destructive asks unless the
token has the scope for it, which is one more rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from django.db.models import Q

from servers.enums import AgentScope, DefinitionKind, OwnApproval, PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentToken, Server

STRICTNESS: Final = {PolicyEffect.DENY: 0, PolicyEffect.ASK: 1, PolicyEffect.ALLOW: 2}
#: of a tool with equal arguments by one token in a minute, before a person is asked
EQUAL_CALLS: Final = 5
ENDPOINT, TOKEN = "endpoint", "token"
KIND_OF: Final = {
    DefinitionKind.TOOL: PolicyKind.TOOL,
    DefinitionKind.RESOURCE: PolicyKind.RESOURCE,
    DefinitionKind.RESOURCE_TEMPLATE: PolicyKind.RESOURCE,
    DefinitionKind.PROMPT: PolicyKind.PROMPT,
}


@dataclass(frozen=True)
class Rule:
    effect: PolicyEffect
    kind: PolicyKind
    pattern: str
    calls_per_minute: int | None = None

    def matches(self, kind: PolicyKind, key: str) -> bool:
        return self.kind is kind and fnmatchcase(key, self.pattern)


@dataclass(frozen=True)
class Verdict:
    """`why`: a sentence that names the rule, for people and for the model."""

    effect: PolicyEffect
    why: str


@dataclass(frozen=True)
class Policy:
    """Of `place` (endpoint or token) `name`. A limit that is None is that of the product."""

    place: str
    name: str
    otherwise: PolicyEffect = PolicyEffect.ALLOW
    rules: tuple[Rule, ...] = ()
    own_approval: OwnApproval = OwnApproval.EXCEPT_DESTRUCTIVE
    trusts_annotations: bool = False
    equal_calls: int | None = None
    requests_per_second: int | None = None
    calls_in_flight: int | None = None

    def verdict(self, kind: PolicyKind, key: str) -> Verdict:
        found = [rule for rule in self.rules if rule.matches(kind, key)]
        if not found:
            return Verdict(self.otherwise, f"No rule of the {self.place} {self.name} matches: {self.otherwise.label}.")
        rule = min(found, key=lambda one: STRICTNESS[one.effect])
        return Verdict(rule.effect, f"Rule of the {self.place} {self.name}: {rule.effect.label} {rule.pattern}.")

    def calls_per_minute(self, kind: PolicyKind, key: str) -> int | None:
        """Of one name or URI: the lowest number of the rules that match; None for any number."""
        found = [rule.calls_per_minute for rule in self.rules if rule.calls_per_minute and rule.matches(kind, key)]
        return min(found, default=None)

    @property
    def most_equal_calls(self) -> int:
        """0: any number."""
        return EQUAL_CALLS if self.equal_calls is None else self.equal_calls


@dataclass(frozen=True)
class Policies:
    """Both that apply to a request."""

    endpoint: Policy
    token: Policy

    def decide(self, kind: PolicyKind, key: str, *, destructive: bool = False, scoped: bool = True) -> Verdict:
        """`scoped`: the token has the scope for destructive tools. Of equally strict reasons the first counts."""
        found = [self.endpoint.verdict(kind, key), self.token.verdict(kind, key)]
        if destructive and not scoped:
            why = f"Its server marks it destructive, and the token does not have the scope {AgentScope.DESTRUCTIVE.value}."
            found.append(Verdict(PolicyEffect.ASK, why))
        return min(found, key=lambda one: STRICTNESS[one.effect])

    def denies(self, kind: PolicyKind, key: str) -> bool:
        return self.decide(kind, key).effect is PolicyEffect.DENY

    @property
    def deny_anything(self) -> bool:
        """Whether a list has to be filtered at all."""
        return any(
            policy.otherwise is PolicyEffect.DENY or any(rule.effect is PolicyEffect.DENY for rule in policy.rules)
            for policy in (self.endpoint, self.token)
        )


# --- what a tool says of itself ------------------------------------------------------------------------------------------
def marked_destructive(tool: Mapping[str, Any], *, trusted: bool) -> bool:
    """A server that says that its tool is dangerous is believed. One that says that it is harmless only if an admin trusts
    it: then *read-only* takes *destructive* back."""
    hints = _annotations(tool)
    return hints.get("destructiveHint") is True and not (trusted and hints.get("readOnlyHint") is True)


def marked_harmless(tool: Mapping[str, Any], *, trusted: bool) -> bool:
    """That running it often does not differ from running it once."""
    hints = _annotations(tool)
    return trusted and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)


def _annotations(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found = tool.get("annotations")
    return found if isinstance(found, dict) else {}


# --- reads -----------------------------------------------------------------------------------------------------------------
def policies_of(server: Server, token: AgentToken) -> Policies:
    """Two queries."""
    rows = _read(Q(server_id=server.pk) | Q(token_id=token.pk))
    endpoint = next((row for row in rows if row.server_id is not None), AgentPolicy())
    mine = next((row for row in rows if row.token_id is not None), AgentPolicy())
    return Policies(_policy(ENDPOINT, server.name, endpoint), _policy(TOKEN, token.name, mine))


def policy_of_server(server: Server) -> Policy:
    return _policy(ENDPOINT, server.name, _first(_read(Q(server_id=server.pk))))


def policy_of_token(token: AgentToken) -> Policy:
    return _policy(TOKEN, token.name, _first(_read(Q(token_id=token.pk))))


def _first(rows: Sequence[AgentPolicy]) -> AgentPolicy:
    return rows[0] if rows else AgentPolicy()


def _read(condition: Q) -> list[AgentPolicy]:
    return list(AgentPolicy.objects.filter(condition).prefetch_related("rules"))


def _policy(place: str, name: str, row: AgentPolicy) -> Policy:
    return Policy(
        place,
        name,
        PolicyEffect(row.otherwise),
        _rules(row.rules.all() if row.pk else ()),
        OwnApproval(row.own_approval),
        row.trusts_annotations,
        row.equal_calls,
        row.requests_per_second,
        row.calls_in_flight,
    )


def _rules(rows: Iterable[Any]) -> tuple[Rule, ...]:
    return tuple(
        Rule(PolicyEffect(row.effect), PolicyKind(row.kind), row.pattern, row.calls_per_minute) for row in rows
    )
