"""Progress of one call: only the newest counts. Pushed at most ten times a second, saved at most twice."""

import asyncio
from collections.abc import Callable
from functools import partial

from sessions import bus
from sessions.domain import claims
from sessions.domain.lifecycle import Hold
from sessions.host.db import Database
from sessions.host.redaction import Redactor

PUSH_SECONDS = 0.1
SAVE_SECONDS = 0.5


class _Throttle:
    """Runs `act` at once, then at most once an interval, always with the newest state."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._seconds, self._act = seconds, act
        self._timer: asyncio.TimerHandle | None = None
        self._again = False

    def poke(self) -> None:
        if self._timer is not None:
            self._again = True
            return
        self._act()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._over)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _over(self) -> None:
        self._timer = None
        if self._again:
            self._again = False
            self.poke()


class Progress:
    def __init__(self, db: Database, order: claims.Order, hold: Hold, redactor: Redactor) -> None:
        self._db, self._order, self._hold, self._redactor = db, order, hold, redactor
        self._newest: tuple[float, float | None, str | None] = (0.0, None, None)
        self._throttles = (_Throttle(PUSH_SECONDS, self._push), _Throttle(SAVE_SECONDS, self._save))

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = (progress, total, self._redactor.text(message) if message else message)
        for throttle in self._throttles:
            throttle.poke()

    def close(self) -> None:
        for throttle in self._throttles:
            throttle.close()

    def _push(self) -> None:
        bus.call_progress(self._order.uid, *self._newest)

    def _save(self) -> None:
        self._db.post(partial(claims.progressed, self._order, self._hold, *self._newest))
