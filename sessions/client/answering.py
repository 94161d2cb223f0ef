"""Requests of a legacy server: each is answered in a task of its own, bounded, and ended with its cause.

The reader never waits here. Source: 2025-11-25 *Client / Elicitation, Sampling, Roots*.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from ..protocol import asked as rules
from ..protocol import jsonrpc
from ..protocol.asked import Asked, Gone, Refused, ServerRequest
from ..protocol.errors import McpError
from ..protocol.events import ProtocolViolation, RequestRefused
from ..protocol.jsonrpc import RequestId
from ..protocol.session import Outgoing, Session
from .answers import Answers
from .pump import Pump

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Open:
    """A request that is being answered. `given_up`: by us, so that the server still waits for some answer."""

    request: ServerRequest
    task: "asyncio.Task[None]"
    given_up: bool = False


class Answering:
    """`most` requests at once; `patience`: seconds that one answer may take at most."""

    def __init__(self, session: Session, pump: Pump, answers: Answers, *, most: int, patience: float) -> None:
        self._session, self._pump, self._answers = session, pump, answers
        self._most, self._patience = most, patience
        self._loop = asyncio.get_running_loop()
        self._open: dict[RequestId, _Open] = {}
        #: of the tasks that are followed: the tag of the call that became the task
        self.task_tags: dict[str, Any] = {}
        pump.on_asked, pump.on_withdrawn, pump.on_given_up = self.take, self.withdraw, self.give_up

    def __len__(self) -> int:
        return len(self._open)

    def take(self, request: ServerRequest) -> None:
        """Called by the reader: begin to answer, or refuse at once."""
        if request.id in self._open:
            # Streams that are resumed may repeat what was sent: it is being answered already.
            self._pump.tell(ProtocolViolation(f"The server asked {request.method} twice under one id."))
        elif len(self._open) >= self._most or not self._answers.admit():
            self._pump.tell(RequestRefused(request.method, jsonrpc.INTERNAL_ERROR))
            self._pump.aside(self._session.refuse(request.id, jsonrpc.INTERNAL_ERROR, "Too many requests"))
        else:
            task = self._loop.create_task(self._answer(request), name="mcp answer")
            self._open[request.id] = _Open(request, task)
            task.add_done_callback(lambda _: self._ended(request.id))

    def withdraw(self, identity: RequestId) -> None:
        """The server cancelled its request: stop, and do not answer."""
        one = self._open.get(identity)
        if one is not None:
            one.task.cancel(Gone.WITHDRAWN)

    def give_up(self, ours: RequestId) -> None:
        """Our request is over: what the server asked for its sake gets the answer of a person who went away."""
        for one in self._open.values():
            if one.request.of == ours:
                one.given_up = True
                one.task.cancel(Gone.CALL_OVER)

    def stop(self) -> None:
        """Nobody is left to be answered: the connection is over, or the server forgot the session."""
        for one in self._open.values():
            one.task.cancel(Gone.CONNECTION_OVER)

    def _ended(self, identity: RequestId) -> None:
        one = self._open.pop(identity)
        if one.given_up and one.task.cancelled():
            self._pump.aside(self._unanswered(one.request))

    async def _answer(self, request: ServerRequest) -> None:
        with self._pump.holding(request.of) as tag:
            try:
                async with asyncio.timeout(self._patience):
                    outgoing = await self._outcome(request, tag)
            except TimeoutError:
                outgoing = self._unanswered(request)
            await self._deliver(request, outgoing)

    async def _outcome(self, request: ServerRequest, tag: Any) -> Outgoing:
        if request.origin == "task":
            tag = self.task_tags.get(rules.related_task(request.params) or "")
        asked = Asked(request.method, request.params, request.origin, str(request.id), tag)
        try:
            return self._session.reply(request.id, await self._answers.put(asked))
        except Refused as exc:
            return self._refused(request, exc.code, exc.message)
        except Exception:  # a fault of whoever answers must neither hang the server nor be told to it
            log.exception("%s could not be answered", request.method)
            return self._refused(request, jsonrpc.INTERNAL_ERROR, "Internal error")

    def _refused(self, request: ServerRequest, code: int, message: str) -> Outgoing:
        self._pump.tell(RequestRefused(request.method, code))
        return self._session.refuse(request.id, code, message)

    def _unanswered(self, request: ServerRequest) -> Outgoing:
        answer = rules.given_up(request.method)
        if isinstance(answer, rules.Refusal):
            return self._refused(request, answer.code, answer.message)
        return self._session.reply(request.id, answer)

    async def _deliver(self, request: ServerRequest, outgoing: Outgoing) -> None:
        try:
            await self._pump.reply(outgoing)
        except McpError as exc:
            log.debug("an answer did not reach the server: %s", exc)
            self._pump.tell(ProtocolViolation(f"The answer to {request.method} was not taken: {exc.detail}"))
