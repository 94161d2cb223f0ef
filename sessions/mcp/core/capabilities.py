"""The client's identity and capabilities, and how to read those of a server.

Source: 2025-11-25 *Lifecycle / Capability negotiation*; 2026-07-28 *Basic / Request metadata*.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import InvalidRequest
from .versions import Era, Revision

META: Final = "io.modelcontextprotocol/"
#: the extension with which a modern server may answer a call with a task (see tasks.py)
TASKS_EXTENSION: Final = META + "tasks"


@dataclass(frozen=True, slots=True)
class Implementation:
    """The client's name and version, as a server may show them."""

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


def own_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The caller's own entries of `_meta`, such as W3C trace context. InvalidRequest for names that the protocol
    reserves."""
    if not meta:
        return None
    for name in meta:
        if name == "progressToken" or name.startswith(META):
            raise InvalidRequest(f"The entry {name[:80]} of _meta is reserved by the protocol.")
    return dict(meta)


def derived(answered: Collection[str], *, roots: bool) -> dict[str, Any]:
    """The capabilities of a client that answers these methods, in the shape of 2025-11-25 and later.

    Tasks appear twice. The extension lets a modern server answer a call with a task. `tasks` lets a legacy server turn
    its requests to us into tasks.
    """
    declared: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}
    requests: dict[str, Any] = {}
    if "elicitation/create" in answered:
        declared["elicitation"] = {"form": {}, "url": {}}
        requests["elicitation"] = {"create": {}}
    if "sampling/createMessage" in answered:
        declared["sampling"] = {"tools": {}}
        requests["sampling"] = {"createMessage": {}}
    if requests:
        declared["tasks"] = {"list": {}, "cancel": {}, "requests": requests}
    if roots:
        declared["roots"] = {"listChanged": True}
    return declared


def demand_answers(declared: Mapping[str, Any], answered: Collection[str]) -> None:
    """ValueError if a capability is declared but no handler answers its method."""
    for name, method in (("elicitation", "elicitation/create"), ("sampling", "sampling/createMessage")):
        if name in declared and method not in answered:
            raise ValueError(f"the capability {name} is declared, but no handler answers {method}")


def in_force(capabilities: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """The part of our capabilities that the agreed revision defines. The rest counts as undeclared."""
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
    # An empty object would mean forms. If only the other mode was declared, nothing is left to declare.
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
    """Whether a peer declared a capability or, with further names, a feature of it. A capability is always an object.
    A feature may be `true` or an object."""
    value: Any = capabilities
    for name in path:
        value = value.get(name) if _is_object(value) else None
    return _is_object(value) or (value is True and len(path) > 1)


def _is_object(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the second test takes ten times as long


def elicitation_modes(declared: Mapping[str, Any]) -> frozenset[str]:
    """The declared modes. An empty declaration means forms; URLs need an explicit entry."""
    modes = frozenset(mode for mode in ("form", "url") if declares(declared, "elicitation", mode))
    return modes or frozenset({"form"} if declares(declared, "elicitation") else ())
