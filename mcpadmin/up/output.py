"""What `up` prints: lines with the part's name before them, written by a thread so that a paused terminal stops nobody."""

import os
import queue
import re
import threading
from collections import deque

_COLOURS = {"web": "36", "worker": "33", "beat": "35", "valkey": "32", "up": "1"}
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_LINE = 16_384
MAX_QUEUED = 2_000
WIDTH = 9


class Output:
    """Bounded: when the terminal does not take lines, the newest are dropped and their number is said later."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._colour = os.isatty(descriptor) and "NO_COLOR" not in os.environ
        self._queue: queue.Queue[str | None] = queue.Queue(MAX_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="output", daemon=True)
        self._thread.start()

    def say(self, text: str, part: str = "up") -> None:
        line = f"{self._prefix(part)} {clean(text)}\n"
        try:
            if self._dropped:
                self._queue.put_nowait(
                    f"{self._prefix('up')} ({self._dropped} lines were not shown: the terminal was too slow)\n"
                )
                self._dropped = 0
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Waits at most a second for what is queued."""
        try:
            self._queue.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(1)

    def _prefix(self, part: str) -> str:
        label = f"{part:<{WIDTH}}|"
        code = _COLOURS.get(part.partition("-")[0], "0")
        return f"\x1b[{code}m{label}\x1b[0m" if self._colour else label

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            data = line.encode(errors="backslashreplace")
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                continue  # nobody reads any more (`up | head`): the parts go on, their words are lost


def clean(text: str) -> str:
    """No colour codes and no control characters of a part, or of a server whose stderr it repeats, reach the terminal."""
    return _CONTROL.sub("", text)[:MAX_LINE]


class Lines:
    """Cuts a byte stream into lines of at most MAX_LINE and keeps the last ones for the report of a crash."""

    def __init__(self, keep: int = 12) -> None:
        self.last: deque[str] = deque(maxlen=keep)
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            whole.append(self._rest)
            self._rest = b""
        lines = [clean(line.decode(errors="replace").rstrip()) for line in whole]
        self.last.extend(line for line in lines if line)
        return lines

    def finish(self) -> list[str]:
        return self.feed(b"\n") if self._rest else []
