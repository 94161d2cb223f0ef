"""Server-sent events by httpx-sse, which has no limit of its own: this adds a cap on each event, comments included."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import httpx
from httpx_sse import EventSource, ServerSentEvent

from ..protocol.errors import Fault, ProtocolError

_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
_BOM: Final = b"\xef\xbb\xbf"


async def events(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncGenerator[ServerSentEvent, None]:
    """An event without data is delivered too: it may carry an id (priming). `id` is the stream's last one so far.

    ProtocolError (message_limit) once `max_bytes` came since the last event; a cap below the size of a chunk would
    refuse chunks of many small events.
    """
    metered = _Metered(chunks, max_bytes)
    async with aclosing(EventSource(httpx.Response(200, headers=_HEADERS, stream=metered)).aiter_sse()) as source:
        async for event in source:
            metered.size = 0
            yield event


class _Metered(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncIterator[bytes], max_bytes: int) -> None:
        self.size = 0
        self._chunks = chunks
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        first = True
        async for chunk in self._chunks:
            self.size += len(chunk)
            if self.size > self._max_bytes:
                raise ProtocolError(Fault.MESSAGE_LIMIT, f"An event of the stream is over {self._max_bytes} bytes.")
            # The standard ignores one byte order mark at the beginning, which httpx-sse would take for a field's name.
            yield chunk.removeprefix(_BOM) if first else chunk
            first = False
