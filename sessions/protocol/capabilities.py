"""Who we say we are and what we offer; what a server says it offers.

Source: 2025-11-25 *Lifecycle / Capability negotiation*; 2026-07-28 *Basic / Request metadata*.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import InvalidRequest
from .versions import Era, Revision

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


def own_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """A caller's entries of `_meta`, such as W3C trace context; InvalidRequest for those that are the protocol's."""
    for name in meta or ():
        if name == "progressToken" or name.startswith(META):
            raise InvalidRequest(f"The entry {name[:80]} of _meta is the protocol's own.")
    return dict(meta or {})


def derived(answered: Collection[str], *, roots: bool) -> dict[str, Any]:
    """What a client declares that answers these methods, in the shape of 2025-11-25 and later."""
    declared: dict[str, Any] = {}
    if "elicitation/create" in answered:
        declared["elicitation"] = {"form": {}, "url": {}}
    if "sampling/createMessage" in answered:
        declared["sampling"] = {"tools": {}}
    if roots:
        declared["roots"] = {"listChanged": True}
    return declared


def demand_answers(declared: Mapping[str, Any], answered: Collection[str]) -> None:
    """ValueError when we would declare what nobody answers."""
    for name, method in (("elicitation", "elicitation/create"), ("sampling", "sampling/createMessage")):
        if name in declared and method not in answered:
            raise ValueError(f"the capability {name} is declared, but nobody answers {method}")


def in_force(capabilities: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """What of our declared capabilities the agreed revision defines; the rest counts as undeclared."""
    kept = {name: value for name, value in capabilities.items() if name not in _BY_REVISION}
    for name, defined in _BY_REVISION.items():
        value = defined(capabilities[name], revision) if name in capabilities else None
        if value is not None:
            kept[name] = value
    return kept


def _roots(value: Mapping[str, Any], revision: Revision) -> dict[str, Any] | None:
    return dict(value) if revision.era is Era.LEGACY else _without(value, "listChanged")


def _sampling(value: Mapping[str, Any], revision: Revision) -> dict[str, Any] | None:
    return dict(value) if revision.sampling_tools else _without(value, "tools", "context")


def _elicitation(value: Mapping[str, Any], revision: Revision) -> dict[str, Any] | None:
    if not revision.elicitation:
        return None
    kept = dict(value) if revision.elicitation_url else _without(value, "url")
    # An empty object would mean forms: whoever declared the other mode only has nothing left.
    return kept if kept or not value else None


def _tasks(value: Mapping[str, Any], revision: Revision) -> dict[str, Any] | None:
    return dict(value) if revision.core_tasks else None


def _extensions(value: Mapping[str, Any], revision: Revision) -> dict[str, Any] | None:
    return dict(value) if revision.extensions else None


_BY_REVISION: Final[dict[str, Callable[[Mapping[str, Any], Revision], dict[str, Any] | None]]] = {
    "roots": _roots,
    "sampling": _sampling,
    "elicitation": _elicitation,
    "tasks": _tasks,
    "extensions": _extensions,
}


def _without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: feature for name, feature in value.items() if name not in names}


def declares(capabilities: Mapping[str, Any], *path: str) -> bool:
    """Whether either side declared a capability, and by further names a feature of it. A capability is an object and
    nothing else; a feature is `true` in some and an object in others."""
    value: Any = capabilities
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return isinstance(value, Mapping) or (value is True and len(path) > 1)


def elicitation_modes(declared: Mapping[str, Any]) -> frozenset[str]:
    """An empty declaration means forms; URLs need the explicit word."""
    modes = frozenset(mode for mode in ("form", "url") if declares(declared, "elicitation", mode))
    return modes or frozenset({"form"} if declares(declared, "elicitation") else ())
