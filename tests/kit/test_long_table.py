"""The table of a long JSON text: the same rules as of a short one, page by page."""

import json
from typing import Any

import pytest

from servers.kit import long_table as module
from servers.kit.json_table import PAGE, table_of
from servers.kit.long_table import CELL_CHARS, PAGE_CHARS, long_table, may_have_table


def table(value: Any) -> module.LongTable:
    found = long_table(json.dumps(value, ensure_ascii=False))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "value",
    [
        [{"a": 1}, {"a": 2}],
        {"total": [1], "page": {"rows": [{"z": 1}]}, "rows": [{"a": 1, "b": 1}, {"b": 2, "c": 3}], "next": None},
        [{"a": 1}],
        [{"a": 1}, 2],
        [{"a": 1}, {}],
        [{"a": 1}, {"b": 1}, {"c": 1}],
        {"rows": {"a": 1}},
        [{str(number): 1 for number in range(41)}] * 2,
        [],
        "text",
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_long_text_has_a_table_where_a_short_one_has(value: Any, indent: int | None) -> None:
    long, short = long_table(json.dumps(value, indent=indent)), table_of(value)
    assert (long and (long.name, long.columns, len(long.starts))) == (
        short and (short.name, short.columns, short.total)
    )


@pytest.mark.parametrize("text", ["", "[", "[{", '[{"a":1},', '[{"a":1} {"a":2}]', '{"a":[{"b":1},{"b":2}', '{"a" 1}'])
def test_text_that_is_no_json_has_no_table(text: str) -> None:
    assert long_table(text) is None
    assert not may_have_table(f"Rows: {text}")


def test_nesting_and_values_beyond_any_memory_have_no_table() -> None:
    assert long_table('{"a":' + "[" * 100_000) is None
    assert long_table('{"a":[' + "[]," * module.VALUES + '0],"rows":[{"a":1},{"a":2}]}') is None


def test_more_rows_than_are_counted_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    assert table([{"a": 1}] * 3).cut is False
    cut = table([{"a": 1}] * 4)
    assert (len(cut.starts), cut.cut) == (3, True)


def test_rows_are_sorted_by_size_or_as_people_count_and_those_without_a_value_stay_last() -> None:
    numbers = table([{"n": 10, "k": 0}, {"n": 9, "k": 0}, {"n": None, "k": 0}, {"k": 0}, {"n": -1.5, "k": 0}])
    assert list(numbers.order(0, descending=False)) == [4, 1, 0, 2, 3]
    assert list(numbers.order(0, descending=True)) == [0, 1, 4, 2, 3]
    assert list(numbers.order(1, descending=True)) == [0, 1, 2, 3, 4]
    words = table([{"w": word} for word in ("row 10", "Row 9", "élan", "elan 2", "²", "n/a", {"x": 1}, "9" * 5_000)])
    assert [word for word in words.order(0, descending=False) if word < 4] == [2, 3, 1, 0]


def test_a_page_has_its_rows_escaped_and_is_bounded() -> None:
    found = table([{"a": f"<b>{number}\u202e"} for number in range(PAGE + 1)] + [{"a": "x" * 1_000_000}] * PAGE)
    page = found.page(range(len(found.starts)), PAGE)
    assert page.count("<tr>") == PAGE
    assert f"&lt;b&gt;{PAGE}" in page
    assert "U+202E" in page
    assert f"first {CELL_CHARS:,} of 1,000,000 characters" in page
    assert "1,000,000 characters, in the download" in page
    assert len(page) < PAGE_CHARS + 50_000


def test_csv_has_every_row_whole_and_nothing_that_a_spreadsheet_computes() -> None:
    found = table([{"=a": '=1+"1"', "b": -1, "c": {"x": [1]}}, {"=a": "x" * 500, "b": "\u200b-2"}])
    lines = found.csv([1, 0]).split("\r\n")
    assert lines[0] == '"\'=a","b","c"'
    assert lines[1] == f'"{"x" * 500}","[U+200B]-2",""'
    assert lines[2] == '"\'=1+""1""","-1","{""x"": [1]}"'
    assert found.csv([0], [0, 2]) == '"b"\r\n"-1"'
