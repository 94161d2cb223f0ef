"""Answers the requests of a legacy server, each in its own task, limited in number, and ended when its cause ends.

The reader never waits here. If the server asks for a task, the reply is the task, at once; the answer itself follows
later (received_tasks.py). Source: 2025-11-25 *Client / Elicitation, Sampling, Roots*.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from ..core import input_requests as rules
from ..core import jsonrpc, methods
from ..core.errors import McpError
from ..core.events import NotDelivered, ProtocolViolation, RequestRefused
from ..core.input_requests import InputRequest, Refusal, Refused, ServerRequest, WithdrawalReason
from ..core.jsonrpc import RequestId
from ..core.received_tasks import AT_ONCE, TaskOutcome
from ..core.session import Outgoing, Session
from .answerers import Answers
from .pump import Pump
from .received_tasks import ReceivedTasks

log = logging.getLogger(__name__)

#: their answers name their task already, or are about tasks as such
_OF_TASKS = AT_ONCE | {methods.TASKS_RESULT}
_INTERNAL = Refusal(jsonrpc.INTERNAL_ERROR, "Internal error")


@dataclass(slots=True, eq=False)
class _Open:
    """A request that is being answered. `given_up`: we gave up, so the server still waits for an answer."""

    request: ServerRequest
    task: "asyncio.Task[None]"
    given_up: bool = False


class Answering:
    """`most`: requests at once; `patience`: seconds that one answer may take."""

    def __init__(self, session: Session, pump: Pump, answers: Answers, *, most: int, patience: float) -> None:
        self._session, self._pump, self._answers = session, pump, answers
        self._most, self._patience = most, patience
        self._loop = asyncio.get_running_loop()
        self._open: dict[RequestId, _Open] = {}
        self._tasks = ReceivedTasks(self._answered_as_task, seconds=patience)
        #: followed tasks: the tag of the call that became the task
        self.task_tags: dict[str, Any] = {}
        pump.on_asked, pump.on_withdrawn, pump.on_given_up = self.take, self.withdraw, self.give_up

    def __len__(self) -> int:
        return len(self._open) + len(self._tasks)

    def take(self, request: ServerRequest) -> None:
        """Called by the reader: start answering, or refuse at once."""
        if request.method in AT_ONCE:
            self._pump.send_aside(self._outgoing(request, self._tasks.reply(request)))
        elif request.id in self._open or self._tasks.asks(request.id):
            # A resumed stream may repeat what was sent: this one is being answered already.
            self._pump.emit(ProtocolViolation(f"The server sent {request.method} twice with the same id."))
        elif len(self) >= self._most or not self._answers.admit():
            self._pump.emit(RequestRefused(request.method, jsonrpc.INTERNAL_ERROR))
            self._pump.send_aside(self._session.refuse(request.id, jsonrpc.INTERNAL_ERROR, "Too many requests"))
        elif request.as_task:
            self._pump.send_aside(self._outgoing(request, self._tasks.begin(request)))
        else:
            task = self._loop.create_task(self._answer(request), name="mcp answer")
            self._open[request.id] = _Open(request, task)
            task.add_done_callback(lambda _: self._ended(request.id))

    def withdraw(self, identity: RequestId) -> None:
        """The server cancelled its request: stop, and do not answer."""
        one = self._open.get(identity)
        if one is not None:
            one.task.cancel(WithdrawalReason.WITHDRAWN)

    def give_up(self, ours: RequestId) -> None:
        """Our request is over: answer what the server asked for it as if the person had left."""
        self._tasks.give_up(ours)
        for one in self._open.values():
            if one.request.of == ours:
                one.given_up = True
                one.task.cancel(WithdrawalReason.CALL_OVER)

    def stop(self) -> None:
        """No one is left to answer: the connection is over, or the server forgot the session."""
        self._tasks.stop()
        for one in self._open.values():
            one.task.cancel(WithdrawalReason.CONNECTION_OVER)

    def _ended(self, identity: RequestId) -> None:
        one = self._open.pop(identity)
        if one.given_up and one.task.cancelled():
            self._pump.send_aside(self._outgoing(one.request, rules.given_up(one.request.method)))

    async def _answer(self, request: ServerRequest) -> None:
        with self._pump.holding(request.of) as tag:
            if request.method == methods.TASKS_RESULT:
                outcome = await self._tasks.result(request)
            else:
                outcome = await self._outcome(request, tag)
            await self._deliver(request, self._outgoing(request, outcome))

    async def _answered_as_task(self, request: ServerRequest) -> TaskOutcome:
        with self._pump.holding(request.of) as tag:
            return await self._outcome(request, tag)

    async def _outcome(self, request: ServerRequest, tag: Any) -> TaskOutcome:
        if request.origin == "task":
            tag = self.task_tags.get(rules.related_task(request.params) or "")
        asked = InputRequest(request.method, request.params, request.origin, str(request.id), tag)
        try:
            async with asyncio.timeout(self._patience):
                return await self._put(asked)
        except TimeoutError:
            return rules.given_up(request.method)

    async def _put(self, asked: InputRequest) -> TaskOutcome:
        try:
            return await self._answers.put(asked)
        except Refused as exc:
            return Refusal(exc.code, exc.message)
        except Exception:  # a bug in an answer must neither hang the server nor leak to it
            log.exception("%s could not be answered", asked.method)
            return _INTERNAL

    def _outgoing(self, request: ServerRequest, outcome: TaskOutcome) -> Outgoing:
        if not isinstance(outcome, Refusal):
            related = rules.related_task(request.params) if request.method not in _OF_TASKS else None
            try:
                return self._session.reply(request.id, rules.of_task(outcome, related) if related else outcome)
            except McpError as exc:  # it exceeds one of our limits
                log.warning("%s could not be answered: %s", request.method, exc)
                outcome = _INTERNAL
        if request.method not in AT_ONCE:
            self._pump.emit(RequestRefused(request.method, outcome.code))
        return self._session.refuse(request.id, outcome.code, outcome.message)

    async def _deliver(self, request: ServerRequest, outgoing: Outgoing) -> None:
        try:
            await self._pump.reply(outgoing)
        except McpError as exc:
            log.debug("a response did not reach the server: %s", exc)
            words = f"The response to {request.method} came too late, or the server did not accept it: {exc.detail}"
            self._pump.emit(NotDelivered(words, str(request.id)))
