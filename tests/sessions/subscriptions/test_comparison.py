"""The difference of two resource versions is correct and bounded, whatever the server sends."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.differences import structure as json_difference
from sessions.differences import text as text_difference
from sessions.differences.alignment import Budget, TooDifferent, blocks, common
from sessions.differences.structure import compare_json
from sessions.differences.text import Piece, TextDifference, compare_texts, pieces, split_lines
from sessions.subscriptions import comparison
from sessions.subscriptions.comparison import JSON_CHARS, MOST_CHARS, MOST_PARTS, VersionDifference, compare


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"uri": "demo://a", "mimeType": "text/plain", "text": value} | more


def blob(data: bytes) -> dict[str, Any]:
    return {"uri": "demo://a", "mimeType": "image/png", "blob": base64.b64encode(data).decode()}


def difference(old: str, new: str) -> VersionDifference:
    return compare([text(old)], [text(new)])


def marks(found: TextDifference) -> list[str]:
    return [
        line.mark + line.piece.before + line.piece.changed + line.piece.after
        for hunk in found.hunks
        for line in hunk.lines
    ]


# --- alignment -------------------------------------------------------------------------------------------------------
small = st.lists(st.integers(0, 4), max_size=25)


def longest(old: list[int], new: list[int]) -> int:
    row = [0] * (len(new) + 1)
    for left in old:
        before, row = row, [0] * (len(new) + 1)
        for at, right in enumerate(new):
            row[at + 1] = before[at] + 1 if left == right else max(before[at + 1], row[at])
    return row[-1]


@given(small, small)
def test_the_longest_common_part_of_two_sequences_is_found(old: list[int], new: list[int]) -> None:
    pairs = common(old, new, Budget())
    assert all(old[left] == new[right] for left, right in pairs)
    assert pairs == sorted(pairs)
    assert len({left for left, _ in pairs}) == len({right for _, right in pairs}) == len(pairs) == longest(old, new)


@given(small, small)
def test_the_blocks_lead_from_the_old_sequence_to_the_new_one(old: list[int], new: list[int]) -> None:
    rebuilt, at = [], 0
    for left, right in blocks(common(old, new, Budget()), len(old), len(new)):
        rebuilt += old[at : left.start] + new[right.start : right.stop]
        at = left.stop
    assert rebuilt + old[at:] == new


def test_work_is_bounded_by_steps_and_not_by_time() -> None:
    with pytest.raises(TooDifferent):
        common(range(0, 5_000), range(5_000, 10_000), Budget())
    with pytest.raises(TooDifferent):
        common([0, 1] * 500, [1, 1, 0] * 500, Budget(1_000))


# --- text ------------------------------------------------------------------------------------------------------------
@given(st.text("ab\n", max_size=60), st.text("ab\n", max_size=60))
def test_the_marked_lines_rebuild_both_texts(old: str, new: str) -> None:
    whole = text_difference.CONTEXT
    text_difference.CONTEXT = 10_000
    try:
        found = compare_texts(old, new, Budget())
    finally:
        text_difference.CONTEXT = whole
    assert found is not None
    if old == new:
        assert found.hunks == ()
        return
    lines = [(line.mark, words[1:] + ("\n" if line.ends else "")) for line, words in zip(
        [line for hunk in found.hunks for line in hunk.lines], marks(found), strict=True)]  # fmt: skip
    assert "".join(words for mark, words in lines if mark != "+") == old
    assert "".join(words for mark, words in lines if mark != "-") == new


def test_a_text_shows_the_changed_line_between_three_lines_of_context() -> None:
    old = "\n".join(f"line {number}" for number in range(20)) + "\n"
    part = difference(old, old.replace("line 10", "line ten")).parts[0]
    assert part.text is not None
    assert part.text.hunks[0].heading == "@@ -8,7 +8,7 @@"
    assert marks(part.text) == [" line 7", " line 8", " line 9", "-line 10", "+line ten", " line 11", " line 12", " line 13"]  # fmt: skip
    assert [(line.old, line.new) for line in part.text.hunks[0].lines][3:5] == [(11, None), (None, 11)]


def test_what_changed_inside_a_line_is_marked() -> None:
    assert pieces("port = 8080 # web", "port = 9090 # web") == (
        Piece("port = ", "808", "0 # web"),
        Piece("port = ", "909", "0 # web"),
    )
    assert pieces("abc", "xyz") == (Piece("abc"), Piece("xyz"))


def test_a_long_line_keeps_what_is_around_its_change() -> None:
    old, new = pieces("a" * 5_000 + "OLD" + "b" * 5_000, "a" * 5_000 + "NEW" + "b" * 5_000)
    assert (old.changed, new.changed) == ("OLD", "NEW")
    assert max(len(old.before), len(old.after)) <= text_difference.AROUND_CHARS + 1


def test_a_missing_newline_at_the_end_is_a_difference() -> None:
    part = difference("a\nb\n", "a\nb").parts[0]
    assert part.text is not None
    assert [(line.mark, line.ends) for line in part.text.hunks[0].lines] == [(" ", True), ("-", True), ("+", False)]


def test_changes_far_apart_are_in_hunks_of_their_own() -> None:
    lines = [str(number) for number in range(40)]
    new = lines.copy()
    new[5:6], new[30] = ["five", "and a half"], "thirty"
    part = difference("\n".join(lines), "\n".join(new)).parts[0]
    assert part.text is not None
    assert [hunk.heading for hunk in part.text.hunks] == ["@@ -3,7 +3,8 @@", "@@ -27,7 +28,7 @@"]


def test_only_newlines_end_a_line() -> None:
    assert split_lines("a\x0bb\u2028c\r\nd\n") == ["a\x0bb\u2028c\r\n", "d\n"]


def test_texts_that_cannot_be_aligned_are_shown_one_in_place_of_the_other() -> None:
    old = "\n".join(f"old {number}" for number in range(5_000))
    found = compare_texts(old, old.replace("old", "new"), Budget())
    assert found is not None
    assert (found.coarse, found.added, found.removed) == (True, 5_000, 5_000)
    assert sum(len(hunk.lines) for hunk in found.hunks) <= text_difference.SHOWN_LINES
    assert found.hidden == 10_000 - text_difference.SHOWN_LINES


def test_a_million_lines_are_not_compared() -> None:
    part = compare([text("\n" * 1_000_000)], [text("x\n" * 1_000_000)]).parts[0]
    assert part.how == "facts"
    assert "Too many lines" in part.note


# --- JSON ------------------------------------------------------------------------------------------------------------
def structure(old: Any, new: Any) -> list[tuple[str, str, str, str]]:
    part = difference(json.dumps(old), json.dumps(new)).parts[0]
    assert part.structure is not None

    def words(piece: Piece | None) -> str:
        return "" if piece is None else piece.before + piece.changed + piece.after

    return [(change.kind, change.path, words(change.old), words(change.new)) for change in part.structure.changes]


def test_json_is_compared_by_structure_and_not_by_lines() -> None:
    old = {"name": "a", "ports": [80, 443], "old": None}
    new = {"ports": [80, 8443], "name": "a", "new": {"x": 1}}
    assert structure(old, new) == [
        ("changed", "$.ports[1]", "443", "8443"),
        ("removed", "$.old", "null", ""),
        ("added", "$.new", "", '{"x": 1}'),
    ]


def test_an_item_put_in_front_of_a_list_is_one_addition() -> None:
    items = [{"id": number, "tags": ["a"]} for number in range(100)]
    assert structure(items, [{"id": "new"}, *items]) == [("added", "$[0]", "", '{"id": "new"}')]


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), (None, "null"), ([], {}), ("1", 1)])
def test_values_of_different_types_are_different_values(old: Any, new: Any) -> None:
    assert structure([old], [new]) == [("changed", "$[0]", json.dumps(old), json.dumps(new))]


def test_a_key_that_looks_like_a_path_is_quoted() -> None:
    assert structure({"a.b": 1, "": 2}, {"a.b": 2, "": 2})[0][1] == '$["a.b"]'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


@given(json_values, json_values)
def test_two_json_values_are_the_same_exactly_when_their_texts_are(old: Any, new: Any) -> None:
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (not compare_json(old, new, Budget(), Budget()).changes) is same


def test_json_that_differs_in_spacing_only_is_shown_as_text_and_says_so() -> None:
    part = difference('{"a": 1}', '{"a":1}').parts[0]
    assert part.how == "text"
    assert "equal" in part.note


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("[" * 90 + "]" * 90, "[" * 91 + "]" * 91, id="deeper than a page follows"),
        pytest.param("[" * 100_000, "[" * 100_001, id="deeper than the parser goes"),
        pytest.param('{"a": 1', '{"a": 2', id="cut"),
        pytest.param("[" + "1," * 150_000 + "1]", "[" + "1," * 150_000 + "2]", id="more values than are looked at"),
        pytest.param(json.dumps(["a" * JSON_CHARS]), json.dumps(["b" * JSON_CHARS]), id="too large"),
        pytest.param("[1" + "0" * 5_000 + "]", "[2" + "0" * 5_000 + "]", id="a number without end"),
    ],
)
def test_what_is_no_json_for_a_page_is_compared_as_text(old: str, new: str) -> None:
    assert difference(old, new).parts[0].how == "text"


def test_repeated_keys_are_compared_as_text_where_a_structure_would_hide_one() -> None:
    part = difference('{"limit": 1, "limit": 9}', '{"limit": 2, "limit": 9}').parts[0]
    assert (part.how, part.note) == ("text", "")
    part = difference('[{"a": 1, "a": 2, "b": 0}]', '[{"a": 3, "a": 2, "b": 1}]').parts[0]
    assert part.text is not None
    assert '"a": 1' in "".join(marks(part.text))


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        ("[0.1]", "[0.10000000000000000001]", False),
        ("[1e400]", "[1e401]", False),
        ("[1e-99999999999999999999]", "[0.0]", False),
        ("[1.5e2]", "[150.0]", True),
    ],
)
def test_numbers_that_only_a_float_takes_for_equal_are_not_called_so(old: str, new: str, equal: bool) -> None:
    part = difference(old, new).parts[0]
    assert (part.how, bool(part.note)) == ("text", equal)


def test_more_changes_than_a_page_holds_are_cut() -> None:
    part = difference(json.dumps(dict.fromkeys(map(str, range(900)), 0)), json.dumps({"x": 1})).parts[0]
    assert part.structure is not None
    assert (len(part.structure.changes), part.structure.hidden) == (json_difference.MOST_CHANGES, True)


def test_numbers_chosen_to_collide_cost_nothing() -> None:
    """Python hashes integers modulo 2**61 - 1, so all of these have the same hash."""
    numbers = [(2**61 - 1) * number for number in range(20_000)]
    part = difference(json.dumps(numbers), json.dumps([*numbers, 5])).parts[0]
    assert part.structure is not None
    assert [change.path for change in part.structure.changes] == ["$[20000]"]


# --- contents --------------------------------------------------------------------------------------------------------
def test_binary_is_compared_by_size_and_digest() -> None:
    part = compare([blob(b"one")], [blob(b"three")]).parts[0]
    assert (part.how, part.old and part.old.size, part.new and part.new.size) == ("facts", 3, 5)
    assert part.old is not None
    assert part.old.sha256 == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"


def test_a_text_that_became_binary_shows_the_facts_of_both() -> None:
    part = compare([text("one")], [blob(b"one")]).parts[0]
    assert (part.how, part.old and part.old.kind, part.new and part.new.kind) == ("facts", "text", "binary")


def test_contents_are_paired_by_their_uri() -> None:
    old = [text("1", uri="a"), text("2", uri="b"), text("3", uri="c")]
    new = [text("3", uri="c"), text("two", uri="b"), text("4", uri="d")]
    assert {part.uri: part.how for part in compare(old, new).parts} == {
        "c": "same", "b": "text", "d": "added", "a": "removed",
    }  # fmt: skip


def test_contents_of_one_uri_are_paired_in_their_order() -> None:
    found = compare([text("1"), text("2")], [text("1"), text("two")])
    assert [part.how for part in found.parts] == ["same", "text"]


def test_a_changed_type_of_equal_content_is_reported() -> None:
    found = compare([text("a")], [text("a", mimeType="text/html")])
    assert found.parts[0].mime_changed
    assert not found.same
    assert found.summary == "Type changed"


def test_what_changed_around_equal_content_is_reported() -> None:
    found = compare([text("a", _meta={"etag": "1"})], [text("a", _meta={"etag": "2"})], others=True)
    assert not found.same
    assert found.summary == "Other fields changed"
    assert found.parts[0].others is not None
    assert [change.path for change in found.parts[0].others.changes] == ["$._meta.etag"]
    moved = compare([text("a")], [text("a", uri="demo://b")], others=True)
    assert moved.parts[0].others is not None
    assert [change.path for change in moved.parts[0].others.changes] == ["$.uri"]
    assert compare([text("a")], [text("a")], others=True).same


def test_fields_around_a_content_that_are_nested_too_deeply_are_not_called_equal() -> None:
    deep: Any = []
    for _ in range(json_difference.MOST_DEPTH + 5):
        deep = [deep]
    found = compare([text("a", _meta=[deep])], [text("a", _meta=[deep, 1])], others=True)
    assert (found.same, found.summary) == (False, "Other fields changed")


def test_equal_versions_are_the_same() -> None:
    found = compare([text("a"), blob(b"b")], [text("a"), blob(b"b")])
    assert found.same
    assert found.summary == "No differences"


@pytest.mark.parametrize(
    "item",
    [None, 5, "text", [], {}, {"text": 5}, {"blob": None}, {"blob": "not base64!"}, {"text": "\ud800"}, {"uri": ["x"]}],
    ids=str,
)
def test_a_content_of_any_shape_is_compared(item: Any) -> None:
    assert compare([text("a")], [item], others=True).parts
    assert compare([item], [item, item], others=True).parts


def test_a_thousand_contents_are_cut() -> None:
    found = compare([], [text("a", uri=str(number)) for number in range(1_000)])
    assert (len(found.parts), found.hidden) == (MOST_PARTS, 1_000 - MOST_PARTS)


def test_a_huge_text_is_reported_by_size() -> None:
    part = compare([text("a")], [text("a" * (MOST_CHARS + 1))]).parts[0]
    assert part.how == "facts"
    assert "Too large" in part.note


def test_the_budget_is_one_for_all_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "Budget", lambda *_: Budget(100))
    old = [text("1\n2\n3\n", uri=str(number)) for number in range(20)]
    new = [text("a\n2\nb\n", uri=str(number)) for number in range(20)]
    coarse = [part.text and part.text.coarse for part in compare(old, new).parts]
    assert (coarse[0], coarse[-1]) == (False, True)
