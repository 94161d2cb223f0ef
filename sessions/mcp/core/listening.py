"""Server notifications: what the client requested, what the server accepted, and which listen request a message is for.

Source: 2025-11-25 *Resources / Subscriptions*; 2026-07-28 *Subscriptions* (`subscriptions/listen`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard
from urllib.parse import quote

from . import jsonrpc, methods
from .capabilities import META, declares
from .errors import HttpError, McpError, NotReady, RpcError
from .events import AcceptedSubscriptions, Event, Following, ListKind, ProtocolViolation
from .jsonrpc import Notification, RequestId
from .notifications import events_of
from .offered import refusal
from .tasks import declares_extension

SUBSCRIPTION_ID: Final = META + "subscriptionId"

#: errors that the same listen request would receive again
_FINAL_CODES: Final = frozenset(
    {jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS, jsonrpc.INVALID_REQUEST, jsonrpc.MISSING_CAPABILITY}
)
_FINAL_STATUSES: Final = frozenset({404, 405, 501})
_WITH_HOST: Final = frozenset({"http", "https", "ws", "wss", "ftp", "file"})
_HOST: Final = re.compile(r"//[^/?#]*")
_NOT_IN_URIS: Final = re.compile(r"[^A-Za-z0-9%/:?#\[\]@!$&'()*+,;=._~-]+")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Filter:
    """The notifications that the owner of a session wants."""

    resources: frozenset[str] = frozenset()
    lists: frozenset[ListKind] = frozenset()
    tasks: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.resources or self.lists or self.tasks)


def requestable(desired: Filter, server: Mapping[str, Any], *, tasks: bool) -> tuple[Filter, dict[str, str]]:
    """The part of `desired` that the server can be asked for, and the reasons against the rest. `tasks`: whether we
    declared the extension."""
    refused: dict[str, str] = {}
    resources, followed = desired.resources, desired.tasks
    if not declares(server, "resources", "subscribe"):
        refused |= dict.fromkeys(resources, refusal(server, "resources", "subscribe").detail)
        resources = frozenset()
    if not tasks or not declares_extension(server):
        refused |= dict.fromkeys(followed, "The server does not offer notifications about tasks.")
        followed = frozenset()
    lists = frozenset(kind for kind in desired.lists if declares(server, methods.LISTS[kind][3], "listChanged"))
    for kind in desired.lists - lists:
        refused[kind] = f"The server does not announce changes to its {methods.LISTS[kind][3]}."
    return Filter(resources, lists, followed), refused


def listen_params(requested: Filter) -> dict[str, Any]:
    """The parameters of `subscriptions/listen`."""
    filters: dict[str, Any] = {methods.LIST_FILTERS[kind]: True for kind in sorted(requested.lists)}
    if requested.resources:
        filters["resourceSubscriptions"] = sorted(requested.resources)
    if requested.tasks:
        filters["taskIds"] = sorted(requested.tasks)
    return {"notifications": filters}


def granted(requested: Filter, acknowledged: Any, refused: Mapping[str, str]) -> AcceptedSubscriptions:
    """The subscriptions that an acknowledgement (`params.notifications`) grants. `refused`: the reasons for those that
    were never requested."""
    subset = acknowledged if isinstance(acknowledged, dict) else {}
    resources = _named_resources(requested.resources, subset.get("resourceSubscriptions"))
    tasks = _named(requested.tasks, subset.get("taskIds"))
    lists = frozenset(kind for kind in requested.lists if subset.get(methods.LIST_FILTERS[kind]) is True)
    missing = (requested.resources - resources) | (requested.tasks - tasks) | (requested.lists - lists)
    silent = dict.fromkeys(missing, "The server did not accept this subscription.")
    return AcceptedSubscriptions(resources, lists, tasks, {**refused, **silent})


def _named(requested: frozenset[str], named: Any) -> frozenset[str]:
    """The `requested` ones that the server names. A server may add or drop the trailing slash of a URI."""
    if not isinstance(named, list):
        return frozenset()
    names = {name.rstrip("/") for name in named if isinstance(name, str)}
    return frozenset(name for name in requested if name.rstrip("/") in names)


def _named_resources(requested: frozenset[str], named: Any) -> frozenset[str]:
    """Includes those that the server names in their normal form."""
    found = _named(requested, named)
    if len(found) == len(requested) or not isinstance(named, list):
        return found
    forms = {normal_form(name).rstrip("/") for name in named if isinstance(name, str)}
    return found | {uri for uri in requested - found if normal_form(uri).rstrip("/") in forms}


def normal_form(uri: str) -> str:
    """The URI as a server that parses URIs would spell it: the same for all its spellings (RFC 3986, 6.2.2)."""
    scheme, colon, rest = uri.partition(":")
    start = _HOST.match(rest) if scheme.lower() in _WITH_HOST else None
    if start is not None:
        rest = start[0].lower() + rest[start.end() :]
    rest = _NOT_IN_URIS.sub(lambda found: quote(found[0], errors="replace"), rest)
    return scheme.lower() + colon + _ESCAPE.sub(lambda found: found[0].upper(), rest)


def nothing(requested: Filter, reason: str, refused: Mapping[str, str]) -> AcceptedSubscriptions:
    """The server refused the whole request; `reason` is in its own words."""
    names = requested.resources | requested.tasks | requested.lists
    return AcceptedSubscriptions(refused={**refused, **dict.fromkeys(names, reason)})


# -- meaning of the end of a listen request


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """`refused`: the server rejected the request. `again`: the same request may succeed later without any change.
    `retry_after`: seconds that the server asked us to wait."""

    reason: str
    refused: bool = False
    again: bool = True
    retry_after: float | None = None


def stream_end(error: McpError | None) -> StreamEnd:
    """Why a listen request ended: `error`, or None if the server ended it in an orderly way."""
    if error is None:
        return StreamEnd("The server ended the subscription.")
    if isinstance(error, RpcError):
        final = error.code in _FINAL_CODES
        return StreamEnd(f"The server refuses subscriptions: {error.detail}", refused=True, again=not final)
    if isinstance(error, HttpError) and error.status in _FINAL_STATUSES:
        return StreamEnd(f"The server does not support subscriptions (HTTP {error.status}).", refused=True, again=False)
    lasting = isinstance(error, NotReady) or error.permanent
    return StreamEnd(error.detail, again=not lasting, retry_after=getattr(error, "retry_after", None))


def passes(error: McpError) -> bool:
    """Whether the server may accept the same request for one resource later."""
    if isinstance(error, RpcError):
        return error.code == jsonrpc.INTERNAL_ERROR
    return stream_end(error).again


# -- which listen request a message is for


@dataclass(slots=True, eq=False)
class Listen:
    requested: Filter
    refused: Mapping[str, str]
    acknowledged: bool = False


class Listens:
    """The open listen requests of a modern session. A message with the id of an unknown subscription is late: it is
    ignored and counted in `foreign`."""

    def __init__(self) -> None:
        self._open: dict[RequestId, Listen] = {}
        self.foreign = 0

    def add(self, identity: RequestId, listen: Listen) -> None:
        self._open[identity] = listen

    def remove(self, identity: RequestId) -> None:
        self._open.pop(identity, None)

    def ended_by(self, message: Notification) -> RequestId | None:
        """The listen request that the server ends with `notifications/cancelled`."""
        identity = message.params.get("requestId") if message.method == methods.CANCELLED else None
        return identity if self._knows(identity) else None

    def _knows(self, identity: Any) -> TypeGuard[RequestId]:
        # JSON's true would match the key 1.
        return isinstance(identity, int | str) and not isinstance(identity, bool) and identity in self._open

    def events_of(self, message: Notification) -> Iterator[Event]:
        """The events of a modern server's notification, if it is for one of our subscriptions."""
        meta = message.params.get("_meta")
        identity = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if identity is not None and not self._knows(identity):
            self.foreign += 1
        elif message.method == methods.ACKNOWLEDGED:
            yield self._acknowledged(identity, message.params.get("notifications"))
        else:
            yield from events_of(message)

    def _acknowledged(self, identity: RequestId | None, subset: Any) -> Event:
        """An acknowledgement without an id belongs to the only request that waits for one."""
        waiting = [key for key, listen in self._open.items() if not listen.acknowledged]
        key: RequestId | None = identity if identity is not None else waiting[0] if len(waiting) == 1 else None
        if key is None or key not in waiting:
            return ProtocolViolation(
                "The server acknowledged a subscription that was not waiting for an acknowledgement."
            )
        listen = self._open[key]
        listen.acknowledged = True
        return Following(granted(listen.requested, subset, listen.refused), key)
