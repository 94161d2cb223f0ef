"""Splits bytes into lines with a size cap. Only LF separates, because a message's strings may hold other separators."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line over the cap. `head` is its beginning; the rest is skipped as it arrives."""

    head: bytes


class Lines:
    """Splits chunks into whole lines. Never holds more than `max_bytes` plus one chunk."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        #: bytes of the current oversized line, all discarded
        self.skipped = 0

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        if b"\n" not in chunk:
            return self._more(chunk)
        first, *middle, last = chunk.split(b"\n")
        whole: list[bytes | Oversized] = [*self._ended(first)]
        whole += [line if len(line) <= self._max_bytes else Oversized(line[:512]) for line in middle]
        if last:
            whole += self._more(last)
        return whole

    def _more(self, part: bytes) -> list[bytes | Oversized]:
        if self.skipped:
            self.skipped += len(part)
            return []
        self._parts.append(part)
        self._size += len(part)
        if self._size <= self._max_bytes:
            return []
        head = b"".join(self._parts)[:512]
        self.skipped = self._size
        self._parts, self._size = [], 0
        return [Oversized(head)]

    def _ended(self, part: bytes) -> list[bytes | Oversized]:
        """End the line that earlier chunks began."""
        if self.skipped:
            self.skipped = 0
            return []
        if not self._parts:
            return [part] if len(part) <= self._max_bytes else [Oversized(part[:512])]
        overflow = self._more(part)
        if overflow:
            self.skipped = 0
            return overflow
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        return [line]

    def rest(self) -> bytes:
        """The text after the last LF at the end of the stream."""
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        return line


class TailBuffer:
    """The last bytes of a stream."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > self._max_bytes:
            del self._data[: len(self._data) - self._max_bytes]

    def tail(self, max_bytes: int = 4096) -> str:
        return bytes(self._data[-max_bytes:]).decode("utf-8", "replace").strip()
