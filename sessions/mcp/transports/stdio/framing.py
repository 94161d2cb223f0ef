"""Splits bytes into lines with a size cap. Only LF separates, because a message's strings may hold other separators.

A cut through a word drops the whole word, because a later search for secrets would not recognize half of one.
"""

from dataclasses import dataclass
from typing import Final

#: characters that never occur in a word, such as a token
_AROUND_WORDS: Final = " \t\"',;&<>()[]{}"
#: characters dropped from a line that is a single word
_HALF_WORD: Final = 256
#: bytes kept of the beginning and the end of a line over the cap
_HEAD, _TAIL = 512, 256


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line over the cap: reported when it exceeds the cap, with its beginning, and again at its end, with its last
    bytes as well. Everything in between is skipped as it arrives."""

    head: bytes
    tail: bytes | None = None


class Lines:
    """Splits chunks into whole lines. Never holds more than `max_bytes` plus one chunk."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        #: bytes of the current oversized line, all discarded
        self.skipped = 0
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        if b"\n" not in chunk:
            return self._more(chunk)
        first, *middle, last = chunk.split(b"\n")
        whole: list[bytes | Oversized] = [*self._ended(first)]
        for line in middle:
            whole += self._ended(line)
        if last:
            whole += self._more(last)
        return whole

    def _more(self, part: bytes) -> list[bytes | Oversized]:
        if self.skipped:
            self.skipped += len(part)
            self._tail = (self._tail + part[-_TAIL:])[-_TAIL:]
            return []
        self._parts.append(part)
        self._size += len(part)
        if self._size <= self._max_bytes:
            return []
        line = b"".join(self._parts)
        self._head, self._tail = line[:_HEAD], line[-_TAIL:]
        self.skipped = self._size
        self._parts, self._size = [], 0
        return [Oversized(self._head)]

    def _ended(self, part: bytes) -> list[bytes | Oversized]:
        """End the line that earlier chunks began."""
        if not self._parts and not self.skipped and len(part) <= self._max_bytes:
            return [part]
        overflow = self._more(part)
        if self.skipped:
            self.skipped = 0
            return [*overflow, Oversized(self._head, self._tail)]
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
        self._is_cut = False

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > self._max_bytes:
            self._is_cut = True
            del self._data[: len(self._data) - self._max_bytes]

    def tail(self, max_bytes: int = 4096) -> str:
        """The tail, starting at the beginning of a line or, in one very long line, of a word."""
        data = bytes(self._data[-max_bytes:])
        if self._is_cut or len(self._data) > max_bytes:
            _, _, lines = data.partition(b"\n")
            data = lines if lines.strip() else data.partition(b" ")[2]
        return data.decode("utf-8", "replace").strip()


def shortened(text: str, most: int) -> str:
    """At most `most` characters of a line, followed by an ellipsis if it was cut."""
    if len(text) <= most:
        return text
    kept = text[:most]
    end = max(map(kept.rfind, _AROUND_WORDS)) + 1
    return f"{kept[: end or max(0, most - _HALF_WORD)]}…"
