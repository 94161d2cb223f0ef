"""What a connected server does not offer, and why: nothing is missing from its pages without a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions.mcp.core.capabilities import declares
from sessions.mcp.core.offered import misdeclared
from sessions.mcp.core.tasks import declares_extension
from sessions.mcp.core.versions import REVISIONS, Era, Revision
from sessions.models import McpSession


@dataclass(frozen=True)
class Missing:
    feature: str
    reason: str


# feature: (capability, part of it). A missing part is not listed if the whole capability is missing.
_FEATURES = {
    "Tools": ("tools", ""),
    "Tool list changes": ("tools", "listChanged"),
    "Resources": ("resources", ""),
    "Resource subscriptions": ("resources", "subscribe"),
    "Resource list changes": ("resources", "listChanged"),
    "Prompts": ("prompts", ""),
    "Prompt list changes": ("prompts", "listChanged"),
    "Argument completion": ("completions", ""),
    "Server messages": ("logging", ""),
}
_OFF = "Turned off under Settings, so it is not declared."
_NO_ELICITATION = "Not supported in revision {}."
_LATER = "Turned on after this session opened; declared on the next connection."


def missing(session: McpSession) -> list[Missing]:
    """What is missing in a session that was connected at least once; otherwise empty."""
    revision = REVISIONS.get(session.revision)
    if revision is None:
        return []
    return [*_of_server(session.server_capabilities, revision), *_of_ours(session, revision)]


def why(session: McpSession | None, capability: str) -> str:
    """Why a list of the server is empty, if the capability was not declared; otherwise ""."""
    if session is None or not session.revision or declares(session.server_capabilities, capability):
        return ""
    return _undeclared(session.server_capabilities, capability)


def _undeclared(declared: Mapping[str, Any], capability: str) -> str:
    return f"The server {misdeclared(declared, capability) or f'did not declare {capability}'}."


def tab_reasons(session: McpSession | None, counts: Mapping[str, int]) -> dict[str, str]:
    """Why a tab of the server has nothing to show: capabilities that it did not declare. A list that was read
    while the capability was still declared stays open."""
    revision = REVISIONS.get(session.revision) if session else None
    if session is None or revision is None:
        return {}
    kinds = {"tools": ("tool",), "resources": ("resource", "template"), "prompts": ("prompt",)}
    found = {
        capability: why(session, capability)
        for capability, listed in kinds.items()
        if not any(counts.get(kind, 0) for kind in listed)
    }
    return {
        name: words
        for name, words in (found | {"tasks": _tasks(session.server_capabilities, revision)}).items()
        if words
    }


def no_subscriptions(session: McpSession | None) -> str:
    """Why resources of the server cannot be subscribed to; "" if they can, or before the first connection."""
    if session is None or not session.revision or declares(session.server_capabilities, "resources", "subscribe"):
        return ""
    return "This server does not offer subscriptions (it did not declare resources.subscribe)."


def _of_server(declared: dict[str, Any], revision: Revision) -> list[Missing]:
    found = []
    for feature, (capability, part) in _FEATURES.items():
        if declares(declared, *filter(None, (capability, part))) or (part and not declares(declared, capability)):
            continue
        if capability == "completions" and not revision.completions_declared:
            continue  # completion may be requested without it
        reason = f"The server did not declare {capability}.{part}." if part else _undeclared(declared, capability)
        found.append(Missing(feature, reason))
    if task := _tasks(declared, revision):
        found.append(Missing("Tasks", task))
    return found


def _tasks(declared: dict[str, Any], revision: Revision) -> str:
    if revision.core_tasks:
        return "" if declares(declared, "tasks") else "The server did not declare tasks."
    if revision.extensions:
        return "" if declares_extension(declared) else "The server did not declare the tasks extension."
    return f"Not supported in revision {revision.name}."


def _of_ours(session: McpSession, revision: Revision) -> list[Missing]:
    """What the server cannot request from us."""
    ours = session.client_capabilities
    found = []
    if "roots" not in ours and not (revision.era is Era.MODERN and session.server.roots):
        found.append(Missing("Roots", _no_roots(session)))
    if "sampling" not in ours:
        found.append(Missing("Sampling", _LATER if session.server.answers_sampling else _OFF))
    if "elicitation" not in ours:
        words = _LATER if session.server.answers_elicitation else _OFF
        found.append(Missing("Elicitation", words if revision.elicitation else _NO_ELICITATION.format(revision.name)))
    return found


def _no_roots(session: McpSession) -> str:
    if session.server.roots:
        return "Set after this session opened; declared on the next connection."
    return "No roots are set under Settings, so they are not declared."
