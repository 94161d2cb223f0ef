"""What a session tells its owner besides the answers to requests.

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
    """Progress of one of our requests; `tag` is what the caller of `call_tool` gave."""

    request_id: RequestId
    progress: float
    total: float | None
    message: str | None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class LogMessage:
    """`notifications/message`; `data` is any JSON value. `tag`: of the request that it belongs to, where that is known."""

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
class Honoured:
    """What the server agreed to tell us about, of what was wanted.

    `refused` says why for everything else: by URI, by list (its ListKind), by task id; in the server's words where
    it had any.
    """

    resources: frozenset[str] = frozenset()
    lists: frozenset[ListKind] = frozenset()
    tasks: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Following:
    """From now on the server tells us about these. `subscription` is the id of a modern listen request.

    After a FollowingLost, read again what may have changed in between: nothing is replayed.
    """

    honoured: Honoured
    subscription: RequestId | None = None


@dataclass(frozen=True, slots=True)
class FollowingLost:
    """The server tells us nothing for now. `retried`: the client asks again by itself."""

    reason: str
    retried: bool = True


@dataclass(frozen=True, slots=True)
class DiagnosticLine:
    """One line of a child's `stderr`, or of its `stdout` when it was no message."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """An answer that came after the request was given up; `error` is a JSON-RPC error object."""

    request_id: RequestId
    method: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    tag: Any = None


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """A question of the server was put to whoever answers it; fields as in protocol.asked.Asked."""

    method: str
    origin: str
    key: str
    tag: Any = None


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The server asked for something and was answered with an error: not declared, too much, refused or failed."""

    method: str
    code: int


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """Something that breaks the protocol and was survived."""

    detail: str


@dataclass(frozen=True, slots=True)
class OtherNotification:
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """So many events were dropped since the last event, because the server sent them too fast; `fault` names the
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
    | OtherNotification
    | EventsDropped
)
