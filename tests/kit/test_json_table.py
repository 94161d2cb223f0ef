"""Which values have a table beside their tree, and what its cells say."""

from typing import Any

import pytest

from servers.kit.json_table import CELLS, table_of


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ([{"a": 1}, {"a": 2}], ["a"]),
        ({"total": 2, "rows": [{"a": 1, "b": 1}, {"b": 2, "c": 3}]}, ["a", "b", "c"]),
        ([{"a": 1}], None),
        ([{"a": 1}, 2], None),
        ([{"a": 1}, {"b": 1}, {"c": 1}], None),
        ({"rows": {"a": 1}}, None),
        ("text", None),
    ],
)
def test_lists_of_similar_objects_have_a_table(value: Any, columns: list[str] | None) -> None:
    table = table_of(value)
    assert (table and table.columns) == columns


def test_a_table_is_bounded_and_says_how_much_it_shows() -> None:
    table = table_of([{str(n): 1 for n in range(40)}] * 1_000)
    assert table is not None
    assert (len(table.rows), table.total, table.cut) == (CELLS // 40, 1_000, True)
    assert table_of([{str(n): 1 for n in range(41)}] * 2) is None


def test_cells_are_escaped_marked_where_a_spreadsheet_would_compute_and_shown_whole() -> None:
    table = table_of([{"a": "<b>\u202e", "n": -1}, {"a": "=1", "n": "-1+1"}, {"a": "x" * 500, "n": {"<i>": "=\u200b"}}])
    assert table is not None
    first, second, third = table.body()
    assert "&lt;b&gt;" in first
    assert "U+202E" in first
    assert "data-formula" not in first
    assert second.count("data-formula") == 2
    assert "x" * 500 in third
    assert "<i>" not in third
    assert "\u200b" not in third
