"""What a connected server does not offer, and why: nothing is missing from its pages without a reason."""

from dataclasses import dataclass
from typing import Any

from sessions.models import McpSession
from sessions.protocol.capabilities import declares
from sessions.protocol.tasks import declares_extension
from sessions.protocol.versions import REVISIONS, Era, Revision


@dataclass(frozen=True)
class Missing:
    feature: str
    reason: str


# feature: (capability, the part of it). A part that is missing is not said again where the whole capability is.
_FEATURES = {
    "Tools": ("tools", ""),
    "Changes of the tool list": ("tools", "listChanged"),
    "Resources": ("resources", ""),
    "Subscriptions to resources": ("resources", "subscribe"),
    "Changes of the resource list": ("resources", "listChanged"),
    "Prompts": ("prompts", ""),
    "Changes of the prompt list": ("prompts", "listChanged"),
    "Completion of arguments": ("completions", ""),
    "Server messages": ("logging", ""),
}
_OFF = "Switched off under Settings, so it is not declared."
_NO_ELICITATION = "Revision {} does not have it."
_LATER = "It was switched on after this session was opened, and is declared when it reconnects."


def missing(session: McpSession) -> list[Missing]:
    """Of a session that was connected once; nothing before."""
    revision = REVISIONS.get(session.revision)
    if revision is None:
        return []
    return [*_of_server(session.server_capabilities, revision), *_of_ours(session, revision)]


def why(session: McpSession | None, capability: str) -> str:
    """Why a list of the server is empty, as far as its declaration says; "" where it does not."""
    if session is None or not session.revision or declares(session.server_capabilities, capability):
        return ""
    return f"The server did not declare {capability}."


def _of_server(declared: dict[str, Any], revision: Revision) -> list[Missing]:
    found = []
    for feature, (capability, part) in _FEATURES.items():
        if declares(declared, *filter(None, (capability, part))) or (part and not declares(declared, capability)):
            continue
        if capability == "completions" and not revision.completions_declared:
            continue  # it may be asked for without
        found.append(Missing(feature, f"The server did not declare {f'{capability}.{part}' if part else capability}."))
    if task := _tasks(declared, revision):
        found.append(Missing("Tasks", task))
    return found


def _tasks(declared: dict[str, Any], revision: Revision) -> str:
    if revision.core_tasks:
        return "" if declares(declared, "tasks") else "The server did not declare tasks."
    if revision.extensions:
        return "" if declares_extension(declared) else "The server did not declare the extension."
    return f"Revision {revision.name} does not have them."


def _of_ours(session: McpSession, revision: Revision) -> list[Missing]:
    """What the server cannot ask us for."""
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
        return "They were set after this session was opened, and are declared when it reconnects."
    return "None are set under Settings, so they are not declared."
