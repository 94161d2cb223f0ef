"""Hints of calls for listeners that come later: a fast call may end before its own socket, or the request of its program,
knows that it was accepted."""

from collections import OrderedDict
from typing import Any, Final

MOST: Final = 1_000
#: calls whose first steps are kept, and steps of one call
MOST_STEPPING: Final = 200
STEPS: Final = 8
#: of these a listener needs each, but only one that follows the call from its start; of the rest it needs only the newest,
#: which leads to the row
_PASSING: Final = ("progress", "log", "visit")
Hint = dict[str, Any]


class EarlyHints:
    """The newest hint of each recent call, for every listener, and the first steps, for the first one. The slow timer
    finds what was evicted."""

    def __init__(self) -> None:
        self._hints: OrderedDict[str, Hint] = OrderedDict()
        self._steps: OrderedDict[str, list[Hint]] = OrderedDict()

    def put(self, hint: Hint, *, heard: bool = False) -> None:
        """`heard`: the call has a listener. Others may still come: of an equal request, the one that attached itself to the
        call may listen before the one that placed it."""
        if hint["kind"] in _PASSING:
            if heard:
                return
            steps = self._steps.setdefault(hint["t"], [])
            if len(steps) < STEPS:
                steps.append(hint)
            if len(self._steps) > MOST_STEPPING:
                self._steps.popitem(last=False)
            return
        known = self._hints.pop(hint["t"], hint)
        self._hints[hint["t"]] = max(known, hint, key=_version)
        if len(self._hints) > MOST:
            self._hints.popitem(last=False)

    def take(self, topic: str) -> list[Hint]:
        found = self._hints.get(topic)
        steps = self._steps.pop(topic, [])
        return steps if found is None else [*steps, found]


def _version(hint: Hint) -> int:
    seq = hint.get("seq")
    return seq if isinstance(seq, int) else -1
