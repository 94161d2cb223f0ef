"""Requests that a server may make of the client, and the shape of valid answers. Decisions only, no I/O.

A legacy server sends its own requests; a modern server answers a call with `inputRequests`. Both become InputRequests.
Source: 2025-11-25 *Client / Elicitation, Sampling, Roots*; 2026-07-28 *Multi Round-Trip Requests*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from . import jsonrpc, methods
from .capabilities import declares, elicitation_modes
from .jsonrpc import RequestId

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
ELICITED: Final = "notifications/elicitation/complete"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

#: legacy: the user rejected the request
USER_REJECTED: Final = -1

#: request: from a legacy server. round: `inputRequests` of a result. task: belongs to a running task. error: a URL to
#: visit, named by the error -32042. The answer to an `error` says that the visit is over, not that it begins.
Origin = Literal["request", "round", "task", "error"]


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One request from a server for input. `key` is the server's own name for it. `tag` is the tag of the call that
    it belongs to, None if unknown. Text in `params` is hostile until escaped."""

    method: str
    params: dict[str, Any]
    origin: Origin
    key: str
    tag: Any = None


class WithdrawalReason(StrEnum):
    """Why an answer is no longer needed: the first argument of the CancelledError that ends the answering task."""

    WITHDRAWN = "withdrawn"  # the server cancelled its request
    CALL_OVER = "call_over"
    CONNECTION_OVER = "connection_over"
    VISITED = "visited"  # the server reports that the user completed the visit of the URL


class Refused(Exception):
    """Raised to refuse an answer. A legacy server receives code and message; a call in rounds ends."""

    def __init__(self, code: int = USER_REJECTED, message: str = "The request was refused.") -> None:
        if -32099 <= code <= -32020:
            raise ValueError(f"{code} belongs to the specification: a client never sends it")
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that we offer to a server as a root; `uri` begins with file:///."""

    uri: str
    name: str = ""

    def __post_init__(self) -> None:
        if not self.uri.startswith("file:///"):
            raise ValueError("a root is a URI that begins with file:///")

    def wire(self) -> dict[str, str]:
        return {"uri": self.uri, "name": self.name} if self.name else {"uri": self.uri}


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A legacy request that we declared to answer. `of`: the id of our request whose reply stream carried it.
    `as_task`: the server will fetch the answer later (2025-11-25)."""

    id: RequestId
    method: str
    params: dict[str, Any]
    origin: Origin
    of: RequestId | None
    as_task: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The server cancelled its request and no longer needs the answer."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class Refusal:
    code: int
    message: str


def refusal(method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> Refusal | None:
    """The immediate refusal of a request that `declared` (our capabilities in force) does not cover, or None."""
    if method == LIST_ROOTS and declares(declared, "roots"):
        return None
    if method == ELICIT and declares(declared, "elicitation"):
        return _mode_refusal(params.get("mode", "form"), declared)
    if method == SAMPLE and declares(declared, "sampling"):
        return _tools_refusal(params, declared)
    if method in _OF_TASKS and declares(declared, "tasks", *_OF_TASKS[method]):
        return None
    return Refusal(jsonrpc.METHOD_NOT_FOUND, "Method not found")


#: 2025-11-25: requests about the tasks that a server created on our side, and the feature that we declare for each
_OF_TASKS: Final = {
    methods.TASKS_GET: (),
    methods.TASKS_RESULT: (),
    methods.TASKS_LIST: ("list",),
    methods.TASKS_CANCEL: ("cancel",),
}
_AS_TASK: Final = {ELICIT: ("elicitation", "create"), SAMPLE: ("sampling", "createMessage")}


def wants_task(method: str, params: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether the server will fetch the answer later, as we offered. Without our offer, a request for a task is
    ignored."""
    feature = _AS_TASK.get(method)
    offered = feature is not None and declares(declared, "tasks", "requests", *feature)
    return offered and isinstance(params.get("task"), dict)


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
    """2025-11-25: the id of the task that this request belongs to."""
    meta = params.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    identity = related.get("taskId") if isinstance(related, dict) else None
    return identity if isinstance(identity, str) else None


def of_task(outcome: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """2025-11-25: a result that names the task it belongs to, as every message of a task must."""
    meta = outcome.get("_meta")
    own = meta if isinstance(meta, dict) else {}
    return {**outcome, "_meta": {**own, RELATED_TASK: {"taskId": task_id}}}


def cleaned(method: str, params: dict[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the answering side may see. An `includeContext` that was never declared becomes "none"."""
    if method in _AS_TASK and "task" in params:
        params = {
            name: value for name, value in params.items() if name != "task"
        }  # `task` says how to deliver the answer, not what is asked
    if method == SAMPLE and "includeContext" in params and not declares(declared, "sampling", "context"):
        return {**params, "includeContext": "none"}
    return params


def given_up(method: str) -> dict[str, Any] | Refusal:
    """The default answer when the call has ended or the deadline has passed."""
    if method == ELICIT:
        return {"action": "cancel"}
    code = USER_REJECTED if method == SAMPLE else jsonrpc.INTERNAL_ERROR
    return Refusal(code, "No answer was given")


def checked_answer(asked: InputRequest, answer: Any) -> dict[str, Any]:
    """The answer as it may be sent. ValueError (a fault of the answering side) when it is not valid."""
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
