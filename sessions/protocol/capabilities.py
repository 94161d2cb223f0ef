"""Who we say we are and what we offer; what a server says it offers.

Source: 2025-11-25 *Lifecycle / Capability negotiation*; 2026-07-28 *Basic / Request metadata*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .versions import Revision

META: Final = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Implementation:
    """Name and version that a peer shows for us."""

    name: str
    version: str
    title: str | None = None

    def wire(self) -> dict[str, Any]:
        body = {"name": self.name, "version": self.version}
        return body | {"title": self.title} if self.title else body


def request_meta(revision: str, info: Implementation, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` that each modern request carries."""
    return {
        META + "protocolVersion": revision,
        META + "clientInfo": info.wire(),
        META + "clientCapabilities": dict(capabilities),
    }


def in_force(capabilities: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """What of our declared capabilities the agreed revision defines; the rest counts as undeclared."""
    kept = {name: value for name, value in capabilities.items() if name not in ("elicitation", "extensions")}
    if "elicitation" in capabilities and revision.elicitation:
        modes = dict(capabilities["elicitation"])
        if not revision.elicitation_url:
            modes.pop("url", None)
        kept["elicitation"] = modes
    if "extensions" in capabilities and revision.extensions:
        kept["extensions"] = capabilities["extensions"]
    return kept


def offers(capabilities: Mapping[str, Any], name: str, feature: str | None = None) -> bool:
    """Whether a server declared a capability (and a feature of it). Anything but an object is no declaration."""
    value = capabilities.get(name)
    if not isinstance(value, dict):
        return False
    return feature is None or value.get(feature) is True
