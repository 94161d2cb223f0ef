"""Hints of calls that have no listener yet: a fast call may end before its own socket, or the request of its program, knows
that it was accepted."""

from collections import OrderedDict
from typing import Any, Final

MOST: Final = 1_000
#: calls whose first steps are kept, and steps of one call
MOST_STEPPING: Final = 200
STEPS: Final = 8
#: what is lost when no one takes it; of the rest only the newest counts, which leads to the row
_PASSING: Final = ("progress", "log")
Hint = dict[str, Any]


class EarlyHints:
    """The newest hint of each recent call, and its first steps. The slow timer finds what was evicted."""

    def __init__(self) -> None:
        self._hints: OrderedDict[str, Hint] = OrderedDict()
        self._steps: OrderedDict[str, list[Hint]] = OrderedDict()

    def put(self, hint: Hint) -> None:
        if hint["kind"] in _PASSING:
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
        found = self._hints.pop(topic, None)
        steps = self._steps.pop(topic, [])
        return steps if found is None else [*steps, found]


def _version(hint: Hint) -> int:
    seq = hint.get("seq")
    return seq if isinstance(seq, int) else -1
