"""A list of similar objects as a table: in the order of the server, which js/json-view.js sorts, pages and copies."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from servers.kit.json_tree import Tree
from servers.kit.spreadsheet import is_risky
from servers.kit.visible import visible_html, visible_text

ROWS = 1_000
CELLS = 5_000
COLUMNS = 40
PAGE = 100  # rows shown at once
SHOWN = 120  # characters of a cell before "show all"
ALIKE = 0.5  # of all cells have a value


@dataclass(frozen=True)
class Table:
    """`name`: of the member of the value that is the list; None if the value itself is. `total`: rows of the list."""

    name: str | None
    columns: list[str]
    rows: list[dict[str, Any]]
    total: int

    @property
    def cut(self) -> bool:
        return len(self.rows) < self.total

    @property
    def paged(self) -> bool:
        return len(self.rows) > PAGE

    def body(self) -> Iterator[str]:
        """The rows as HTML; all text of servers in it is escaped."""
        tree = Tree()
        for index, row in enumerate(self.rows):
            cells = "".join(_cell(row[name], tree) if name in row else "<td></td>" for name in self.columns)
            yield f"<tr{' hidden' if index >= PAGE else ''}>{cells}</tr>"


def table_of(value: Any) -> Table | None:
    """The table of the value, or of its first member that is a list of at least two objects with mostly the same
    keys."""
    if isinstance(value, list):
        return _table(value, None)
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, list) and (table := _table(member, name)):
                return table
    return None


def _table(items: list[Any], name: str | None) -> Table | None:
    if len(items) < 2 or not all(isinstance(item, dict) and item for item in items):
        return None
    columns: dict[str, None] = {}
    for item in items:
        columns.update(dict.fromkeys(item))
        if len(columns) > COLUMNS:
            return None
    if sum(map(len, items)) < ALIKE * len(columns) * len(items):
        return None
    return Table(name, list(columns), items[: min(ROWS, CELLS // len(columns))], len(items))


def _cell(value: Any, tree: Tree) -> str:
    if isinstance(value, str):
        if len(value) <= SHOWN:
            return f"<td{_formula(value)}>{visible_html(value)}</td>"
        return _long(value, f"{len(value):,} characters", visible_html(value), "")
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value:
        return (
            f'<td{_formula(text)} class="{"nu" if isinstance(value, int | float) else "bo"}">{visible_html(text)}</td>'
        )
    count = f"{len(value):,} {'key' if isinstance(value, dict) else 'item'}{'' if len(value) == 1 else 's'}"
    nested = tree.render(value, depth=1) if tree.left > 0 else visible_html(text)
    return _long(text, count, f'<div class="jv">{nested}</div>', " jt-nested")


def _long(text: str, size: str, whole: str, css: str) -> str:
    start = visible_html(text[:SHOWN]) + ("…" if len(text) > SHOWN else "")
    attribute = visible_text(text).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return (
        f'<td{_formula(text)} data-csv="{attribute}"><details class="jt-long{css}">'
        f'<summary>{start} <span class="c">{size}</span></summary><div class="pre">{whole}</div></details></td>'
    )


def _formula(text: str) -> str:
    """An attribute that marks text that a spreadsheet would treat as a formula. A number is never one."""
    return " data-formula" if is_risky(text) and not _is_number(text) else ""


def _is_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text), int | float)
    except (ValueError, RecursionError):
        return False
