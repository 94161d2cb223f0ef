"""Refuses requests for what a server did not declare, and says what it did declare.

Source: 2025-11-25 *Lifecycle / Capability negotiation*; 2026-07-28 *Server / Discover*.
"""

from collections.abc import Mapping
from typing import Any, Final

from . import json_text
from .capabilities import declares
from .errors import Fault, InvalidRequest
from .versions import Revision

#: (capability, feature) -> what the server does not offer
WORDS: Final = {
    ("tools", ""): "tools",
    ("prompts", ""): "prompts",
    ("resources", ""): "resources",
    ("resources", "subscribe"): "subscriptions to resources",
    ("completions", ""): "argument completion",
    ("logging", ""): "log messages",
    ("tasks", "call"): "running calls as tasks",
    ("tasks", "list"): "listing its tasks",
    ("tasks", "cancel"): "cancelling a task",
}


def demand(declared: Mapping[str, Any], revision: Revision | None, capability: str, feature: str = "") -> None:
    """InvalidRequest (not_offered) unless the server declared it. 2024-11-05 has completion but no capability for it,
    so a request is allowed there."""
    if capability == "completions" and revision is not None and not revision.completions_declared:
        return
    if not (declares(declared, capability, feature) if feature else declares(declared, capability)):
        raise refusal(declared, capability, feature)


def refusal(declared: Mapping[str, Any], capability: str, feature: str = "") -> InvalidRequest:
    what = WORDS.get((capability, feature)) or " ".join(filter(None, (capability, feature)))
    why = misdeclared(declared, capability) or _named(declared)
    return InvalidRequest(f"The server does not offer {what} (it {why}).", Fault.NOT_OFFERED)


def misdeclared(declared: Mapping[str, Any], capability: str) -> str:
    """What the server declared instead of an object; empty if it declared an object or nothing."""
    if capability not in declared or declares(declared, capability):
        return ""
    value = json_text.encode(declared[capability])[:80]
    return f"declared {capability} as {value}, not as an object, so it counts as undeclared"


def _named(declared: Mapping[str, Any]) -> str:
    """The declared capabilities by name, each with the features that are on."""
    names = sorted(name for name in declared if declares(declared, name))
    shown = [_with_features(name, declared[name]) for name in names[:20]]
    return f"declared: {', '.join(shown)}" if shown else "declared nothing"


def _with_features(name: str, value: Mapping[str, Any]) -> str:
    features = sorted(feature for feature in value if declares({name: value}, name, feature))[:10]
    return f"{name[:60]} with {' and '.join(feature[:60] for feature in features)}" if features else name[:60]
