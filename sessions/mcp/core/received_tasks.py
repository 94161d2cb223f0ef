"""Tasks that a server creates with the client (2025-11-25): the server sends a request and fetches the answer later.

Source: 2025-11-25 *Basic / Utilities / Tasks*. Nothing here waits or reads a clock; client/received_tasks.py does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from . import jsonrpc, methods
from .input_requests import Refusal, of_task
from .tasks import TERMINAL, Status

#: milliseconds between two polls, as we suggest to the server
POLL_MS: Final = 1_000
#: tasks kept for one server; those that ended longest ago are forgotten first
KEPT: Final = 64

TaskOutcome = dict[str, Any] | Refusal


@dataclass(slots=True, eq=False)
class ReceivedTask:
    """`created` and `updated` are ISO 8601. `outcome` is the answer to the original request."""

    task_id: str
    method: str
    created: str
    updated: str
    ttl_ms: int
    status: Status = Status.WORKING
    message: str = "Waiting for a person."
    outcome: TaskOutcome | None = None

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    def wire(self) -> dict[str, Any]:
        return {
            "taskId": self.task_id,
            "status": self.status.value,
            "statusMessage": self.message,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttl": self.ttl_ms,
            "pollInterval": POLL_MS,
        }

    def end(self, outcome: TaskOutcome, now: str, *, cancelled: bool = False) -> None:
        """Record the final state. Later calls change nothing."""
        if self.over:
            return
        self.outcome, self.updated = outcome, now
        if cancelled:
            self.status, self.message = Status.CANCELLED, "The server cancelled it."
        elif isinstance(outcome, Refusal):
            self.status, self.message = Status.FAILED, outcome.message
        else:
            self.status, self.message = Status.COMPLETED, "It was answered."

    def result(self) -> TaskOutcome:
        """The answer to `tasks/result` once the task has ended."""
        outcome = self.outcome
        if outcome is None or isinstance(outcome, Refusal):
            return outcome or Refusal(jsonrpc.INTERNAL_ERROR, "The task has no result")
        return of_task(outcome, self.task_id)


def listed(tasks: Iterable[ReceivedTask], params: dict[str, Any]) -> TaskOutcome:
    """The answer to `tasks/list`: all tasks on one page, so any cursor is unknown to us."""
    if params.get("cursor") is not None:
        return Refusal(jsonrpc.INVALID_PARAMS, "Unknown cursor")
    return {"tasks": [task.wire() for task in tasks]}


def unknown() -> Refusal:
    return Refusal(jsonrpc.INVALID_PARAMS, "Task not found")


def cancelled_too_late() -> Refusal:
    return Refusal(jsonrpc.INVALID_PARAMS, "The task has already ended")


#: answered immediately, whereas `tasks/result` waits until the task ends
AT_ONCE: Final = frozenset({methods.TASKS_GET, methods.TASKS_LIST, methods.TASKS_CANCEL})
