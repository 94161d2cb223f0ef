"""Writing one HTTP response: JSON, or an event stream that is opened only when needed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.server import streams
from sessions.mcp.server.refusals import Refusal

Send = Callable[[dict[str, Any]], Awaitable[None]]
#: bytes that a reader has not received yet: above the first, progress is dropped; above the second, responses wait, and
#: a reader that is sent anything else is disconnected
BUFFER_BYTES: Final = 1024 * 1024
MOST_BYTES: Final = 4 * 1024 * 1024
#: a reader that takes nothing of that much for this long is disconnected
STUCK_SECONDS: Final = 30.0
_LOOK_AGAIN_SECONDS: Final = 0.05
_ALWAYS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class TooSlow(Exception):
    """The agent does not read what is sent to it."""


class Answer:
    """`accept`: the request's header. `backlog`: how many bytes the web server has still to send."""

    def __init__(self, send: Send, accept: str, backlog: Callable[[], int], request_id: str) -> None:
        kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")} if accept else {"*/*"}
        self.may_stream = not kinds.isdisjoint({"text/event-stream", "text/*", "*/*"})
        self.may_be_json = not kinds.isdisjoint({"application/json", "application/*", "*/*"})
        #: name of its stream, for clients that can resume: the ids of the events begin with it
        self.name = ""
        #: the id of the request that this answers: a refusal that was raised without an id gets it
        self.answers: RequestId | None = None
        self.status = 0
        self.headers: dict[str, str] = {"X-Request-ID": request_id}
        self.streaming = False
        self._send, self._backlog = send, backlog
        #: the backlog when it was last looked at, and since when nothing of it was taken
        self._left, self._since = 0, 0.0

    @property
    def begun(self) -> bool:
        return bool(self.status)

    @property
    def crowded(self) -> bool:
        return self._backlog() > BUFFER_BYTES

    # --- streams -------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        if self.begun:
            return
        self.streaming = True
        await self._start(200, streams.HEADERS)
        await self._write(streams.priming(self.name + streams.OPENED) if self.name else streams.COMMENT)

    async def event(self, message: bytes, identity: str = "") -> None:
        """Send an event, opening the stream if necessary. Raises TooSlow."""
        await self.open()
        if self._backlog() > MOST_BYTES:
            raise TooSlow
        await self._write(streams.event(message, identity))

    async def response(self, message: bytes) -> None:
        """Send a response as an event. It waits while the agent is still reading earlier ones, because the responses of a
        batch can be long. It has an id: a client that resumes a stream after an error, as some do, must not receive it
        again. Raises TooSlow."""
        await self.open()
        while self._is_full():  # noqa: ASYNC110 - ASGI has no signal for a drained socket
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        await self._write(streams.event(message, self.name + streams.RESPONDED if self.name else ""))

    async def keep_alive(self) -> None:
        """Raises TooSlow."""
        if self.streaming:
            self._is_full()
            await self._write(streams.COMMENT)

    def _is_full(self) -> bool:
        """Raises TooSlow for an agent that does not read at all."""
        left, now = self._backlog(), time.monotonic()
        if left < self._left or self._left <= MOST_BYTES:
            self._since = now
        self._left = left
        if left > MOST_BYTES and now - self._since > STUCK_SECONDS:
            raise TooSlow
        return left > MOST_BYTES

    async def end(self, last: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    # --- whole answers -------------------------------------------------------------------------------------------
    async def finish(self, message: bytes) -> None:
        """Send the final message: on the stream if one is open, otherwise as JSON if the agent accepts it."""
        if self.streaming or not self.may_be_json:
            await self._last(message)
        else:
            await self.json(message)

    async def json(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self._start(
            status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        )
        await self.end(body)

    async def empty(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        await self._start(status, {"Content-Length": "0", **(headers or {})})
        await self.end()

    async def refuse(self, refusal: Refusal) -> None:
        """Send the refusal. Its status only applies while nothing has been sent."""
        if refusal.id is None:
            refusal.of(self.answers)
        if self.streaming:
            await self._last(refusal.body)
        elif not self.begun:
            await self.json(refusal.body, refusal.status, refusal.headers)

    async def _last(self, message: bytes) -> None:
        await self.response(message)
        await self.end()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        lines = {**_ALWAYS, **self.headers, **headers}
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in lines.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
