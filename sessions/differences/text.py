"""Compare two texts as a unified diff: hunks of lines, with changes inside a line marked.

Lines, characters per line and work are bounded, so that a hostile text costs no more than a large one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sessions.differences.alignment import Budget, Pairs, TooDifferent, blocks, common, common_head, common_tail

CONTEXT = 3
MOST_LINES = 50_000
SHOWN_LINES = 1_000
LINE_CHARS = 400
AROUND_CHARS = 60
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Piece:
    """A line or a value in three parts: `changed` is what the other side lacks."""

    before: str = ""
    changed: str = ""
    after: str = ""


@dataclass(frozen=True)
class DiffLine:
    """`mark` is " ", "-" or "+". A number is None on the side that lacks the line."""

    mark: str
    old: int | None
    new: int | None
    piece: Piece
    ends: bool = True
    """False for a last line without a newline."""

    @property
    def word(self) -> str:
        return {"-": "removed", "+": "added"}.get(self.mark, "")


@dataclass(frozen=True)
class Hunk:
    heading: str
    lines: tuple[DiffLine, ...]


@dataclass(frozen=True)
class TextDifference:
    """`coarse`: the texts were too different to align, so one block replaces the other. `hidden`: changed lines that
    are not shown."""

    hunks: tuple[Hunk, ...]
    added: int
    removed: int
    coarse: bool = False
    hidden: int = 0


def compare_texts(old: str, new: str, budget: Budget) -> TextDifference | None:
    """None if there are more lines than can be compared."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    if max(len(old_lines), len(new_lines)) > MOST_LINES:
        return None
    try:
        pairs, coarse = common(old_lines, new_lines, budget), False
    except TooDifferent:
        pairs, coarse = _ends_only(old_lines, new_lines), True
    changes = list(blocks(pairs, len(old_lines), len(new_lines)))
    hunks = tuple(_hunks(changes, old_lines, new_lines))
    removed, added = sum(len(left) for left, _ in changes), sum(len(right) for _, right in changes)
    shown = sum(line.mark != " " for hunk in hunks for line in hunk.lines)
    return TextDifference(hunks, added, removed, coarse, hidden=added + removed - shown)


def split_lines(text: str) -> list[str]:
    """Splits at newlines only and keeps them; every other character is content."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _ends_only(old: list[str], new: list[str]) -> Pairs:
    head = common_head(old, new)
    tail = common_tail(old, new, head)
    pairs = [(at, at) for at in range(head)]
    return pairs + [(len(old) - at, len(new) - at) for at in range(tail, 0, -1)]


# --- hunks -----------------------------------------------------------------------------------------------------------
Change = tuple[range, range]


def _hunks(changes: list[Change], old: list[str], new: list[str]) -> Iterator[Hunk]:
    room = SHOWN_LINES
    for group in _grouped(changes):
        if room <= 0:
            return
        lines = _lines(group, old, new)[:room]
        room -= len(lines)
        yield Hunk(_heading(lines), tuple(lines))


def _grouped(changes: list[Change]) -> list[list[Change]]:
    """Changes whose contexts would touch are in one hunk."""
    groups: list[list[Change]] = [changes[:1]] if changes else []
    for before, change in pairwise(changes):
        if change[0].start - before[0].stop <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _lines(group: list[Change], old: list[str], new: list[str]) -> list[DiffLine]:
    at = max(0, group[0][0].start - CONTEXT)
    lines: list[DiffLine] = []
    for left, right in group:
        lines += _same(old, at, left.start, right.start - left.start)
        lines += _replaced(left, right, old, new)
        at = left.stop
    last_left, last_right = group[-1]
    return lines + _same(old, at, min(len(old), at + CONTEXT), last_right.stop - last_left.stop)


def _same(old: list[str], start: int, stop: int, shift: int) -> list[DiffLine]:
    """`shift`: from a line's position in the old text to its position in the new one."""
    return [
        _line(" ", at + 1, at + 1 + shift, Piece(shortened(old[at].rstrip("\n"))), old[at]) for at in range(start, stop)
    ]


def _replaced(left: range, right: range, old: list[str], new: list[str]) -> list[DiffLine]:
    left, right = left[: SHOWN_LINES // 2], right[: SHOWN_LINES // 2]
    twins = [pieces(old[a].rstrip("\n"), new[b].rstrip("\n")) for a, b in zip(left, right, strict=False)]
    removed = [twins[n][0] if n < len(twins) else _whole(old[at]) for n, at in enumerate(left)]
    added = [twins[n][1] if n < len(twins) else _whole(new[at]) for n, at in enumerate(right)]
    return [_line("-", at + 1, None, removed[n], old[at]) for n, at in enumerate(left)] + [
        _line("+", None, at + 1, added[n], new[at]) for n, at in enumerate(right)
    ]


def _line(mark: str, old: int | None, new: int | None, piece: Piece, text: str) -> DiffLine:
    return DiffLine(mark, old, new, piece, text.endswith("\n"))


def _heading(lines: list[DiffLine]) -> str:
    """A heading in the format of `diff -u`."""
    olds = [line.old for line in lines if line.old is not None]
    news = [line.new for line in lines if line.new is not None]
    return f"@@ -{_span(olds)} +{_span(news)} @@"


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]},{len(numbers)}" if numbers else "0,0"


# --- inside a line ---------------------------------------------------------------------------------------------------
def pieces(old: str, new: str) -> tuple[Piece, Piece]:
    """Splits off the common beginning and end. If both texts have nothing in common, nothing is marked as changed."""
    head = _shared(old, new, from_end=False)
    tail = min(_shared(old, new, from_end=True), min(len(old), len(new)) - head)
    if not head and not tail:
        return Piece(shortened(old)), Piece(shortened(new))
    return _cut(old, head, tail), _cut(new, head, tail)


def shortened(text: str, most: int = LINE_CHARS) -> str:
    return text if len(text) <= most else f"{text[:most]}{_ELLIPSIS}"


def _whole(line: str) -> Piece:
    return Piece(shortened(line.rstrip("\n")))


def _cut(text: str, head: int, tail: int) -> Piece:
    """A long line is cut to the text around its change."""
    before, changed, after = text[:head], text[head : len(text) - tail], text[len(text) - tail :]
    if len(text) > LINE_CHARS:
        before = before if len(before) <= AROUND_CHARS else _ELLIPSIS + before[-AROUND_CHARS:]
        after = shortened(after, AROUND_CHARS)
    return Piece(before, shortened(changed), after)


def _shared(old: str, new: str, *, from_end: bool) -> int:
    """Length of the common beginning or end, by bisection: comparing slices is far faster than comparing characters."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        same = old[-middle:] == new[-middle:] if from_end else old[:middle] == new[:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    return low
