"""Server-sent events with httpx-sse, which has no limits. Adds caps on the bytes of an event, on the bytes between two
messages, and on the time that a stream may take from other sessions."""

import asyncio
import codecs
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import httpx
from httpx_sse import EventSource, ServerSentEvent

from ..core.errors import Fault, ProtocolError
from ..core.limits import Limits
from .fairness import Share

_UTF8: Final = codecs.getincrementaldecoder("utf-8")
_BOM: Final = b"\xef\xbb\xbf"
#: comments and blank lines at the start of a line; the last comment may continue in the next chunk
_COMMENTS: Final = re.compile(rb"(?:[\r\n]+|:[^\r\n]*(?:[\r\n]|\Z))++")
_JSON: Final = "The response body is JSON, but its content type is text/event-stream instead of application/json."
_REST_OF_LINE: Final = re.compile(rb"[^\r\n]*")


async def events(
    chunks: AsyncGenerator[bytes, None], limits: Limits, crowded: Callable[[], bool] = bool
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yields events, including those without data, because they may carry an id (priming). `id` is the stream's last
    id so far.

    ProtocolError: message_limit once `sse_event_bytes` arrived since the last event, without comments (a cap below the
    size of a chunk would refuse chunks of many small events). stream_limit once `stream_bytes` arrived since the last
    message. invalid_message if the whole stream was JSON. `crowded`: see fairness.Share.
    """
    metered, any_came = _Metered(chunks, limits, crowded), False
    async with aclosing(chunks), aclosing(EventSource(_Reply(metered)).aiter_sse()) as source:
        async for event in source:
            metered.event_bytes, any_came = 0, True
            if event.data and event.event == "message":
                metered.idle_bytes = 0
            yield event
    if metered.begins_like_json and not any_came:
        raise ProtocolError(Fault.INVALID_MESSAGE, _JSON)


class _Reply(httpx.Response):
    """The part of a response that EventSource reads. A whole response would guess the encoding of each stream, and
    would leave suspended generators behind after an answer, each of which costs the loop a task."""

    headers = httpx.Headers({"Content-Type": "text/event-stream"})

    def __init__(self, text: AsyncIterator[str]) -> None:
        self._text_of_stream = text

    def aiter_text(self, chunk_size: int | None = None) -> AsyncIterator[str]:
        return self._text_of_stream


class _Metered:
    """Counts the bytes of a stream while it decodes the text."""

    def __init__(self, chunks: AsyncIterator[bytes], limits: Limits, crowded: Callable[[], bool]) -> None:
        self.event_bytes = 0
        #: since the last message; the check subtracts the bytes of the event in progress
        self.idle_bytes = 0
        self.begins_like_json = False
        self._chunks = chunks
        self._limits = limits
        self._share = Share(asyncio.get_running_loop().time, crowded)
        self._line_start, self._in_comment = True, False
        self._decoder, self._first, self._ended = _UTF8(errors="replace"), True, False

    def __aiter__(self) -> "_Metered":
        return self

    async def __anext__(self) -> str:
        if self._ended:
            raise StopAsyncIteration
        if rest := self._share.end():
            await asyncio.sleep(rest)
        chunk = await anext(self._chunks, None)
        self._share.begin()
        if chunk is None:
            self._ended = True
            return self._decoder.decode(b"", final=True)
        if self._first:
            # The standard ignores one byte order mark at the start; httpx-sse would read it as part of a field name.
            chunk, self._first = chunk.removeprefix(_BOM), False
            self.begins_like_json = chunk[:64].lstrip()[:1] in (b"{", b"[")
        self._count(chunk)
        return self._decoder.decode(chunk)

    def _count(self, chunk: bytes) -> None:
        self.event_bytes += len(chunk) - self._leading_comments(chunk)
        self.idle_bytes += len(chunk)
        if self.event_bytes > self._limits.sse_event_bytes:
            raise ProtocolError(
                Fault.MESSAGE_LIMIT, f"An event of the stream exceeds {self._limits.sse_event_bytes} bytes."
            )
        if self.idle_bytes - self.event_bytes > self._limits.stream_bytes:
            raise ProtocolError(
                Fault.STREAM_LIMIT, f"The stream carried {self._limits.stream_bytes} bytes without a message."
            )

    def _leading_comments(self, chunk: bytes) -> int:
        """The number of bytes at the start of the chunk that are comments and blank lines."""
        if not chunk:
            return 0
        at = 0
        if self._in_comment and (rest := _REST_OF_LINE.match(chunk)):
            at = rest.end()
        if at < len(chunk) and (self._line_start or self._in_comment) and (found := _COMMENTS.match(chunk, at)):
            at = found.end()
        self._line_start = chunk[-1:] in (b"\n", b"\r")
        self._in_comment = at == len(chunk) and not self._line_start
        return at
