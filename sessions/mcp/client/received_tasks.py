"""Tasks that a legacy server creates with us: kept while it may ask for them, and answered when it fetches them.

Source: 2025-11-25 *Basic / Utilities / Tasks*. answering.py puts the questions to people, as if they were not tasks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ..core import input_requests as rules
from ..core import methods
from ..core import received_tasks as protocol
from ..core.input_requests import ServerRequest, WithdrawalReason
from ..core.jsonrpc import RequestId
from ..core.received_tasks import ReceivedTask, TaskOutcome

#: waits for a person's answer, or for the reason why there is none
Answer = Callable[[ServerRequest], Coroutine[Any, Any, TaskOutcome]]


class ReceivedTasks:
    """`seconds`: how long one may take."""

    def __init__(self, answer: Answer, *, seconds: float) -> None:
        self._answer, self._seconds = answer, seconds
        self._tasks: dict[str, ReceivedTask] = {}
        self._running: dict[str, tuple[ServerRequest, asyncio.Task[TaskOutcome]]] = {}
        #: set when the task is over
        self._ends: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, request: ServerRequest) -> dict[str, Any]:
        """Start asking people; return the CreateTaskResult."""
        self._forget()
        now, identity = _now(), str(uuid4())
        task = ReceivedTask(identity, request.method, now, now, int(self._seconds * 1000))
        self._tasks[identity], self._ends[identity] = task, asyncio.Event()
        running = asyncio.create_task(self._answer(request), name="mcp received task")
        self._running[identity] = (request, running)
        running.add_done_callback(lambda done: self._ended(task, done))
        return {"task": task.wire()}

    def asks(self, identity: RequestId) -> bool:
        """Whether the request with this id became a task that waits for its answer."""
        return any(request.id == identity for request, _ in self._running.values())

    def reply(self, request: ServerRequest) -> TaskOutcome:
        """Answer a request of `core.received_tasks.AT_ONCE`."""
        if request.method == methods.TASKS_LIST:
            return protocol.listed(self._tasks.values(), request.params)
        task = self._task_of(request)
        if task is None:
            return protocol.unknown()
        if request.method == methods.TASKS_GET:
            return task.wire()
        if task.over:
            return protocol.cancelled_too_late()
        self._end(task, _given_up(task), cancelled=True)
        if task.task_id in self._running:
            self._running[task.task_id][1].cancel(WithdrawalReason.WITHDRAWN)
        return task.wire()

    async def result(self, request: ServerRequest) -> TaskOutcome:
        """Answer `tasks/result` when the task is over."""
        task = self._task_of(request)
        if task is None:
            return protocol.unknown()
        await self._ends[task.task_id].wait()
        return task.result()

    def give_up(self, ours: RequestId) -> None:
        """Our request is over: what the server asked for it no longer needs an answer."""
        for request, running in self._running.values():
            if request.of == ours:
                running.cancel(WithdrawalReason.CALL_OVER)

    def stop(self) -> None:
        """No one is left to fetch an answer."""
        for _, running in self._running.values():
            running.cancel(WithdrawalReason.CONNECTION_OVER)
        self._tasks.clear()
        self._ends = {identity: end for identity, end in self._ends.items() if identity in self._running}

    def _ended(self, task: ReceivedTask, done: "asyncio.Task[TaskOutcome]") -> None:
        del self._running[task.task_id]
        self._end(task, _given_up(task) if done.cancelled() else done.result())
        if task.task_id not in self._tasks:
            self._ends.pop(task.task_id, None)

    def _end(self, task: ReceivedTask, outcome: TaskOutcome, *, cancelled: bool = False) -> None:
        task.end(outcome, _now(), cancelled=cancelled)
        if (end := self._ends.get(task.task_id)) is not None:  # None: forgotten meanwhile
            end.set()

    def _task_of(self, request: ServerRequest) -> ReceivedTask | None:
        identity = request.params.get("taskId")
        return self._tasks.get(identity) if isinstance(identity, str) else None

    def _forget(self) -> None:
        over = [identity for identity, task in self._tasks.items() if task.over]
        for identity in over[: max(0, len(self._tasks) - protocol.KEPT + 1)]:
            del self._tasks[identity], self._ends[identity]


def _given_up(task: ReceivedTask) -> TaskOutcome:
    return rules.given_up(task.method)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
