"""The agent's side of a call that is watched: which hints wake its request, and what is sent on its stream meanwhile."""

import asyncio
import json
import math
import time
from contextlib import suppress
from typing import Any, Final, TypeGuard
from uuid import UUID

from sessions.agents import visits
from sessions.agents.answer import Answer
from sessions.agents.calls import approval_messages, questions
from sessions.agents.connection import Connection
from sessions.agents.exchange import Exchange
from sessions.agents.stream_reads import AWAY_SECONDS, next_check
from sessions.hints.hint_rows import first_row, is_passing
from sessions.mcp.core import methods
from sessions.mcp.core.errors import InvalidRequest
from sessions.mcp.core.versions import Era
from sessions.mcp.server import streams
from sessions.mcp.server.streams import ProgressRelay
from sessions.models import Call

KEEP_ALIVE_SECONDS: Final = 15.0
#: a modern stream opens late: until then an error of the server may still become an HTTP status
OPEN_SECONDS: Final = 5.0
PROGRESS_SECONDS: Final = 0.1
_MOST_WAITING: Final = 64
#: done, total, message
Progress = tuple[float, float | None, str | None]


class CallViewer:
    """A request that waits for a call. Wakes on hints, at the end of the connection and at its own times. `dirty`: the row must be read."""

    def __init__(
        self, exchange: Exchange, answer: Answer | None, connection: Connection, *, dirty: bool = False
    ) -> None:
        self._answer, self._connection = answer, connection
        self._wake = asyncio.Event()
        self._dirty = dirty
        self._legacy = exchange.era is Era.LEGACY
        self._asked: set[UUID] = set()
        connection.on_close(self._wake.set)
        #: progress, and log lines ready to be sent, in the order in which they came
        self._waiting: list[Progress | bytes] = []
        #: the call waits for approval; how long the agent waits for that; whether it was sent to the page
        self.held = self.offered = False
        self._held_until = time.monotonic() + approval_messages.WAIT_SECONDS
        token = exchange.progress_token
        may_stream = answer is not None and answer.may_stream
        self._logs = bool(exchange.log_level) and may_stream
        hears = self._legacy and visits.heard_by(exchange.revision, exchange.capabilities)
        self._visits = hears and may_stream
        self.relay = ProgressRelay(token) if token is not None and may_stream else None
        now = time.monotonic()
        self._next_beat = now + (OPEN_SECONDS if may_stream else KEEP_ALIVE_SECONDS)
        self._check_at = next_check(now)
        self._pause_seconds = AWAY_SECONDS[0]

    def hint(self, hint: dict[str, Any] | None) -> None:
        if hint is None:
            self._dirty = True
        elif hint.get("kind") == "progress":
            self._take(hint)
        elif hint.get("kind") == "log":
            self._take_line(hint)
        elif hint.get("kind") == "visit":
            self._take_visit(hint)
        elif not is_passing(hint.get("rows")):
            self._dirty = True
        self._wake.set()

    def _take(self, hint: dict[str, Any]) -> None:
        """Only valid fields: anyone who can write to Redis can publish anything."""
        row = first_row(hint.get("rows"))
        done, total, text = row.get("progress"), row.get("total"), row.get("message")
        if _is_number(done) and len(self._waiting) < _MOST_WAITING:
            self._waiting.append(
                (done, total if _is_number(total) else None, text[:500] if isinstance(text, str) else None)
            )

    def _take_line(self, hint: dict[str, Any]) -> None:
        row = first_row(hint.get("rows"))
        level, logger, text = row.get("level"), row.get("logger"), row.get("text")
        if (
            not self._logs
            or level not in methods.LOG_LEVELS
            or not isinstance(text, str)
            or not isinstance(logger, str)
        ):
            return
        data: Any = text
        if row.get("json") is True:
            with suppress(ValueError):
                data = json.loads(text)
        if len(self._waiting) < _MOST_WAITING:
            with suppress(InvalidRequest):  # not JSON after all
                self._waiting.append(streams.log_line(level, logger, data))

    def _take_visit(self, hint: dict[str, Any]) -> None:
        for identity, _ in visits.of_hint(hint) if self._visits else ():
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(visits.completed(identity))

    def take_dirty(self) -> bool:
        dirty, self._dirty = self._dirty, False
        return dirty

    def take_check(self) -> bool:
        """Whether it is time to check the token again."""
        now = time.monotonic()
        due = now >= self._check_at
        if due:
            self._check_at = next_check(now)
        return due

    def read(self) -> None:
        """The database answers."""
        self._pause_seconds = AWAY_SECONDS[0]

    async def pause(self) -> None:
        """The database is unavailable: nothing counts as read, and it is queried again soon, unless the agent
        leaves."""
        self._dirty, self._check_at = True, time.monotonic()
        await self._beat()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause_seconds):
                while not self._connection.closed:  # hints wake it too
                    self._wake.clear()
                    await self._wake.wait()
        self._pause_seconds = min(2 * self._pause_seconds, AWAY_SECONDS[1])

    @property
    def waited_long_enough(self) -> bool:
        return self.held and time.monotonic() >= self._held_until

    async def wait(self) -> None:
        if self._dirty or self._waiting or self._connection.closed:
            return
        soonest = min(self._next_beat, self._check_at)
        until = (min(soonest, self._held_until) if self.held else soonest) - time.monotonic()
        if self.relay is not None and self.relay.waits:
            until = min(until, PROGRESS_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until)):
                await self._wake.wait()
        self._wake.clear()

    async def send_waiting(self) -> None:
        """Send progress and keep-alive comments."""
        waiting = await self._notify_waiting()
        if self.relay is not None and self.relay.waits and not waiting:
            await self._send(self.relay.flush())
        await self._beat()

    async def _beat(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat and self._answer is not None and self._answer.may_stream:
            self._next_beat = now + KEEP_ALIVE_SECONDS
            if self._answer.streaming:
                await self._answer.keep_alive()
            else:
                await self._answer.open()

    async def _notify_waiting(self) -> bool:
        """Whether there was any."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if isinstance(one, bytes):
                await self._send(one if self._answer is not None and not self._answer.crowded else None)
            else:
                await self._offer(*one, time.monotonic())
        return bool(waiting)

    async def send_final_progress(self, call: Call) -> None:
        """Before the response, send what a lost hint or the rate limit held back."""
        await self._notify_waiting()
        if self.relay is None:
            return
        if call.progress is not None:
            await self._offer(call.progress, call.progress_total, call.progress_message or None, time.monotonic())
        await self._send(self.relay.flush())

    async def ask(self, relayed: list[questions.Relayed]) -> None:
        """On the stream of a legacy call: each once."""
        if self._answer is None or not self._legacy or not self._answer.may_stream:
            return
        for one in relayed:
            if one.uid not in self._asked:
                self._asked.add(one.uid)
                await self._answer.event(questions.request(one))

    async def _offer(self, done: float, total: float | None, text: str | None, now: float) -> None:
        if self.relay is not None and self._answer is not None and not self._answer.crowded:
            await self._send(self.relay.offer(done, total, text, now))

    async def _send(self, message: bytes | None) -> None:
        if message is not None and self._answer is not None:
            await self._answer.event(message)


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether JSON can represent this number."""
    return type(value) is int or (type(value) is float and math.isfinite(value))
