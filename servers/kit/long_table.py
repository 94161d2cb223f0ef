"""The table of a long JSON text, page by page: rows are parsed one at a time, and only those that are asked for are kept."""

import json
import math
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from servers.kit import spreadsheet
from servers.kit.json_table import ALIKE, COLUMNS, PAGE, SHOWN
from servers.kit.visible import visible_html

ROWS = 100_000
#: commas and opening brackets: a text with more has so many values that even one part of it could fill the memory
VALUES = 1_500_000
CELL_CHARS = 65_536  # of one cell
PAGE_CHARS = 300_000  # of all long cells of one page
_KEY_CHARS = 200  # by which a text is sorted
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMERIC = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DIGITS = re.compile(r"(\d+)")
_LIST_OF_OBJECTS = re.compile(r"\[[ \t\r\n]*\{")
_read = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class LongTable:
    """`name`: of the member of the text that is the list; None if the text itself is. `starts`: where each row begins.
    `cut`: there are more rows than these."""

    name: str | None
    columns: list[str]
    text: str = field(repr=False)
    starts: "array[int]" = field(repr=False)
    cut: bool

    def order(self, column: int, *, descending: bool) -> Sequence[int]:
        """The numbers of the rows, sorted as js/json-view.js sorts a short table: numbers by size, other text as people
        count, rows without a value last."""
        name = self.columns[column]
        texts = [_text(row[name]) if name in row else "" for row in self._rows(range(len(self.starts)))]
        filled = [number for number, text in enumerate(texts) if text not in ("", "null")]
        numbers = [_number(texts[number]) for number in filled]
        keys: list[Any] = [_natural(texts[number]) for number in filled] if None in numbers else numbers
        sorted_keys = sorted(range(len(filled)), key=keys.__getitem__, reverse=descending)
        empty = [number for number, text in enumerate(texts) if text in ("", "null")]
        return [*(filled[place] for place in sorted_keys), *empty]

    def page(self, order: Sequence[int], start: int) -> str:
        """Rows as HTML; all text of servers in it is escaped."""
        cells = _Cells()
        return "".join(
            f"<tr>{''.join(cells.html(row, name) for name in self.columns)}</tr>"
            for row in self._rows(order[start : start + PAGE])
        )

    def csv(self, order: Sequence[int], hidden: Sequence[int] = ()) -> str:
        """RFC 4180, without the columns of these numbers."""
        names = [name for number, name in enumerate(self.columns) if number not in hidden] or self.columns
        head = _line(_csv_cell(name) for name in names)
        rows = (_line(_csv_cell(row[name]) if name in row else "" for name in names) for row in self._rows(order))
        return "\r\n".join([head, *rows])

    def _rows(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            yield _read(self.text, self.starts[number])[0]


def may_have_table(text: str) -> bool:
    """A quick check; `long_table` decides."""
    return text[:100].lstrip()[:1] in ("{", "[") and _LIST_OF_OBJECTS.search(text) is not None


def long_table(text: str) -> LongTable | None:
    """The table of the text, or of its first member that is a list as `json_table.table_of` requires."""
    if text.count(",") + text.count("[") + text.count("{") > VALUES:
        return None
    try:
        start = _after_space(text, 0)
        if text[start] == "[":
            return _list_at(text, start, None)
        return _first_member(text, start) if text[start] == "{" else None
    except (ValueError, RecursionError, IndexError):
        return None


def _first_member(text: str, at: int) -> LongTable | None:
    at = _after_space(text, at + 1)
    while text[at] == '"':
        name, at = _read(text, at)
        at = _after_space(text, at)
        if text[at] != ":":
            return None
        at = _after_space(text, at + 1)
        if text[at] == "[" and (table := _list_at(text, at, name)):
            return table
        at = _after_space(text, _read(text, at)[1])
        if text[at] != ",":
            return None
        at = _after_space(text, at + 1)
    return None


def _list_at(text: str, at: int, name: str | None) -> LongTable | None:
    starts, columns, filled = array("Q"), dict[str, None](), 0
    at = _after_space(text, at + 1)
    while text[at] == "{" and len(starts) < ROWS:
        row, end = _read(text, at)
        if not columns.keys() >= row.keys():
            columns.update(dict.fromkeys(row))
        if not row or len(columns) > COLUMNS:
            return None
        starts.append(at)
        filled += len(row)
        at = _after_space(text, end)
        if text[at] == "]":
            break
        if text[at] != ",":
            return None
        at = _after_space(text, at + 1)
    cut = text[at] != "]"
    if (cut and text[at] != "{") or len(starts) < 2 or filled < ALIKE * len(columns) * len(starts):
        return None
    return LongTable(name, list(columns), text, starts, cut)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(text: str) -> float | None:
    if not _NUMERIC.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _natural(text: str) -> list[str | int]:
    """A sort key that ignores case and accents, with digits as numbers."""
    plain = text[:_KEY_CHARS]
    if not plain.isascii():
        plain = "".join(char for char in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(char))
    parts = _DIGITS.split(plain.casefold())
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _line(cells: Iterator[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def _csv_cell(value: Any) -> str:
    text = _text(value)
    plain = isinstance(value, int | float) or (text[:1].isalnum() and text.isascii() and text.isprintable())
    shown = text if plain or _number(text) is not None else spreadsheet.cell(text)
    return shown.replace('"', '""')


class _Cells:
    """The cells of one page; counts down the characters that long ones may still take."""

    def __init__(self) -> None:
        self._left = PAGE_CHARS

    def html(self, row: dict[str, Any], name: str) -> str:
        if name not in row:
            return "<td></td>"
        value = row[name]
        text = _text(value)
        css = "" if isinstance(value, str | dict | list) else f' class="{"nu" if _number(text) is not None else "bo"}"'
        if len(text) <= SHOWN:
            return f"<td{css}>{visible_html(text)}</td>"
        start, whole = visible_html(text[:SHOWN]), text[:CELL_CHARS]
        size = (
            f"{len(text):,} characters"
            if len(whole) == len(text)
            else f"first {CELL_CHARS:,} of {len(text):,} characters"
        )
        if len(whole) > self._left:
            return f'<td>{start}… <span class="c">{len(text):,} characters, in the download</span></td>'
        self._left -= len(whole)
        return (
            f'<td><details class="jt-long"><summary>{start}… <span class="c">{size}</span></summary>'
            f'<div class="pre">{visible_html(whole)}</div></details></td>'
        )
