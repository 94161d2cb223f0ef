"""Calls of agents as the door writes them, without a connection."""

from functools import partial
from typing import Any

from servers.agents import tokens
from servers.agents.tokens import NewToken, Principal
from servers.audit.record import Actor
from servers.audit.writer import writer
from sessions.agents import endpoints
from sessions.agents.call_request import call_request_of
from sessions.agents.calls import idempotency
from sessions.agents.catalog import bundles
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.agents.policy.policy_check import PolicyCheck
from sessions.calls import intents, placing
from sessions.calls.arguments import SubmittedArguments
from sessions.mcp.core.versions import Era
from sessions.models import Call


def principal_of(user: Any, *scopes: str, name: str = "laptop") -> Principal:
    """Of a new token."""
    wanted = NewToken(name, 7, [f"mcp:{scope}" for scope in scopes or ("list", "read", "call")])
    return tokens.principal_of(tokens.issue(Actor.of_user(user), user, wanted).text, "")


def place(
    check: PolicyCheck, principal: Principal, slug: str, name: str, program: str = "", /, **arguments: Any
) -> Call:
    """A tool's call. Raises SameRequest, and Forbidden."""
    entry = Entry(principal, endpoints.endpoint_of(principal, slug))
    params = {"name": name, "arguments": arguments}
    exchange = bundles.routed(Exchange(entry, Era.MODERN, "2026-07-28", 1, "tools/call", params, {}, "", "", program))
    asked = call_request_of(exchange)
    agent_part = idempotency.agent_part(exchange, asked, partial(check.check, exchange, asked, repeated=False))
    server, given = exchange.entry.endpoint.server, SubmittedArguments(value=asked.arguments)
    intent = placing.check(exchange.actor, principal.user, server.uid, asked.target, given, agent_part=agent_part)
    return writer().submit_and_wait(partial(intents.write, intent), partial(intents.requested, intent))
