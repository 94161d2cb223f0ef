"""Which limits a request counts against: of its token, its person, the endpoint and what a rule names.

A token or an endpoint may have limits of its own in its policy. Those of a token only lower what the product allows.
"""

import hashlib
from typing import Final

from servers import limits
from servers.agents.policies import Policies
from servers.agents.tokens import Principal
from servers.enums import PolicyKind
from sessions.agents.counting import BURST_SECONDS, InFlight, Rate
from sessions.agents.endpoints import Entry

_BY_OWNER: Final = "The owner of the token can change it on the page Agents, Policy."
_BY_SERVER: Final = "People who may change the server can change it on its page Agents."


def _rate(key: str, per_second: int, name: str, words: str) -> Rate:
    return Rate(key, round(per_second * BURST_SECONDS), BURST_SECONDS, name, words)


def rates_of(principal: Principal) -> list[Rate]:
    token, own = principal.token, principal.policy.requests_per_second
    most, words = limits.number("agent_requests_per_second"), limits.stated("agent_requests_per_second")
    if own is not None and own < most:
        most, words = own, f"Limit: {own} requests a second for this token. {_BY_OWNER}"
    person = limits.number("agent_requests_per_person")
    return [
        _rate(f"token:{token.pk}", most, "agent_requests_per_second", words),
        _rate(
            f"person:{token.user_id}", person, "agent_requests_per_person", limits.stated("agent_requests_per_person")
        ),
    ]


def rates_at(entry: Entry, policies: Policies) -> list[Rate]:
    own, server = policies.endpoint.requests_per_second, entry.endpoint.server
    if own is None:
        return []
    words = f"Limit: {own} requests a second of all programs at {server.name}. {_BY_SERVER}"
    return [_rate(f"server:{server.pk}", own, "endpoint_requests_per_second", words)]


def rates_of_target(entry: Entry, policies: Policies, kind: PolicyKind, key: str) -> list[Rate]:
    """Counted for each name or URI on its own, not for the pattern."""
    server, found = entry.endpoint.server, []
    digest = hashlib.sha256(f"{kind} {key}".encode()).hexdigest()[:32]  # no name of a server's stands in Redis
    for policy, who, whose in (
        (policies.endpoint, _BY_SERVER, f"server:{server.pk}"),
        (policies.token, _BY_OWNER, f"token:{entry.principal.token.pk}:{server.pk}"),
    ):
        most = policy.calls_per_minute(kind, key)
        if most is not None:
            words = f"Limit: {most} calls of {key[:200]} a minute. {who}"
            found.append(Rate(f"{whose}:{digest}", most, 60.0, "calls_per_minute", words))
    return found


def flights_of(principal: Principal) -> list[InFlight]:
    token, own = principal.token, principal.policy.calls_in_flight
    most, words = limits.number("agent_calls_in_flight"), limits.stated("agent_calls_in_flight")
    if own is not None and own < most:
        most, words = own, f"Limit: {own} requests in flight for this token. {_BY_OWNER}"
    person = limits.number("agent_person_in_flight")
    return [
        InFlight(f"token:{token.pk}", most, "agent_calls_in_flight", words),
        InFlight(f"person:{token.user_id}", person, "agent_person_in_flight", limits.stated("agent_person_in_flight")),
    ]


def flights_at(entry: Entry, policies: Policies) -> list[InFlight]:
    own, server = policies.endpoint.calls_in_flight, entry.endpoint.server
    if own is None:
        return []
    words = f"Limit: {own} requests in flight of all programs at {server.name}. {_BY_SERVER}"
    return [InFlight(f"server:{server.pk}", own, "endpoint_calls_in_flight", words)]


def streams_of(principal: Principal) -> list[InFlight]:
    token = principal.token
    return [
        InFlight(
            f"streams:{token.pk}", limits.number("agent_streams"), "agent_streams", limits.stated("agent_streams")
        ),
        InFlight(
            f"person-streams:{token.user_id}",
            limits.number("agent_person_streams"),
            "agent_person_streams",
            limits.stated("agent_person_streams"),
        ),
    ]
