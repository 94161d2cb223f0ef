"""What a server tells by itself: what is wanted, what it agreed to, and which open listen request a message is for.

Source: 2025-11-25 *Resources / Subscriptions*; 2026-07-28 *Subscriptions* (`subscriptions/listen`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import jsonrpc, methods
from .capabilities import META, declares
from .errors import HttpError, McpError, NotReady, RpcError
from .events import Event, Following, Honoured, ListKind, ProtocolViolation
from .jsonrpc import Notification, RequestId
from .notifications import events_of
from .offered import refusal
from .tasks import declares_extension

SUBSCRIPTION_ID: Final = META + "subscriptionId"

#: answers to a listen request that the same request would get again
_FINAL_CODES: Final = frozenset(
    {jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS, jsonrpc.INVALID_REQUEST, jsonrpc.MISSING_CAPABILITY}
)
_FINAL_STATUSES: Final = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the owner of a session wants to be told about."""

    resources: frozenset[str] = frozenset()
    lists: frozenset[ListKind] = frozenset()
    tasks: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.resources or self.lists or self.tasks)


def askable(wanted: Wanted, server: Mapping[str, Any], *, tasks: bool) -> tuple[Wanted, dict[str, str]]:
    """What of it may be asked for at all, and why not for the rest. `tasks`: whether we declared the extension."""
    refused: dict[str, str] = {}
    resources, followed = wanted.resources, wanted.tasks
    if not declares(server, "resources", "subscribe"):
        refused |= dict.fromkeys(resources, refusal(server, "resources", "subscribe").detail)
        resources = frozenset()
    if not tasks or not declares_extension(server):
        refused |= dict.fromkeys(followed, "The server does not offer to tell about tasks.")
        followed = frozenset()
    lists = frozenset(kind for kind in wanted.lists if declares(server, methods.LISTS[kind][3], "listChanged"))
    for kind in wanted.lists - lists:
        refused[kind] = f"The server does not announce changes of its {methods.LISTS[kind][3]}."
    return Wanted(resources, lists, followed), refused


def listen_params(wanted: Wanted) -> dict[str, Any]:
    """The parameters of `subscriptions/listen`."""
    wishes: dict[str, Any] = {methods.LIST_WISHES[kind]: True for kind in sorted(wanted.lists)}
    if wanted.resources:
        wishes["resourceSubscriptions"] = sorted(wanted.resources)
    if wanted.tasks:
        wishes["taskIds"] = sorted(wanted.tasks)
    return {"notifications": wishes}


def granted(wanted: Wanted, acknowledged: Any, refused: Mapping[str, str]) -> Honoured:
    """What an acknowledgement (`params.notifications`) grants; `refused` are those that were not even asked for."""
    subset = acknowledged if isinstance(acknowledged, dict) else {}
    resources = _named(wanted.resources, subset.get("resourceSubscriptions"))
    tasks = _named(wanted.tasks, subset.get("taskIds"))
    lists = frozenset(kind for kind in wanted.lists if subset.get(methods.LIST_WISHES[kind]) is True)
    missing = (wanted.resources - resources) | (wanted.tasks - tasks) | (wanted.lists - lists)
    silent = dict.fromkeys(missing, "The server did not agree to tell about it.")
    return Honoured(resources, lists, tasks, {**refused, **silent})


def _named(wanted: frozenset[str], named: Any) -> frozenset[str]:
    """Those of `wanted` that the server names; it may have written the URI with or without its last slash."""
    if not isinstance(named, list):
        return frozenset()
    names = {name.rstrip("/") for name in named if isinstance(name, str)}
    return frozenset(name for name in wanted if name.rstrip("/") in names)


def nothing(wanted: Wanted, reason: str, refused: Mapping[str, str]) -> Honoured:
    """The server refused the whole request, in its own words."""
    names = wanted.resources | wanted.tasks | wanted.lists
    return Honoured(refused={**refused, **dict.fromkeys(names, reason)})


# -- what the end of a listen request means


@dataclass(frozen=True, slots=True)
class Ending:
    """`refused`: the server answered with a no. `again`: the same request may succeed later, without anybody's
    change. `retry_after`: seconds that the server asked us to wait."""

    reason: str
    refused: bool = False
    again: bool = True
    retry_after: float | None = None


def ending(error: McpError | None) -> Ending:
    """What it means that a listen request ended: by an error, or (None) because the server ended it in order."""
    if error is None:
        return Ending("The server ended the subscription.")
    if isinstance(error, RpcError):
        final = error.code in _FINAL_CODES
        return Ending(f"The server refuses subscriptions: {error.detail}", refused=True, again=not final)
    if isinstance(error, HttpError) and error.status in _FINAL_STATUSES:
        return Ending(f"The server has no subscriptions (HTTP {error.status}).", refused=True, again=False)
    lasting = isinstance(error, NotReady) or error.permanent
    return Ending(error.detail, again=not lasting, retry_after=getattr(error, "retry_after", None))


# -- which listen request a message is for


@dataclass(slots=True, eq=False)
class Listen:
    wanted: Wanted
    refused: Mapping[str, str]
    acknowledged: bool = False


class Listens:
    """The open listen requests of a modern session. What carries another subscription's id is late: it is ignored
    and counted."""

    def __init__(self) -> None:
        self._open: dict[RequestId, Listen] = {}
        self.foreign = 0

    def add(self, identity: RequestId, listen: Listen) -> None:
        self._open[identity] = listen

    def remove(self, identity: RequestId) -> None:
        self._open.pop(identity, None)

    def ended_by(self, message: Notification) -> RequestId | None:
        """The listen request that the server ends by `notifications/cancelled`."""
        identity = message.params.get("requestId") if message.method == methods.CANCELLED else None
        return identity if isinstance(identity, str) and identity in self._open else None

    def events_of(self, message: Notification) -> Iterator[Event]:
        """What a notification of a modern server says, if it is for us."""
        meta = message.params.get("_meta")
        identity = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if identity is not None and not (isinstance(identity, str) and identity in self._open):
            self.foreign += 1
        elif message.method == methods.ACKNOWLEDGED:
            yield self._acknowledged(identity, message.params.get("notifications"))
        else:
            yield from events_of(message)

    def _acknowledged(self, identity: str | None, subset: Any) -> Event:
        """Without an id it is for the one request that waits for it."""
        waiting = [key for key, listen in self._open.items() if not listen.acknowledged]
        key: RequestId | None = identity if identity is not None else waiting[0] if len(waiting) == 1 else None
        if key is None or key not in waiting:
            return ProtocolViolation("The server acknowledged a subscription that does not wait for it.")
        listen = self._open[key]
        listen.acknowledged = True
        return Following(granted(listen.wanted, subset, listen.refused), key)
