"""Hints of calls that have no listener yet: a fast call may end before its own socket knows that it was accepted."""

from collections import OrderedDict
from typing import Any

MOST = 1_000
Hint = dict[str, Any]


class EarlyHints:
    """The newest hint of each recent call. The slow timer finds what was evicted."""

    def __init__(self) -> None:
        self._hints: OrderedDict[str, Hint] = OrderedDict()

    def put(self, hint: Hint) -> None:
        if hint["kind"] == "progress":
            return
        known = self._hints.pop(hint["t"], hint)
        self._hints[hint["t"]] = max(known, hint, key=_version)
        if len(self._hints) > MOST:
            self._hints.popitem(last=False)

    def take(self, topic: str) -> list[Hint]:
        found = self._hints.pop(topic, None)
        return [] if found is None else [found]


def _version(hint: Hint) -> int:
    seq = hint.get("seq")
    return seq if isinstance(seq, int) else -1
