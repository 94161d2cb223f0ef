"""Server-sent events out of bytes, with a cap on each event (comments count).

Source: html.spec.whatwg.org, *9.2.6 Interpreting an event stream*.
"""

from dataclasses import dataclass

from ..protocol.errors import Fault, ProtocolError


@dataclass(frozen=True, slots=True)
class SseEvent:
    """`id` is the last id of the stream so far, which outlives the event; `retry` is in milliseconds."""

    event: str
    data: bytes
    id: str
    retry: int | None


class SseDecoder:
    """Feed chunks, take events. An event without data is delivered too: it may carry an id (priming)."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partial: list[bytes] = []
        self._after_cr = False
        self._size = 0
        self._data: list[bytes] = []
        self._event = "message"
        self._retry: int | None = None
        self._touched = False
        self._last_id = ""
        self._first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """ProtocolError (message_limit) once the present event is over the cap."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._count(len(chunk))
            self._partial.append(chunk)
            return []
        # bytes.splitlines knows CR, LF and CRLF only, as the standard asks; str.splitlines does not.
        lines = chunk.splitlines()
        whole = chunk.endswith((b"\n", b"\r"))
        lines[0] = b"".join((*self._partial, lines[0]))
        self._size -= sum(map(len, self._partial))
        self._partial = [] if whole else [lines.pop()]
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._count(sum(map(len, self._partial)))
        return events

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise ProtocolError(Fault.MESSAGE_LIMIT, f"An event of the stream is over {self._max_bytes} bytes.")

    def _line(self, line: bytes) -> SseEvent | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        self._count(len(line) + 1)
        name, _, value = line.partition(b":")
        if name:
            self._field(name, value.removeprefix(b" "))
        return None

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= 4096:
            self._last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self._retry = int(value)
        else:
            return
        self._touched = True

    def _dispatch(self) -> SseEvent | None:
        if not self._touched:
            self._size = 0
            return None
        event = SseEvent(self._event, b"\n".join(self._data), self._last_id, self._retry)
        self._data, self._event, self._retry = [], "message", None
        self._size, self._touched = 0, False
        return event
