"""The server requests of one session that wait for a person. Each is a row of the inbox; the coroutine here waits for
its answer.

The answer is stored in the row; a wake-up or the tick makes the host read it. When the answer is no longer needed (the
server withdrew its request, the call or the connection ended), the row ends as withdrawn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from servers import limits
from servers.crypto import SealError
from servers.models import Payload
from sessions import hints
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import QuestionKind, QuestionState
from sessions.host.answer_redaction import Redactor
from sessions.host.db import Database, DatabaseAway
from sessions.host.inbox import server_requests
from sessions.host.launch import Launch
from sessions.host.logs.session_log import ServerLog
from sessions.inbox import questions, reads
from sessions.inbox.questions import NewQuestion
from sessions.inbox.reads import Settled
from sessions.mcp.client.answerers import Answer
from sessions.mcp.core import input_requests as rules
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.flow import TokenBucket
from sessions.mcp.core.input_requests import InputRequest, Origin, WithdrawalReason

MINUTE = 60.0
CLOSE_SECONDS = 3.0
#: requests of one session that wait only for agents: the inbox of people has a limit of its own
AGENT_REQUESTS_OPEN: Final = 64
#: answers that were given to the client a moment ago, and may not have reached the server
ANSWERS_KEPT: Final = 64
#: visits by agents that the server has not reported as complete; it need not do so
VISITS_KEPT: Final = 256
#: length of an elicitation id: the end of a visit with a longer one is not reported
VISIT_CHARS: Final = 1_000
_GONE: Final[Mapping[str, str]] = {
    WithdrawalReason.WITHDRAWN: "The server withdrew the request.",
    WithdrawalReason.CONNECTION_OVER: "The connection closed before anyone answered.",
}
_CALL_OVER: Final = "The call ended before anyone answered."
_VISITED: Final = "The server reported that the visit is complete."


@dataclass(eq=False)
class _Wait:
    task: "asyncio.Task[Any] | None"
    answer: "asyncio.Future[Settled]"
    call_uid: UUID | None
    origin: Origin
    of_agent: bool = False
    #: the elicitation id of a URL, unless it came with an error: then the client ends the wait
    visit: str = ""


def _visit_of(asked: InputRequest) -> str:
    """The elicitation id, by which the server may report the end of the visit; empty without a usable one."""
    identity = asked.params.get("elicitationId")
    return identity if isinstance(identity, str) and len(identity) <= VISIT_CHARS else ""


class Inbox:
    """The inbox of one open session."""

    def __init__(self, db: Database, lease: Lease, launch: Launch, log: ServerLog, redactor: Redactor) -> None:
        self._db, self._lease, self._launch, self._log, self._redactor = db, lease, launch, log, redactor
        self._waits: dict[UUID, _Wait] = {}
        #: elicitation id and call -> whether the call is over
        self._visits: OrderedDict[tuple[str, UUID], bool] = OrderedDict()
        #: the server's name of a request -> its question, which a person has answered
        self._answered: OrderedDict[str, UUID] = OrderedDict()
        #: call -> its questions that a person has answered; the answers leave when the call is sent again
        self._unsent: dict[UUID, list[UUID]] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._bucket = TokenBucket(settings.INBOX_PER_MINUTE / MINUTE, settings.INBOX_PER_MINUTE)
        self._refusal_logged_at = float("-inf")

    @property
    def answers(self) -> dict[str, Answer]:
        """The handler of each request method, for the client."""
        return dict.fromkeys(server_requests.answered(self._launch), self.wait_for_answer)

    @property
    def uids(self) -> list[UUID]:
        return list(self._waits)

    def waits_for(self, call_uid: UUID) -> Origin | None:
        """What the call waits for, if none of its requests is at the server: it is sent again after the answer."""
        origins = (wait.origin for wait in self._waits.values() if wait.call_uid == call_uid)
        return next((origin for origin in origins if origin in ("round", "error")), None)

    # --- one question -------------------------------------------------------------------------------------------------
    async def wait_for_answer(self, asked: InputRequest) -> Mapping[str, Any]:
        """Wait for a person. Raises Refused; ends with CancelledError when the answer is no longer needed."""
        call = asked.tag if isinstance(asked.tag, PendingCall) else None
        if call is not None and call.agent is not None:
            self._note_visit(asked, call)
            if not server_requests.covered(asked, call.agent):
                raise rules.Refused(
                    jsonrpc.METHOD_NOT_FOUND, "The agent that makes this call does not answer requests of this kind."
                )
        of_agent = call is not None and call.agent is not None and not call.agent.asks_people
        self._admit(of_agent=of_agent)  # before the work that a large request makes
        made = server_requests.new_question(
            asked, call, self._redactor, settings.INBOX_SECONDS, self._launch.timeouts.total
        )
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        wait = self._waits[made.uid] = _Wait(
            asyncio.current_task(), future, call.uid if call else None, asked.origin, of_agent
        )
        if made.kind is QuestionKind.URL and asked.origin != "error":
            wait.visit = _visit_of(asked)
        try:
            settled = await self._settled(made, wait)
        except asyncio.CancelledError as gone:
            self._spawn(self._gone(made.uid, str(gone.args[0]) if gone.args else ""))
            raise
        finally:
            del self._waits[made.uid]
        if settled is not None and server_requests.by_person(settled):
            if call is not None and asked.origin in ("round", "error"):
                self._unsent.setdefault(call.uid, []).append(made.uid)
            else:
                self._note_answer(asked, made.uid)
                self._spawn(self._db.persist(partial(questions.delivered, made.uid)))
        return server_requests.answer_params(asked, settled)

    def _note_answer(self, asked: InputRequest, uid: UUID) -> None:
        """Only the response to a request of a legacy server is a message of its own."""
        if asked.origin in ("request", "task"):
            self._answered[asked.key] = uid
            if len(self._answered) > ANSWERS_KEPT:
                self._answered.popitem(last=False)

    def call_sent(self, call_uid: UUID) -> None:
        """The call is sent again, with the answers that it collected."""
        for uid in self._unsent.pop(call_uid, ()):
            self._spawn(self._db.persist(partial(questions.delivered, uid)))

    def not_delivered(self, key: str) -> None:
        """The server did not take the response to its request `key`."""
        uid = self._answered.pop(key, None)
        if uid is not None:
            self._spawn(self._db.persist(partial(questions.not_delivered, uid, questions.NOT_TAKEN)))

    def _admit(self, *, of_agent: bool) -> None:
        """Raises Refused for more requests than people, or an agent, can handle."""
        now = asyncio.get_running_loop().time()
        open_now = sum(1 for wait in self._waits.values() if wait.of_agent is of_agent)
        if of_agent:
            if open_now >= AGENT_REQUESTS_OPEN:
                words = f"{AGENT_REQUESTS_OPEN} requests of this server are waiting for agents, which is a fixed limit."
                raise rules.Refused(message=f"Too many requests: {words}")
            return
        most = limits.number("inbox_open")
        if open_now >= most:
            words = (
                f"{most} requests from this server wait in the inbox. {limits.stated('inbox_open')} Answer those first."
            )
        elif not self._bucket.allow(now):
            words = f"This server sent more in the last minute. {limits.stated('inbox_per_minute')} Try again later."
        else:
            return
        self._log_refusal(now, f"Refused a server request: {words}")
        raise rules.Refused(message=f"Too many requests: {words}")

    def _log_refusal(self, now: float, words: str) -> None:
        """At most one line a minute, however often the server asks."""
        if now - self._refusal_logged_at >= MINUTE:
            self._refusal_logged_at = now
            self._log.host(words, "warning")

    async def _settled(self, made: NewQuestion, wait: _Wait) -> Settled | None:
        """Returns None when the request could not be put into the inbox. Raises Refused."""
        received = partial(questions.received, refused=bool(made.refused))
        try:
            content = await self._packed(made)
            if wait.answer.done():  # the call ended meanwhile, and nobody would end the row
                return wait.answer.result()
            row = await self._db.persist(partial(questions.receive, made, self._lease, content), received)
        except SealError as problem:  # what cannot be stored encrypted is not stored, so nobody can be asked
            words = f"Refused a server request, because it cannot be encrypted. {problem}"
            self._log_refusal(asyncio.get_running_loop().time(), words)
            raise rules.Refused(
                jsonrpc.INTERNAL_ERROR, "The request could not be stored. Try again later."
            ) from problem
        if row is None:
            return None
        if made.refused:
            self._log.host(f"Declined a server request: {made.refused}", "warning")
            return Settled(made.uid, QuestionState.DECLINED, None)
        self._log.host("Server request received; it is waiting in the inbox.", "notice")
        return await self._until_over(made.uid, wait, row.expires_at)

    async def _packed(self, made: NewQuestion) -> Payload | None:
        """None while the database is away: then it is made with the row, which waits for it. Raises SealError."""
        try:
            return await self._db.read(partial(questions.packed, made))
        except DatabaseAway:
            return None

    async def _until_over(self, uid: UUID, wait: _Wait, ends: datetime) -> Settled:
        """People may extend the deadline meanwhile. asyncio.timeout() is unsuitable: it would cancel the future of the
        answer."""
        while True:
            await asyncio.wait({wait.answer}, timeout=(ends - timezone.now()).total_seconds())
            if wait.answer.done():
                return wait.answer.result()
            found, _ = await self._db.persist(partial(questions.expire, uid), lambda found: found[1])
            if isinstance(found, Settled):
                return found
            ends = found

    def call_over(self, call_uid: UUID) -> None:
        """The call has ended: withdraw the requests that the server made for it, and answer the server."""
        self._visits.update({visit: True for visit in self._visits if visit[1] == call_uid})
        for uid in self._unsent.pop(call_uid, ()):
            self._spawn(self._db.persist(partial(questions.not_delivered, uid, questions.NOT_SENT)))
        for uid, wait in self._waits.items():
            if wait.call_uid == call_uid and not wait.answer.done():
                wait.answer.set_result(Settled(uid, QuestionState.WITHDRAWN, None))
                self._spawn(self._gone(uid, WithdrawalReason.CALL_OVER))

    async def _gone(self, uid: UUID, why: str) -> None:
        if why == WithdrawalReason.VISITED:
            end = partial(questions.end, uid, QuestionState.ACCEPTED, _VISITED)
        else:
            end = partial(questions.withdraw, uid, _GONE.get(why, _CALL_OVER))
        await self._db.persist(end, list)

    # --- visits of URLs -----------------------------------------------------------------------------------------------
    def _note_visit(self, asked: InputRequest, call: PendingCall) -> None:
        """The agent is also told when the visit ends, even if the call ends now with the error that names the URL."""
        if identity := _visit_of(asked):
            self._visits[identity, call.uid] = False
            if len(self._visits) > VISITS_KEPT:
                self._visits.popitem(last=False)

    def visit_completed(self, identity: Any) -> None:
        """By the server's notification (2025-11-25). Unknown ids are ignored, as the specification demands."""
        for visit in [one for one in self._visits if one[0] == identity]:
            over = self._visits.pop(visit)
            hints.visit_completed(self._redactor.text(visit[0]), visit[1], self._lease.server_uid, call_over=over)
        for uid in [uid for uid, wait in self._waits.items() if wait.visit and wait.visit == identity]:
            self._spawn(self._visited(uid))

    async def _visited(self, uid: UUID) -> None:
        """An answer that a person gave at the same moment is kept."""
        await self._gone(uid, WithdrawalReason.VISITED)
        with suppress(DatabaseAway):  # the next tick looks too
            self.take(await self._db.read(partial(reads.settled, [uid])))

    # --- answers ------------------------------------------------------------------------------------------------------
    async def look(self) -> None:
        """Read the rows again. Raises DatabaseAway."""
        if uids := self.uids:
            self.take(await self._db.read(partial(reads.settled, uids)))

    def take(self, found: list[Settled]) -> None:
        for settled in found:
            wait = self._waits.get(settled.uid)
            if wait is not None and not wait.answer.done():
                wait.answer.set_result(settled)

    # --- the end ------------------------------------------------------------------------------------------------------
    async def close(self) -> None:
        """Called after the client is closed: no request is answered any more. Rows that cannot be updated now are ended
        by the process that finds them."""
        waiting = {wait.task for wait in self._waits.values() if wait.task is not None}
        for task in waiting:
            task.cancel(WithdrawalReason.CONNECTION_OVER)
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_SECONDS)
        if self._writes:
            await asyncio.wait(set(self._writes), timeout=CLOSE_SECONDS)

    def _spawn(self, write: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
