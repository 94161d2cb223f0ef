"""Which limits a request counts against: those of its token, its person, the endpoint or bundle, and those in rules.

A token, endpoint or bundle may have its own limits in its policy. Those of a token can only lower the product's limits.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from servers import limits
from servers.agents.policies import KIND_OF, Policies, Policy
from servers.agents.tokens import Principal
from servers.models import Server
from sessions.agents.call_request import CallRequest
from sessions.agents.exchange import Exchange
from sessions.agents.policy.counting import BURST_SECONDS, InFlight, Rate
from sessions.agents.policy.policy_check import PolicyOwner
from sessions.calls.operations import operation_of
from sessions.mcp.core import methods
from sessions.mcp.core.versions import Era

#: the name of the limits that rules set
BY_RULES: Final = "calls_per_minute"
_BY_OWNER: Final = "The token's owner can change it under Agents, Policy."


def _rate(key: str, per_second: int, name: str, describe: Callable[[], str]) -> Rate:
    return Rate(key, round(per_second * BURST_SECONDS), BURST_SECONDS, name, describe)


def rates_of(principal: Principal) -> list[Rate]:
    """For every request."""
    token, own = principal.token, principal.policy.requests_per_second
    name, person = "agent_requests_per_second", "agent_requests_per_person"
    most, describe = limits.number(name), partial(limits.stated, name)
    if own is not None and own < most:
        most, describe = own, partial(_of_token, f"{own} requests a second")
    return [
        _rate(f"token:{token.pk}", most, name, describe),
        _rate(f"person:{token.user_id}", limits.number(person), person, partial(limits.stated, person)),
    ]


def flights_of(principal: Principal) -> list[InFlight]:
    """For every request."""
    token, own = principal.token, principal.policy.calls_in_flight
    name = "agent_calls_in_flight"
    most, describe = limits.number(name), partial(limits.stated, name)
    if own is not None and own < most:
        most, describe = own, partial(_of_token, f"{own} requests in flight")
    return [
        InFlight(f"token:{token.pk}", most, name, describe),
        _flight(f"person:{token.user_id}", "agent_person_in_flight"),
    ]


def _of_token(number: str) -> str:
    return f"Limit: {number} for this token. {_BY_OWNER}"


def streams_of(principal: Principal) -> list[InFlight]:
    token = principal.token
    return [
        _flight(f"streams:{token.pk}", "agent_streams"),
        _flight(f"person-streams:{token.user_id}", "agent_person_streams"),
    ]


def _flight(key: str, name: str) -> InFlight:
    return InFlight(key, limits.number(name), name, partial(limits.stated, name))


def of_owner(owner: PolicyOwner, policy: Policy) -> tuple[list[Rate], list[InFlight]]:
    """Limits for all requests to an endpoint or bundle, if it has any."""
    rates, flights = [], []
    key = f"server:{owner.pk}" if isinstance(owner, Server) else f"bundle:{owner.pk}"
    if (rate := policy.requests_per_second) is not None:
        describe = partial(_of_all_agents, f"{rate} requests a second", owner)
        rates.append(_rate(key, rate, "endpoint_requests_per_second", describe))
    if (flight := policy.calls_in_flight) is not None:
        describe = partial(_of_all_agents, f"{flight} requests in flight", owner)
        flights.append(InFlight(key, flight, "endpoint_calls_in_flight", describe))
    return rates, flights


def _of_all_agents(number: str, owner: PolicyOwner) -> str:
    return f"Limit: {number} from all agents at {owner.name}. {_by_managers(owner)}"


def of_call(known: Policies, exchange: Exchange) -> tuple[list[Rate], list[InFlight]]:
    """Limits of the server behind a bundle; for a server's own endpoint, the request has already been counted."""
    entry = exchange.entry
    return ([], []) if entry.bundle is None else of_owner(entry.endpoint.server, known.endpoint)


def of_rules(known: Policies, exchange: Exchange, asked: CallRequest) -> list[Rate]:
    """Limits set by rules. A request that brings answers belongs to a call that has already been counted."""
    answers = exchange.era is Era.MODERN and "requestState" in exchange.params
    if asked.method == methods.COMPLETE or answers:
        return []
    return list(_of_rules(known, exchange, asked))


def _of_rules(known: Policies, exchange: Exchange, asked: CallRequest) -> Iterator[Rate]:
    """The rules' limits, counted per name or URI, not per pattern."""
    place, key = operation_of(asked.method).place(asked.target)
    entry, kind, shown = exchange.entry, KIND_OF[place], exchange.named(key)
    server, bundle = entry.endpoint.server, entry.bundle
    digest = hashlib.sha256(f"{server.pk} {kind} {key}".encode()).hexdigest()[:32]  # keeps servers' names out of Redis
    token = entry.principal.token.pk
    found = [
        (known.endpoint.calls_per_minute(kind, key), f"server:{server.pk}", _by_managers(server)),
        (known.token.calls_per_minute(kind, key), f"token:{token}", _BY_OWNER),
    ]
    if bundle is not None and known.bundle is not None:
        found.append((known.bundle.calls_per_minute(kind, shown), f"bundle:{bundle.pk}", _by_managers(bundle)))
    for most, whose, who in found:
        if most is not None:
            describe = partial(_of_target, most, shown, who)
            yield Rate(f"{whose}:{digest}", most, 60.0, BY_RULES, describe)


def _of_target(most: int, shown: str, who: str) -> str:
    return f"Limit: {most} calls of {shown[:200]} a minute. {who}"


def _by_managers(owner: PolicyOwner) -> str:
    if isinstance(owner, Server):
        return "Anyone who can change the server can change it on its Agents tab."
    return "Anyone who can change bundles can change it under Bundles, Policy."
