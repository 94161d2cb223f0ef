"""What a session tells its owner besides the answers to requests.

Events are plain values. Text in them comes from the server: hostile until escaped.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
    """`notifications/message`; `data` is any JSON value."""

    level: str
    logger: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class ListChanged:
    kind: ListKind


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    uri: str


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
class RequestRefused:
    """The server asked for something that we did not declare; it was answered with an error."""

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
    """So many events were dropped since the last event, because the server sent them too fast."""

    count: int


Event = (
    StateChanged
    | Progress
    | LogMessage
    | ListChanged
    | ResourceUpdated
    | DiagnosticLine
    | LateAnswer
    | RequestRefused
    | ProtocolViolation
    | OtherNotification
    | EventsDropped
)
