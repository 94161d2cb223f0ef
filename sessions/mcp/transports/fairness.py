"""Keeps one session from monopolizing the event loop that many sessions share."""

from collections.abc import Callable
from typing import Final

#: seconds of work without a pause
_SLICE: Final = 0.004
#: pause relative to work for a stream that sends more than its receiver accepts
_CROWDED: Final = 20.0


def _never() -> bool:
    return False


class Share:
    """Gives one stream about half of the loop's time, averaged over anything longer than a slice. While its events are
    being dropped (`crowded`), it gets about a twentieth. `clock` returns seconds.

    Call `begin()` when bytes arrive and `end()` when they are processed. `end()` returns how long to pause.
    """

    def __init__(self, clock: Callable[[], float], crowded: Callable[[], bool] = _never) -> None:
        self._clock = clock
        self._crowded = crowded
        self._debt = 0.0
        self._at = clock()

    def begin(self) -> None:
        """Each second since the last work repays one second of debt."""
        now = self._clock()
        self._debt = max(0.0, self._debt - (now - self._at))
        self._at = now

    def end(self) -> float:
        """Seconds to pause before the next read; 0.0 for a stream within its share."""
        now = self._clock()
        self._debt += (now - self._at) * (_CROWDED if self._crowded() else 1.0)
        self._at = now
        return self._debt if self._debt > _SLICE else 0.0
