"""The questions of one server that wait for a person: each a row of the inbox, and here the wait for its answer.

What a person answers stands in the row; a ring or the tick makes us read it. When nobody waits any more (the server took
its question back, the call or the connection is over) the row ends as withdrawn, and never stays open unnoticed.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from sessions.client.answers import Answer
from sessions.domain import inbox_read, questions
from sessions.domain.claims import Order
from sessions.domain.inbox_read import Settled
from sessions.domain.lifecycle import Hold
from sessions.domain.questions import Asking
from sessions.enums import QuestionState
from sessions.host import asking
from sessions.host.db import Database
from sessions.host.launch import Launch
from sessions.host.logs import ServerLog
from sessions.host.redaction import Redactor
from sessions.protocol import asked as rules
from sessions.protocol.asked import Asked, Gone
from sessions.protocol.flow import TokenBucket

MINUTE = 60.0
CLOSE_SECONDS = 3.0
_GONE: Final[Mapping[str, str]] = {
    Gone.WITHDRAWN: "The server took its question back.",
    Gone.CONNECTION_OVER: "The connection to the server ended before there was an answer.",
}
_CALL_OVER: Final = "The call ended before there was an answer."
_VISITED: Final = "The server says that the visit is over."


@dataclass(eq=False)
class _Wait:
    task: "asyncio.Task[Any] | None"
    answer: "asyncio.Future[Settled]"
    call_uid: UUID | None


class Inbox:
    """Of one open session."""

    def __init__(self, db: Database, hold: Hold, launch: Launch, log: ServerLog, redactor: Redactor) -> None:
        self._db, self._hold, self._launch, self._log, self._redactor = db, hold, launch, log, redactor
        self._waits: dict[UUID, _Wait] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._bucket = TokenBucket(settings.INBOX_PER_MINUTE / MINUTE, settings.INBOX_PER_MINUTE)
        self._complained_at = float("-inf")

    @property
    def answers(self) -> dict[str, Answer]:
        """Who answers what, for the client: what is switched off is not even declared."""
        switched = {rules.SAMPLE: self._launch.answers_sampling, rules.ELICIT: self._launch.answers_elicitation}
        return {method: self.answer for method, on in switched.items() if on}

    @property
    def uids(self) -> list[UUID]:
        return list(self._waits)

    # --- one question --------------------------------------------------------------------------------------------------
    async def answer(self, asked: Asked) -> Mapping[str, Any]:
        """Wait for a person. Raises Refused; ends with CancelledError when nobody wants the answer any more."""
        order = asked.tag if isinstance(asked.tag, Order) else None
        made = asking.asking_of(asked, order, self._redactor, settings.INBOX_SECONDS, self._launch.timeouts.total)
        self._admit()
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        wait = self._waits[made.uid] = _Wait(asyncio.current_task(), future, order.uid if order else None)
        try:
            settled = await self._settled(made, wait)
        except asyncio.CancelledError as gone:
            self._spawn(self._gone(made.uid, str(gone.args[0]) if gone.args else ""))
            raise
        finally:
            del self._waits[made.uid]
        if settled is not None and asking.by_person(settled):
            self._spawn(self._db.persist(partial(questions.delivered, made.uid)))
        return asking.told(asked, settled)

    def _admit(self) -> None:
        """Raises Refused beyond what people can look at."""
        now = asyncio.get_running_loop().time()
        if len(self._waits) >= settings.INBOX_OPEN:
            self._complain(now, f"{settings.INBOX_OPEN} of its questions wait in the inbox already")
        elif not self._bucket.allow(now):
            self._complain(now, f"it asked more than {settings.INBOX_PER_MINUTE} in a minute")
        else:
            return
        raise rules.Refused(message="Too many questions wait for a person. Ask again later.")

    def _complain(self, now: float, why: str) -> None:
        """Once a minute, however often it asks."""
        if now - self._complained_at >= MINUTE:
            self._complained_at = now
            self._log.host(f"Refused a question of the server: {why}.", "warning")

    async def _settled(self, made: Asking, wait: _Wait) -> Settled | None:
        """None when nobody could be asked."""
        row = await self._db.persist(partial(questions.receive, made, self._hold), questions.received)
        if row is None:
            return None
        self._log.host("The server asks a question; it waits in the inbox.", "notice")
        return await self._until_over(made.uid, wait, row.expires_at)

    async def _until_over(self, uid: UUID, wait: _Wait, ends: datetime) -> Settled:
        """People may give it more time meanwhile. Not by `timeout`, which would cancel the future of the answer."""
        while True:
            await asyncio.wait({wait.answer}, timeout=(ends - timezone.now()).total_seconds())
            if wait.answer.done():
                return wait.answer.result()
            found, _ = await self._db.persist(partial(questions.expire, uid), lambda told: told[1])
            if isinstance(found, Settled):
                return found
            ends = found

    def call_over(self, call_uid: UUID) -> None:
        """The call has its end: what the server asked for its sake is given up, and the server told so."""
        for uid, wait in self._waits.items():
            if wait.call_uid == call_uid and not wait.answer.done():
                wait.answer.set_result(Settled(uid, QuestionState.WITHDRAWN, None))
                self._spawn(self._gone(uid, Gone.CALL_OVER))

    async def _gone(self, uid: UUID, why: str) -> None:
        if why == Gone.VISITED:
            end = partial(questions.end, uid, QuestionState.ACCEPTED, _VISITED)
        else:
            end = partial(questions.withdraw, uid, _GONE.get(why, _CALL_OVER))
        await self._db.persist(end, list)

    # --- answers -------------------------------------------------------------------------------------------------------
    async def look(self) -> None:
        """Read the rows again. Raises DatabaseAway."""
        if uids := self.uids:
            self.take(await self._db.read(partial(inbox_read.settled, uids)))

    def take(self, found: list[Settled]) -> None:
        for settled in found:
            wait = self._waits.get(settled.uid)
            if wait is not None and not wait.answer.done():
                wait.answer.set_result(settled)

    # --- the end -------------------------------------------------------------------------------------------------------
    async def close(self) -> None:
        """After the client: nobody waits any more. What cannot be written now is ended by whoever finds the row."""
        waiting = {wait.task for wait in self._waits.values() if wait.task is not None}
        for task in waiting:
            task.cancel(Gone.CONNECTION_OVER)
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_SECONDS)
        if self._writes:
            await asyncio.wait(set(self._writes), timeout=CLOSE_SECONDS)

    def _spawn(self, write: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
