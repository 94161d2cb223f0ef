"""What a server may ask of us, and what an answer may look like: decisions only.

A legacy server sends requests of its own; a modern one answers a call with `inputRequests`. Both become an Asked.
Source: 2025-11-25 *Client / Elicitation, Sampling, Roots*; 2026-07-28 *Multi Round-Trip Requests*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from . import jsonrpc
from .capabilities import declares, elicitation_modes
from .jsonrpc import RequestId

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
ELICITED: Final = "notifications/elicitation/complete"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

#: legacy: a person did not want it
USER_REJECTED: Final = -1

#: request: of a legacy server. round: `inputRequests` of a result. task: for a task that runs. error: a URL that
#: the error -32042 asks to visit; its answer says that the visit is over, not that it begins.
Origin = Literal["request", "round", "task", "error"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a server. `key` is the server's own name for it; `tag` that of the call it belongs to, None
    when that is unknown. Text in `params` is hostile until escaped."""

    method: str
    params: dict[str, Any]
    origin: Origin
    key: str
    tag: Any = None


class Gone(StrEnum):
    """Why nobody wants an answer any more: the first argument of the CancelledError that ends whoever answers."""

    WITHDRAWN = "withdrawn"  # the server took its question back
    CALL_OVER = "call_over"
    CONNECTION_OVER = "connection_over"
    VISITED = "visited"  # the server says that the visit of the URL is over


class Refused(Exception):
    """Raised by an answer that will not be given. A legacy server gets code and message; a call in rounds ends."""

    def __init__(self, code: int = USER_REJECTED, message: str = "The request was refused.") -> None:
        if -32099 <= code <= -32020:
            raise ValueError(f"{code} belongs to the specification: a client never sends it")
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that a server may regard as ours; `uri` begins with file:///."""

    uri: str
    name: str = ""

    def __post_init__(self) -> None:
        if not self.uri.startswith("file:///"):
            raise ValueError("a root is a URI that begins with file:///")

    def wire(self) -> dict[str, str]:
        return {"uri": self.uri, "name": self.name} if self.name else {"uri": self.uri}


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A legacy request that we declared to answer. `of`: our request on whose own stream it came."""

    id: RequestId
    method: str
    params: dict[str, Any]
    origin: Origin
    of: RequestId | None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The server no longer wants the answer to its request."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class Refusal:
    code: int
    message: str


def refusal(method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> Refusal | None:
    """Why a question is not even put to anybody: what `declared` (in force) does not cover."""
    if method == LIST_ROOTS and declares(declared, "roots"):
        return None
    if method == ELICIT and declares(declared, "elicitation"):
        return _mode_refusal(params.get("mode", "form"), declared)
    if method == SAMPLE and declares(declared, "sampling"):
        return _tools_refusal(params, declared)
    return Refusal(jsonrpc.METHOD_NOT_FOUND, "Method not found")


def _mode_refusal(mode: Any, declared: Mapping[str, Any]) -> Refusal | None:
    if isinstance(mode, str) and mode in elicitation_modes(declared):
        return None
    return Refusal(jsonrpc.INVALID_PARAMS, "This mode of elicitation was not declared")


def _tools_refusal(params: Mapping[str, Any], declared: Mapping[str, Any]) -> Refusal | None:
    wants_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    if not wants_tools or declares(declared, "sampling", "tools"):
        return None
    return Refusal(jsonrpc.INVALID_PARAMS, "Sampling with tools was not declared")


def origin_of(params: Mapping[str, Any]) -> Origin:
    meta = params.get("_meta")
    return "task" if isinstance(meta, dict) and isinstance(meta.get(RELATED_TASK), dict) else "request"


def related_task(params: Mapping[str, Any]) -> str | None:
    """2025-11-25: the task for whose sake something is asked."""
    meta = params.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    identity = related.get("taskId") if isinstance(related, dict) else None
    return identity if isinstance(identity, str) else None


def cleaned(method: str, params: dict[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """What whoever answers gets to see: a context that was never declared counts as none."""
    if method == SAMPLE and "includeContext" in params and not declares(declared, "sampling", "context"):
        return {**params, "includeContext": "none"}
    return params


def given_up(method: str) -> dict[str, Any] | Refusal:
    """The answer when nobody will answer any more: the call is over, or the time is."""
    if method == ELICIT:
        return {"action": "cancel"}
    code = USER_REJECTED if method == SAMPLE else jsonrpc.INTERNAL_ERROR
    return Refusal(code, "No answer was given")


def checked_answer(asked: Asked, answer: Any) -> dict[str, Any]:
    """The answer as it may leave; ValueError (a fault of whoever answered) when it is none."""
    if not isinstance(answer, Mapping):
        raise ValueError("an answer is an object")
    if asked.method == ELICIT:
        return _elicited(answer, form=asked.params.get("mode", "form") == "form")
    if asked.method == SAMPLE and not all(name in answer for name in ("role", "content", "model")):
        raise ValueError("a sampling result has role, content and model")
    return dict(answer)


def _elicited(answer: Mapping[str, Any], *, form: bool) -> dict[str, Any]:
    action, content = answer.get("action"), answer.get("content")
    if action not in ("accept", "decline", "cancel"):
        raise ValueError("an elicitation is accepted, declined or cancelled")
    if action != "accept" or not form:
        return {"action": action}
    if not isinstance(content, Mapping) or not all(_flat(value) for value in content.values()):
        raise ValueError("the content of an elicitation holds strings, numbers, booleans and lists of strings")
    return {"action": action, "content": dict(content)}


def _flat(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, str) for entry in value)
    return isinstance(value, (str, int, float, bool))
