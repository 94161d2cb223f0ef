"""Events that a session reports to its owner, besides the answers to requests.

Events are plain values. Text in them comes from the server: hostile until escaped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from .errors import Fault
from .jsonrpc import RequestId
from .state import State


class ListKind(StrEnum):
    TOOLS = "tools"
    RESOURCES = "resources"
    RESOURCE_TEMPLATES = "resource_templates"
    PROMPTS = "prompts"


@dataclass(frozen=True, slots=True)
class StateChanged:
    old: State
    new: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one of our requests; `tag` is the caller's tag from `call_tool`."""

    request_id: RequestId
    progress: float
    total: float | None
    message: str | None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class LogMessage:
    """`notifications/message`; `data` is any JSON value. `tag`: the tag of the request that it belongs to, if known."""

    level: str
    logger: str | None
    data: Any
    tag: Any = None


@dataclass(frozen=True, slots=True)
class ListChanged:
    kind: ListKind


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    uri: str


@dataclass(frozen=True, slots=True)
class AcceptedSubscriptions:
    """The part of the requested subscriptions that the server accepted.

    `refused` gives the reason for each of the others, by URI, by list (its ListKind) or by task id. It uses the
    server's words if there are any. `passing`: the resources of `refused` that the server may accept later.
    """

    resources: frozenset[str] = frozenset()
    lists: frozenset[ListKind] = frozenset()
    tasks: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Following:
    """The server now sends notifications about these. `subscription` is the id of a modern listen request.

    After a FollowingLost, read again whatever may have changed in between: the server replays nothing.
    """

    honoured: AcceptedSubscriptions
    subscription: RequestId | None = None


@dataclass(frozen=True, slots=True)
class FollowingLost:
    """The server sends no notifications for now. `retried`: the client subscribes again on its own. `final`: another
    request in this session would change nothing."""

    reason: str
    retried: bool = True
    final: bool = False


@dataclass(frozen=True, slots=True)
class DiagnosticLine:
    """One line of a child's `stderr`, a line of its `stdout` that was not a message, or a remark of the transport."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """An answer that arrived after the request was given up; `error` is a JSON-RPC error object."""

    request_id: RequestId
    method: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """A request from the server was handed to the answering side; fields as in `core.input_requests.InputRequest`."""

    method: str
    origin: str
    key: str
    tag: Any = None


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The client answered a request from the server with an error: not declared, over a limit, refused or failed."""

    method: str
    code: int


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """A breach of the protocol that the session survived."""

    detail: str


@dataclass(frozen=True, slots=True)
class NotDelivered:
    """A message of ours that needs no answer did not reach the server, or arrived too late. Neither side broke the
    protocol. `key`: as InputRequest.key, if it was the response to a request of the server."""

    detail: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class OtherNotification:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """`count` events were dropped since the last event because the server sent them too fast. `fault` names the
    limit."""

    count: int
    fault: ClassVar[Fault] = Fault.EVENT_LIMIT


Event = (
    StateChanged
    | Progress
    | LogMessage
    | ListChanged
    | ResourceUpdated
    | Following
    | FollowingLost
    | DiagnosticLine
    | LateAnswer
    | ServerAsked
    | RequestRefused
    | ProtocolViolation
    | NotDelivered
    | OtherNotification
    | EventsDropped
)
