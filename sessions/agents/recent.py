"""What a web process recently read from the database. A hint drops it; otherwise it expires after a few seconds."""

import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
KNOWN_SECONDS: Final = 5.0
_MOST: Final = 10_000


class Recent(Generic[K, V]):
    """`generation` rises with each `forget`: what was read before it and arrives after it is not kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self.generation = 0

    def forget(self) -> None:
        self.generation += 1
        self._known.clear()

    def get(self, key: K) -> V | None:
        known = self._known.get(key)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    def keep(self, key: K, value: V, generation: int) -> None:
        """`generation`: its value before the read started."""
        if generation != self.generation:
            return
        self._known[key] = (time.monotonic() + KNOWN_SECONDS, value)
        self._known.move_to_end(key)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
