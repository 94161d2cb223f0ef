"""What two sequences have in common: Myers' greedy algorithm with a budget that bounds hostile content.

The budget counts steps instead of seconds, so the same two versions always give the same difference.
"""

from collections.abc import Iterator, Sequence
from typing import Any

MOST_EDITS = 800
STEPS = 1_000_000
Pairs = list[tuple[int, int]]


class TooDifferent(Exception):
    """The budget is spent. Callers fall back to a coarser comparison, or report it."""


class Budget:
    """Steps for all comparisons of one page."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooDifferent


def common(old: Sequence[Any], new: Sequence[Any], budget: Budget) -> Pairs:
    """Index pairs of equal elements, ascending in both. Raises TooDifferent."""
    head = common_head(old, new)
    tail = common_tail(old, new, head)
    old_end, new_end = len(old) - tail, len(new) - tail
    middle = _greedy(old[head:old_end], new[head:new_end], budget)
    pairs = [(index, index) for index in range(head)]
    pairs += [(head + left, head + right) for left, right in middle]
    return pairs + [(old_end + index, new_end + index) for index in range(tail)]


def common_head(old: Sequence[Any], new: Sequence[Any]) -> int:
    most = min(len(old), len(new))
    return next((index for index in range(most) if old[index] != new[index]), most)


def common_tail(old: Sequence[Any], new: Sequence[Any], head: int = 0) -> int:
    """Excludes what `common_head` already matched."""
    most = min(len(old), len(new)) - head
    return next((index for index in range(most) if old[-1 - index] != new[-1 - index]), most)


def blocks(pairs: Pairs, old_size: int, new_size: int) -> Iterator[tuple[range, range]]:
    """The ranges between the pairs: the replaced ones of `old` and the new ones of `new`."""
    left, right = 0, 0
    for old_at, new_at in [*pairs, (old_size, new_size)]:
        if old_at > left or new_at > right:
            yield range(left, old_at), range(right, new_at)
        left, right = old_at + 1, new_at + 1


def _greedy(old: Sequence[Any], new: Sequence[Any], budget: Budget) -> Pairs:
    """`reach[k]` is the furthest position in `old` on diagonal k (old - new) after this many edits."""
    if not old or not new:
        return []
    reach, trace = {1: 0}, []
    for edits in range(min(len(old) + len(new), MOST_EDITS) + 1):
        trace.append({k: reach[k] for k in range(-edits - 1, edits + 2, 2) if k in reach})
        for k in range(-edits, edits + 1, 2):
            start = x = _step(reach, k, edits)
            while x < len(old) and x - k < len(new) and old[x] == new[x - k]:
                x += 1
            budget.take(1 + x - start)
            reach[k] = x
            if x >= len(old) and x - k >= len(new):
                return _walk_back(trace, x, k)
    raise TooDifferent


def _inserts(reach: dict[int, int], k: int, edits: int) -> bool:
    """Whether an insertion gets further on diagonal k than a removal."""
    return k == -edits or (k != edits and reach[k - 1] < reach[k + 1])


def _step(reach: dict[int, int], k: int, edits: int) -> int:
    return reach[k + 1] if _inserts(reach, k, edits) else reach[k - 1] + 1


def _walk_back(trace: list[dict[int, int]], x: int, k: int) -> Pairs:
    pairs: Pairs = []
    for edits in range(len(trace) - 1, -1, -1):
        start = _step(trace[edits], k, edits)
        pairs += [(at, at - k) for at in range(x - 1, start - 1, -1)]
        x, k = (start, k + 1) if _inserts(trace[edits], k, edits) else (start - 1, k - 1)
    return pairs[::-1]
