"""What the policies of an endpoint, a bundle and a token say about a request. A decision only reads this process's
memory; a hint invalidates it, and without one it is read again after a few seconds."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.utils import timezone

from servers import limits, permissions
from servers.agents import policies
from servers.agents.policies import KIND_OF, Policies, Policy
from servers.audit.record import Actor
from servers.enums import AgentScope, PolicyEffect, PolicyKind
from servers.models import AgentToken, Bundle, Server
from sessions.agents.call_request import CallRequest
from sessions.agents.endpoints import BundleEndpoint, Endpoint, Entry
from sessions.agents.exchange import Exchange
from sessions.agents.recent import Recent
from sessions.calls import agent_calls, statements
from sessions.calls.arguments import Rejected
from sessions.calls.intents import Hold
from sessions.calls.operations import operation_of
from sessions.calls.targets import Target
from sessions.mcp.core import methods
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import FORBIDDEN, Refusal

#: how long an identical call is held after one of which it is unknown what it did, if the policy says so
UNSURE_AGE: Final = timedelta(minutes=10)
_MOST_NOTED: Final = 10_000
#: the same refusal is recorded as an audit event at most this often
_NOTED_SECONDS: Final = 60.0
ASK_WHOM: Final = "Ask the token's owner, or someone who manages the server in mcpadmin."
#: whose policies are cached; a token's policy is part of its principal
PolicyOwner = Server | Bundle


class Forbidden(Rejected):
    """A rule denies it, or its definition awaits approval."""


class _Memory(Recent[tuple[type[PolicyOwner], int], Policy]):
    """Caches the policies of endpoints and bundles."""

    def known(self, owners: Sequence[PolicyOwner]) -> list[Policy] | None:
        """The cached policies; None if one must be read."""
        found = [policy for owner in owners if (policy := self.get((type(owner), owner.pk))) is not None]
        return found if len(found) == len(owners) else None

    def read(self, owners: Sequence[PolicyOwner]) -> list[Policy]:
        """Call it in a thread: it reads the database at most once every few seconds."""
        if (known := self.known(owners)) is not None:
            return known
        generation, found = self.generation, policies.policies_of_each(owners)
        for owner in owners:
            self.keep((type(owner), owner.pk), found[owner], generation)
        return [found[owner] for owner in owners]


memory: Final = _Memory()


def policy_owner_of(place: Endpoint | BundleEndpoint) -> PolicyOwner:
    return place.bundle if isinstance(place, BundleEndpoint) else place.server


def policies_of(entry: Entry) -> Policies:
    """The policies for a request to one server, perhaps through a bundle. Call it in a thread."""
    return _joined(entry, memory.read(_owners(entry)))


def remembered(entry: Entry) -> Policies | None:
    """The same from the cache; None if something must be read."""
    known = memory.known(_owners(entry))
    return _joined(entry, known) if known is not None else None


def policies_of_members(entry: Entry, place: BundleEndpoint) -> dict[int, Policies]:
    """The policies for requests to each member, by the key of its server. Call it in a thread."""
    return _of_members(entry, place, memory.read(_of_bundle(place)))


def policies_by_server(entry: Entry) -> dict[int, Policies]:
    """The policies for each server that the entry reaches, by its key. Call it in a thread."""
    place = entry.place
    return (
        policies_of_members(entry, place)
        if isinstance(place, BundleEndpoint)
        else {place.server.pk: policies_of(entry)}
    )


def remembered_by_server(entry: Entry) -> dict[int, Policies] | None:
    """The same from the cache; None if something must be read."""
    place = entry.place
    if isinstance(place, BundleEndpoint):
        known = memory.known(_of_bundle(place))
        return _of_members(entry, place, known) if known is not None else None
    mine = remembered(entry)
    return {place.server.pk: mine} if mine is not None else None


def _of_bundle(place: BundleEndpoint) -> list[PolicyOwner]:
    return [place.bundle, *(one.endpoint.server for one in place.members)]


def _of_members(entry: Entry, place: BundleEndpoint, found: Sequence[Policy]) -> dict[int, Policies]:
    of_bundle, token = found[0], entry.principal.policy
    return {
        one.endpoint.server.pk: Policies(policy, token, of_bundle)
        for one, policy in zip(place.members, found[1:], strict=True)
    }


def _owners(entry: Entry) -> list[PolicyOwner]:
    server = entry.endpoint.server
    return [server] if entry.bundle is None else [server, entry.bundle]


def _joined(entry: Entry, found: Sequence[Policy]) -> Policies:
    return Policies(found[0], entry.principal.policy, found[1] if len(found) > 1 else None)


class _Refusals:
    """Audit events for what rules deny, in one web process: the same refusal is recorded at most once a minute."""

    def __init__(self) -> None:
        self._noted: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def note(
        self, actor: Actor, token: AgentToken, server: Server, method: str, target: str, reason: str, **more: str
    ) -> None:
        """Call it in a thread. `target`: as the server knows it."""
        key, now = (str(token.uid), str(server.uid), method, target), time.monotonic()
        if now - self._noted.get(key, float("-inf")) < _NOTED_SECONDS:
            return
        details = {"token": str(token.uid), "method": method, "reason": reason, **more}
        permissions.record_refusal(actor, server, target[:300], **details)
        self._noted[key] = now  # only after it was recorded
        while len(self._noted) > _MOST_NOTED:
            self._noted.popitem(last=False)


refusals: Final = _Refusals()


class PolicyCheck:
    """What a call must pass before it is placed. Call its methods in threads."""

    def check(self, exchange: Exchange, asked: CallRequest, target: Target, *, repeated: bool) -> Hold | None:
        """Returns None if the call may be sent. `repeated`: identical calls came too often. Raises Forbidden."""
        kind, key = operation_of(asked.method).place(asked.target)
        shown = exchange.named(key)
        if target.approved_digest:
            why = agent_calls.unseen_change(target.server_name, shown)
            self._note(exchange, asked, why)
            raise Forbidden(why)
        known = policies_of(exchange.entry)
        destructive = asked.method == methods.TOOLS_CALL and policies.marked_destructive(
            target.definition, trusted=known.endpoint.trusts_annotations
        )
        scoped = exchange.entry.principal.has(AgentScope.DESTRUCTIVE.value)
        verdict = known.decide(KIND_OF[kind], key, shown, destructive=destructive, scoped=scoped)
        if verdict.effect is PolicyEffect.DENY:
            self._note(exchange, asked, verdict.why)
            raise Forbidden(f"{shown} was not called. {verdict.why} {ASK_WHOM}")
        if asked.method == methods.COMPLETE:  # suggestions while a person types: do not ask for approval of each
            if verdict.effect is PolicyEffect.ASK:
                raise Forbidden(f"Nothing was completed. {verdict.why}")
            return None
        seconds = limits.value("agent_approval_seconds")
        if verdict.effect is PolicyEffect.ASK:
            return Hold(verdict.why, seconds, destructive)
        if policies.marked_harmless(target.definition, trusted=known.endpoint.trusts_annotations):
            return None
        if repeated:
            return Hold("Too many identical calls: the agent may be in a loop.", seconds, destructive)
        if known.asks_to_repeat and _may_have_run(exchange, asked):
            return Hold("It is not known whether an identical call ran a short time ago.", seconds, destructive)
        return None

    def _note(self, exchange: Exchange, asked: CallRequest, reason: str) -> None:
        token, server = exchange.entry.principal.token, exchange.entry.endpoint.server
        via = {} if exchange.via is None else {"bundle": exchange.via.bundle}
        refusals.note(exchange.actor, token, server, asked.method, asked.target, reason, **via)


def _may_have_run(exchange: Exchange, asked: CallRequest) -> bool:
    """Whether this would be a second run. A request that brings answers continues a call."""
    if asked.method != methods.TOOLS_CALL or (exchange.era is Era.MODERN and "requestState" in exchange.params):
        return False
    token, since = exchange.entry.principal.token.pk, timezone.now() - UNSURE_AGE
    return statements.may_have_run(token, asked.same(exchange), since)


def may_follow(known: Policies, uri: str, shown: str) -> bool:
    return known.decide(PolicyKind.RESOURCE, uri, shown).effect is PolicyEffect.ALLOW


def require_followable(actor: Actor, entry: Entry, uri: str, shown: str) -> None:
    """Require that the rules allow following it: updates cannot be approved one by one. Raises Refusal. Call it in a
    thread."""
    verdict = policies_of(entry).decide(PolicyKind.RESOURCE, uri, shown)
    if verdict.effect is not PolicyEffect.ALLOW:
        token, server = entry.principal.token, entry.endpoint.server
        via = {} if entry.bundle is None else {"bundle": entry.bundle.slug}
        refusals.note(actor, token, server, methods.RESOURCES_SUBSCRIBE, uri, verdict.why, **via)
        raise Refusal(200, FORBIDDEN, f"{shown} cannot be followed. {verdict.why} {ASK_WHOM}", {"uri": shown})
