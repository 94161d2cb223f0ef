"""Collects the answers to questions in a result or an error, before the request is sent again.

Source: 2026-07-28 *Multi Round-Trip Requests*; 2025-11-25 *Elicitation / URL Elicitation Required Error*.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ..core import input_requests as rules
from ..core.errors import Fault, LocalError, McpError, NotReady, ProtocolError
from ..core.events import Event, OtherNotification, RequestRefused
from ..core.input_requests import InputRequest, Origin, Refused, WithdrawalReason
from ..core.limits import Limits
from ..core.rounds import Question, Visit
from ..core.session import Session
from .answerers import Answers
from .pump import Pump

log = logging.getLogger(__name__)


class Collecting:
    def __init__(self, session: Session, pump: Pump, answers: Answers, limits: Limits) -> None:
        self._session, self._pump, self._answers, self._limits = session, pump, answers, limits
        self._loop = asyncio.get_running_loop()
        self._working: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(limits.open_server_requests)
        self._over: McpError | None = None
        #: set when the server says that the visit to a URL is over -> the elicitation id that it names
        self._visited: dict[asyncio.Event, str] = {}
        pump.listeners.append(self._on_event)

    async def collect(self, questions: Mapping[str, Question], *, origin: Origin, tag: Any) -> dict[str, Any]:
        """All answers by key. People are asked one question at a time, everything else runs at once.

        ProtocolError (input_not_offered, server_request_limit) before any question is put; LocalError (input_refused)
        when one is refused. Ends with the connection.
        """
        for question in questions.values():
            self._demand_offered(question, origin)
        turn = asyncio.Lock()
        return dict(
            zip(
                questions,
                await self._all([self._one(self._asked(key, q, origin, tag), turn) for key, q in questions.items()]),
                strict=True,
            )
        )

    def check(self, questions: Mapping[str, Question], declared: Mapping[str, Any]) -> None:
        """ProtocolError (input_not_offered) for a question that these capabilities do not cover."""
        for question in questions.values():
            self._demand_covered(question, declared)

    def stop(self, error: McpError | None) -> None:
        """The connection is over: ask nothing more."""
        closed = NotReady("The session was closed.", Fault.CLOSED, may_have_run=True)
        self._over = self._pump.ended_while_running(error or closed)
        for task in self._working:
            task.cancel(WithdrawalReason.CONNECTION_OVER)

    # -- one question

    def _demand_offered(self, question: Question, origin: Origin) -> None:
        self._demand_covered(question, self._session.declared)
        if not self._answers.admit():
            per_minute = self._limits.server_requests_per_minute
            words = f"The server sent more than {per_minute} requests in a minute."
            raise ProtocolError(Fault.SERVER_REQUEST_LIMIT, words, may_have_run=_may_have_run(origin))

    def _demand_covered(self, question: Question, declared: Mapping[str, Any]) -> None:
        refusal = rules.refusal(question.method, question.params, declared)
        if refusal is not None:
            self._pump.emit(RequestRefused(question.method[:200], refusal.code))
            words = f"The server requested {question.method[:80]}, which this client did not offer: {refusal.message}."
            raise ProtocolError(Fault.INPUT_NOT_OFFERED, words)

    def _asked(self, key: str, question: Question, origin: Origin, tag: Any) -> InputRequest:
        params = rules.cleaned(question.method, question.params, self._session.declared)
        return InputRequest(question.method, params, origin, key, tag)

    async def _all(self, works: Sequence[Coroutine[Any, Any, dict[str, Any]]]) -> list[dict[str, Any]]:
        """The first failure ends the others."""
        tasks = [self._begin(work) for work in works]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel(WithdrawalReason.CALL_OVER)
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, dict[str, Any]]) -> "asyncio.Task[dict[str, Any]]":
        task = self._loop.create_task(work, name="mcp answer")
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return task

    async def _one(self, asked: InputRequest, turn: asyncio.Lock) -> dict[str, Any]:
        try:
            if self._over is not None:
                raise self._over.again(may_have_run=_may_have_run(asked.origin))
            if asked.method == rules.ELICIT:
                async with turn, self._room:
                    return await self._answered(asked)
            async with self._room:
                return await self._answered(asked)
        except asyncio.CancelledError:
            if self._over is not None:
                raise self._over.again(may_have_run=_may_have_run(asked.origin)) from None
            raise

    async def _answered(self, asked: InputRequest) -> dict[str, Any]:
        try:
            return await self._answers.put(asked)
        except Refused as exc:
            self._pump.emit(RequestRefused(asked.method, exc.code))
            if asked.origin == "error":
                raise
            words = f"The server requested {asked.method}, which was refused: {exc.message}"
            raise LocalError(Fault.INPUT_REFUSED, words, may_have_run=True) from exc
        except Exception as exc:  # a bug in an answer ends only the call that needed it
            log.exception("%s could not be answered", asked.method)
            words = f"The server requested {asked.method}, and this client failed to answer it."
            raise LocalError(Fault.INPUT_REFUSED, words, may_have_run=_may_have_run(asked.origin)) from exc

    # -- URLs to visit before a call can continue

    async def visit(self, visits: Sequence[Visit], tag: Any) -> None:
        """Visit them one after the other, until each is over: by its answer, or by the server's notification.
        LocalError (input_refused) when one was declined; Refused when no one is available to visit it."""
        for visit in visits:
            question = Question(rules.ELICIT, visit.params)
            self._demand_offered(question, "error")
            await self._visit(self._asked(visit.elicitation_id, question, "error", tag))

    async def _visit(self, asked: InputRequest) -> None:
        over = asyncio.Event()
        self._visited[over] = asked.key
        notified = self._loop.create_task(over.wait(), name="mcp visit")
        answered = self._begin(self._one(asked, asyncio.Lock()))
        try:
            await asyncio.wait((notified, answered), return_when=asyncio.FIRST_COMPLETED)
            action = "accept" if over.is_set() else (await answered)["action"]
            if action != "accept":
                why = "someone declined" if action == "decline" else "no one opened it"
                words = f"The call requires someone to open a page, but {why}."
                raise LocalError(Fault.INPUT_REFUSED, words, may_have_run=False)
        finally:
            del self._visited[over]
            notified.cancel()
            answered.cancel(WithdrawalReason.VISITED if over.is_set() else WithdrawalReason.CALL_OVER)
            await asyncio.gather(notified, answered, return_exceptions=True)

    def _on_event(self, event: Event) -> None:
        if type(event) is OtherNotification and event.method == rules.ELICITED:
            for over, identity in self._visited.items():
                if identity == event.params.get("elicitationId"):
                    over.set()


def _may_have_run(origin: Origin) -> bool:
    """With the error that names a URL, the server states that it did not execute the request."""
    return origin != "error"
