"""Tasks: calls whose result is fetched later. Reads task states and decides the next step of a waiting client.

Two kinds share the names of their states. In the core of 2025-11-25 the client asks for a task and fetches its result
with a separate request. In the extension `io.modelcontextprotocol/tasks` of 2026-07-28 the server decides, and the
task itself contains the result. Nothing here waits; client/task_run.py does.

Source: 2025-11-25 *Basic / Utilities / Tasks*; SEP-2663 and github.com/modelcontextprotocol/ext-tasks.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from .capabilities import TASKS_EXTENSION, declares
from .errors import Fault, McpError, ProtocolError, RemoteError, RpcError
from .refusals import in_one_line, with_words
from .versions import Era, Revision

EXTENSION: Final = TASKS_EXTENSION

#: seconds between two polls if the server names no interval, and the bounds of what it may name
POLL: Final = 5.0
POLL_LEAST: Final = 0.1
POLL_MOST: Final = 300.0
#: requests for input that we answer for one task; if the server asks for more, the call fails
INPUTS: Final = 64
#: consecutive failed polls until we give the task up
MISSES: Final = 4
_ID_CHARS: Final = 1024

Support = Literal["forbidden", "optional", "required"]


class Status(StrEnum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


#: Final states: no other state follows.
TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class TaskState:
    """The last known state of a task. `ttl` (from its creation; None: unlimited) and `poll` are in seconds. Times are
    the server's own ISO 8601 text. `raw` is the whole object, including results and requests for input."""

    task_id: str
    status: Status
    message: str = ""
    created_at: str = ""
    updated_at: str = ""
    ttl: float | None = None
    poll: float = POLL
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def over(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Allow a call to become a task. 2025-11-25: we ask for a task where server and tool allow it. 2026-07-28: the
    server decides, and `ttl_ms` is not sent.

    `on_task` receives each state; the first comes before any further request to the server. Keep its `task_id` to
    resume after a restart. `support` is the tool's `execution.taskSupport` if the caller knows it; then the client
    need not list the tools. `ask`: also ask for a task where the tool can run without one. A tool that requires a
    task always gets one.
    """

    ttl_ms: int | None = None
    on_task: Callable[[TaskState], None] | None = None
    support: Support | None = None
    ask: bool = True


@dataclass(frozen=True, slots=True)
class TaskListing:
    """`limited_by`: why the list may be incomplete."""

    items: list[TaskState]
    warnings: list[str] = field(default_factory=list)
    limited_by: Fault | None = None


# -- offered features


@dataclass(frozen=True, slots=True)
class TasksOffer:
    """The task features that can be used with a server."""

    call: bool = False
    list: bool = False
    cancel: bool = False


def offer_of(server: Mapping[str, Any], ours: Mapping[str, Any], revision: Revision) -> TasksOffer:
    """Derived from the capabilities of both sides. The extension has no list, and applies only if we declared it."""
    if revision.extensions:
        both = declares_extension(server) and declares_extension(ours)
        return TasksOffer(both, False, both)
    if not revision.core_tasks:
        return TasksOffer()
    call = declares(server, "tasks", "requests", "tools", "call")
    return TasksOffer(call, declares(server, "tasks", "list"), declares(server, "tasks", "cancel"))


def declares_extension(capabilities: Mapping[str, Any]) -> bool:
    return declares(capabilities, "extensions", EXTENSION)


def support_of(tool: Mapping[str, Any]) -> Support:
    """A tool's `execution.taskSupport`; absent and unknown mean forbidden."""
    execution = tool.get("execution")
    support = execution.get("taskSupport") if isinstance(execution, Mapping) else None
    if support == "required":
        return "required"
    return "optional" if support == "optional" else "forbidden"


# -- reading


def created(result: dict[str, Any], era: Era) -> TaskState:
    """The task in a result (see rounds.check_result). ProtocolError if it cannot be read."""
    return state_of(result if era is Era.MODERN else result.get("task"), era)


def announces(result: Mapping[str, Any], *, asked_for: bool) -> bool:
    """2025-11-25: whether the result of a call is a CreateTaskResult.

    SDKs add an empty `content` beside the task, and some servers a text for the model. If we asked for a task, the
    task takes precedence. Otherwise it counts only without content, because a tool's own result may have a member
    named `task`.
    """
    task = result.get("task")
    if not isinstance(task, Mapping) or not isinstance(task.get("taskId"), str):
        return asked_for and isinstance(task, Mapping) and "content" not in result
    known = task.get("status") in [status.value for status in Status]
    return asked_for or (known and not result.get("content"))


def state_of(fields: Any, era: Era) -> TaskState:
    """ProtocolError (invalid_result) if `fields` is not a task."""
    if not isinstance(fields, dict):
        raise _invalid("is not an object")
    identity = fields.get("taskId")
    if not isinstance(identity, str) or not 0 < len(identity) <= _ID_CHARS:
        raise _invalid(f"has no usable taskId (a string of 1 to {_ID_CHARS} characters)")
    suffix = "Ms" if era is Era.MODERN else ""
    poll = _seconds(fields.get("pollInterval" + suffix))
    return TaskState(
        identity,
        _status(fields.get("status")),
        _text(fields.get("statusMessage")),
        _text(fields.get("createdAt")),
        _text(fields.get("lastUpdatedAt")),
        _seconds(fields.get("ttl" + suffix)),
        POLL if poll is None else min(max(poll, POLL_LEAST), POLL_MOST),
        fields,
    )


def _status(value: Any) -> Status:
    try:
        return Status(value)
    except ValueError:
        raise _invalid(f"has the unknown status {str(value)[:40]!r}") from None


def _seconds(milliseconds: Any) -> float | None:
    number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if number and 0 <= milliseconds <= 1e15 else None


def _text(value: Any) -> str:
    return value[:2_000] if isinstance(value, str) else ""


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(Fault.INVALID_RESULT, f"The server's task {why}.")


# -- the next step


@dataclass(frozen=True, slots=True)
class Wait:
    """Poll again after the task's `poll`. `inputs` (extension): new requests for input to answer meanwhile."""

    inputs: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetch:
    """2025-11-25: request the result now. If the task has not ended, the result comes later: keep polling meanwhile."""


@dataclass(frozen=True, slots=True)
class Finished:
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """The task ended without a result."""

    error: McpError


NextStep = Wait | Fetch | Finished | Ended


def next_step(state: TaskState, era: Era, answered: Collection[str] = ()) -> NextStep:
    """The next step for a task in this state. `answered`: keys of requests for input that were handled before."""
    if state.status is Status.CANCELLED:
        words = with_words(f"The server cancelled the task {_short(state)}.", in_one_line(state.message))
        return Ended(RemoteError(Fault.TASK_CANCELLED, words, may_have_run=True))
    if era is Era.LEGACY:
        return _legacy_step(state)
    if state.status is Status.COMPLETED:
        return _inline_result(state)
    if state.status is Status.FAILED:
        return Ended(_inline_error(state))
    if state.status is Status.INPUT_REQUIRED:
        return _inputs(state, answered)
    return Wait()


def _legacy_step(state: TaskState) -> NextStep:
    """The server sends its own requests on the stream of `tasks/result`, so we call that method early."""
    if state.status is Status.WORKING:
        return Wait()
    return Fetch()


def fetched(state: TaskState, result: dict[str, Any]) -> dict[str, Any]:
    """The result of `tasks/result` for a task in this state. For a failed task whose error it did not keep, a server
    may return an empty result, which must not count as success (official Python SDK 1.x)."""
    if state.status is Status.FAILED and "content" not in result:
        reason = "" if state.message else " The server gave no reason."
        words = with_words(f"The task {_short(state)} failed.{reason}", in_one_line(state.message))
        raise RemoteError(Fault.TASK_FAILED, words, may_have_run=True)
    return result


def _inline_result(state: TaskState) -> NextStep:
    result = state.raw.get("result")
    if not isinstance(result, dict) or result.get("resultType", "complete") != "complete":
        return Ended(_invalid("completed without a result"))
    return Finished(result)


def _inline_error(state: TaskState) -> McpError:
    error = state.raw.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(code, int) or isinstance(code, bool):
        return _invalid("failed without an error")
    return RpcError(code, str(error.get("message", "")), error.get("data"))


def _inputs(state: TaskState, answered: Collection[str]) -> NextStep:
    requests = state.raw.get("inputRequests")
    if not isinstance(requests, dict) or not all(isinstance(request, dict) for request in requests.values()):
        return Ended(_invalid("is waiting for input but contains no request for it"))
    fresh = {key: request for key, request in requests.items() if key not in answered}
    if len(answered) + len(fresh) > INPUTS:
        words = f"The task {_short(state)} asked for input more than {INPUTS} times."
        return Ended(ProtocolError(Fault.ROUND_LIMIT, words))
    return Wait(fresh)


def lost(task_id: str, words: str = "", why: str = "it expired or was deleted") -> RemoteError:
    """The server does not (or no longer) know the task, so the outcome of the call stays unknown. `words`: its own."""
    detail = f"The server no longer knows the task {task_id[:60]!r}: {why}."
    return RemoteError(Fault.TASK_LOST, with_words(detail, in_one_line(words)), may_have_run=True)


def pause_after_miss(misses: int, poll: float) -> float | None:
    """Seconds until the next poll after `misses` consecutive failures. None: give the task up."""
    return min(poll * 2**misses, 60.0) if misses < MISSES else None


def _short(state: TaskState) -> str:
    return repr(state.task_id[:60])
