"""Hints of calls that nobody listens to yet: a fast call may be over before its own socket knows that it was accepted."""

from collections import OrderedDict
from typing import Any

MOST = 1_000
Hint = dict[str, Any]


class EarlyHints:
    """The newest hint of each of the last calls. What falls out is found by the slow timer."""

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
