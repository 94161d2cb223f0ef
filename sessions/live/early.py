"""Keeps hints about calls for listeners that come later: a fast call may end before its own socket, or the agent's
request, knows that the call was accepted."""

from collections import OrderedDict
from typing import Any, Final

MOST: Final = 1_000
#: calls whose first steps are kept, and steps of one call
MOST_STEPPING: Final = 200
STEPS: Final = 8
#: hints of these kinds are all needed, but only by a listener that follows the call from its start. Of the other kinds
#: only the newest hint is needed, because it makes the listener read the row
_PASSING: Final = ("progress", "log", "visit")
Hint = dict[str, Any]


class EarlyHints:
    """The newest hint of each recent call, for every listener, and its first steps, for the first listener. What was
    evicted is found by the slow timer."""

    def __init__(self) -> None:
        self._hints: OrderedDict[str, Hint] = OrderedDict()
        self._steps: OrderedDict[str, list[Hint]] = OrderedDict()

    def put(self, hint: Hint, *, heard: bool = False) -> None:
        """`heard`: the call has a listener. Others may follow: if an identical request attached itself to the call, it
        may listen before the request that placed it."""
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
