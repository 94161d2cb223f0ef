"""Our own lines in a server's log that the server can trigger endlessly: the first one is written at once, repeats
as a count."""

import asyncio
from dataclasses import dataclass

from sessions.host.logs.session_log import ServerLog

EVERY_SECONDS = 10.0
#: different lines that are counted separately in this time
KINDS = 20


@dataclass(slots=True)
class _Said:
    level: str
    again: int = 0


class Repeats:
    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._said: dict[str, _Said] = {}
        self._others = 0
        self._timer: asyncio.TimerHandle | None = None

    def say(self, text: str, level: str) -> None:
        if (said := self._said.get(text)) is not None:
            said.again += 1
        elif len(self._said) >= KINDS:
            self._others += 1
        else:
            self._said[text] = _Said(level)
            self._log.host(text, level)
            self._timer = self._timer or asyncio.get_running_loop().call_later(EVERY_SECONDS, self._notify)

    def close(self) -> None:
        """Write the pending counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._notify()

    def _notify(self) -> None:
        self._timer = None
        for text, said in self._said.items():
            if said.again:
                self._log.host(f"{text} ({said.again} more)", said.level)
        if self._others:
            self._log.host(f"{self._others} more lines like these.", "notice")
        self._said.clear()
        self._others = 0
