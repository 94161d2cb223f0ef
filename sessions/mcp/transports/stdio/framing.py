"""Splits bytes into lines with a size cap. Only LF separates, because a message's strings may hold other separators.

Where a text is cut, the word that the cut goes through is left out: nobody who looks for a secret later would recognise
a half of it.
"""

from dataclasses import dataclass
from typing import Final

#: a word, such as a token, holds none of them
_AROUND_WORDS: Final = " \t\"',;&<>()[]{}"
#: what is left out of a line that is all one word
_HALF_WORD: Final = 256


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
        self._is_cut = False

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > self._max_bytes:
            self._is_cut = True
            del self._data[: len(self._data) - self._max_bytes]

    def tail(self, max_bytes: int = 4096) -> str:
        """From the beginning of a line; of one very long line, from that of a word."""
        data = bytes(self._data[-max_bytes:])
        if self._is_cut or len(self._data) > max_bytes:
            _, _, lines = data.partition(b"\n")
            data = lines if lines.strip() else data.partition(b" ")[2]
        return data.decode("utf-8", "replace").strip()


def shortened(text: str, most: int) -> str:
    """A line of at most `most` characters and the mark of a cut."""
    if len(text) <= most:
        return text
    kept = text[:most]
    end = max(map(kept.rfind, _AROUND_WORDS)) + 1
    return f"{kept[: end or max(0, most - _HALF_WORD)]}…"
