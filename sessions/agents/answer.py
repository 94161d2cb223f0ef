"""Writing one HTTP response: JSON, or an event stream that is opened only when needed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.server import streams
from sessions.mcp.server.refusals import Refusal

Send = Callable[[dict[str, Any]], Awaitable[None]]
#: bytes that a reader has not received yet: above the first, progress is dropped; above the second, it is disconnected
BUFFER_BYTES: Final = 1024 * 1024
MOST_BYTES: Final = 4 * 1024 * 1024
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

    async def keep_alive(self) -> None:
        if self.streaming:
            if self._backlog() > MOST_BYTES:
                raise TooSlow
            await self._write(streams.COMMENT)

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
        """Send it with an id: a client that resumes a stream after an error, as some do, must not receive it again."""
        await self.event(message, self.name + streams.RESPONDED if self.name else "")
        await self.end()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        lines = {**_ALWAYS, **self.headers, **headers}
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in lines.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
