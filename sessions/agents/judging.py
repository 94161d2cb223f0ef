"""What the policies of an endpoint and of a token say about a request. A decision costs a read of this process's memory;
a hint drops what is known, and without one it is read again after seconds."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from servers import limits, rights
from servers.agents import policies
from servers.agents.policies import KIND_OF, Policies, Verdict
from servers.enums import AgentScope, PolicyEffect, PolicyKind
from sessions.agents.asked import FORBIDDEN, Asked
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.calls import programs
from sessions.calls.arguments import Rejected
from sessions.calls.intents import Hold
from sessions.calls.operations import operation_of
from sessions.calls.targets import Target
from sessions.hints import POLICIES
from sessions.live.hub import Hub
from sessions.mcp.core import methods
from sessions.mcp.server.refusals import Refusal

KNOWN_SECONDS: Final = 5.0
_MOST_KNOWN: Final = 10_000
#: an equal refusal is an audit event at most this often
_NOTED_SECONDS: Final = 60.0
ASK_WHOM: Final = "Ask the owner of the token, or those who manage the server in mcpadmin."


class Forbidden(Rejected):
    """A rule denies it, or its definition waits for a person."""


@dataclass
class _Known:
    policies: Policies
    until: float


_known: OrderedDict[tuple[int, int], _Known] = OrderedDict()


def known_policies(entry: Entry) -> Policies | None:
    """From memory; None if they have to be read."""
    known = _known.get((entry.endpoint.server.pk, entry.principal.token.pk))
    return known.policies if known is not None and known.until > time.monotonic() else None


def policies_of(entry: Entry) -> Policies:
    """For a thread: reads the database at most once in a few seconds."""
    if (known := known_policies(entry)) is not None:
        return known
    server, token = entry.endpoint.server, entry.principal.token
    found = policies.policies_of(server, token)
    _known[(server.pk, token.pk)] = _Known(found, time.monotonic() + KNOWN_SECONDS)
    while len(_known) > _MOST_KNOWN:
        _known.popitem(last=False)
    return found


class Judge:
    """Of one web process. Its methods are for threads."""

    def __init__(self, hub: Hub) -> None:
        self._noted: OrderedDict[tuple[int, str], float] = OrderedDict()
        hub.watch(POLICIES, lambda _: _known.clear())

    def verdict(self, exchange: Exchange, asked: Asked, target: Target) -> tuple[Verdict, bool]:
        """And whether the tool counts as destructive."""
        known = policies_of(exchange.entry)
        kind = KIND_OF[operation_of(asked.method).place(asked.target)[0]]
        trusted = known.endpoint.trusts_annotations
        destructive = asked.method == methods.TOOLS_CALL and policies.marked_destructive(
            target.definition, trusted=trusted
        )
        scoped = exchange.entry.principal.has(AgentScope.DESTRUCTIVE.value)
        return known.decide(kind, key_of(asked), destructive=destructive, scoped=scoped), destructive

    def judge(self, exchange: Exchange, asked: Asked, target: Target, *, repeated: bool) -> Hold | None:
        """None: the call may be sent. `repeated`: equal calls came too often. Raises Forbidden. For a thread."""
        if target.approved_digest:
            raise Forbidden(programs.unseen_change(target.server_name, asked.target))
        verdict, destructive = self.verdict(exchange, asked, target)
        if verdict.effect is PolicyEffect.DENY:
            self._note(exchange, asked, verdict)
            raise Forbidden(f"{asked.target} was not called. {verdict.why} {ASK_WHOM}")
        if asked.method == methods.COMPLETE:  # suggestions while a person types: nobody is asked for each
            if verdict.effect is PolicyEffect.ASK:
                raise Forbidden(f"Nothing was completed. {verdict.why}")
            return None
        seconds = limits.value("agent_approval_seconds")
        if verdict.effect is PolicyEffect.ASK:
            return Hold(verdict.why, seconds, destructive)
        trusted = policies_of(exchange.entry).endpoint.trusts_annotations
        if repeated and not policies.marked_harmless(target.definition, trusted=trusted):
            most = policies_of(exchange.entry).endpoint.most_equal_calls
            return Hold(f"{most} equal calls came within a minute: the program may be in a loop.", seconds, destructive)
        return None

    def most_equal(self, exchange: Exchange, asked: Asked, *, repeated: bool) -> int:
        """How many equal calls a minute may bring; 0: any number. `repeated`: a person is asked already."""
        if repeated or asked.method != methods.TOOLS_CALL:
            return 0
        return policies_of(exchange.entry).endpoint.most_equal_calls

    def _note(self, exchange: Exchange, asked: Asked, verdict: Verdict) -> None:
        token, server = exchange.entry.principal.token, exchange.entry.endpoint.server
        key, now = (token.pk, f"{server.pk} {asked.method} {asked.target}"), time.monotonic()
        if now - self._noted.get(key, float("-inf")) < _NOTED_SECONDS:
            return
        self._noted[key] = now
        while len(self._noted) > _MOST_KNOWN:
            self._noted.popitem(last=False)
        details = {"token": str(token.uid), "method": asked.method, "reason": verdict.why}
        rights.record_refusal(exchange.actor, server, asked.target[:300], **details)


def may_follow(known: Policies, uri: str) -> bool:
    return known.decide(PolicyKind.RESOURCE, uri).effect is PolicyEffect.ALLOW


def require_followable(entry: Entry, uri: str) -> None:
    """Nobody can be asked about each update of a resource. Raises Refusal. For a thread."""
    verdict = policies_of(entry).decide(PolicyKind.RESOURCE, uri)
    if verdict.effect is not PolicyEffect.ALLOW:
        raise Refusal(200, FORBIDDEN, f"{uri} cannot be followed. {verdict.why} {ASK_WHOM}", {"uri": uri})


def key_of(asked: Asked) -> str:
    """What patterns are compared with: for a completion, the prompt or template that it is for."""
    return operation_of(asked.method).place(asked.target)[1]
