"""One loop serves many sessions: none may keep it busy with what it sends."""

from collections.abc import Callable
from typing import Final

#: seconds of work without a rest
_SLICE: Final = 0.004
#: how much longer than its work a stream rests that sends more than anyone takes
_CROWDED: Final = 20.0


def _never() -> bool:
    return False


class Share:
    """Half of the time for one stream, over everything longer than a slice, and a twentieth while what it sends is
    thrown away (`crowded`); `clock` gives seconds.

    Call `begin()` when bytes are there and `end()` when they were worked off: it says how long to rest.
    """

    def __init__(self, clock: Callable[[], float], crowded: Callable[[], bool] = _never) -> None:
        self._clock = clock
        self._crowded = crowded
        self._debt = 0.0
        self._at = clock()

    def begin(self) -> None:
        """Every second since the last work pays for one second of debt."""
        now = self._clock()
        self._debt = max(0.0, self._debt - (now - self._at))
        self._at = now

    def end(self) -> float:
        """Seconds to rest before more is read; 0.0 for a stream within its share."""
        now = self._clock()
        self._debt += (now - self._at) * (_CROWDED if self._crowded() else 1.0)
        self._at = now
        return self._debt if self._debt > _SLICE else 0.0
