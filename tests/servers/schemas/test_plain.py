"""The in-process check gives a verdict only where the child process would give the same one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.schemas.checker import Checker
from servers.schemas.plain import surely_valid

PLAIN = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "any"},
        "count": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
        "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "x": {"type": "boolean", "x-mcp-header": "X-Flag"},
    },
    "required": ["text"],
    "additionalProperties": False,
}
leaves = st.none() | st.booleans() | st.integers(-2, 5) | st.sampled_from(["", "a", "b", "long " * 40])
members = st.dictionaries(
    st.sampled_from(["text", "count", "kinds", "x", "other"]), leaves | st.lists(leaves, max_size=4)
)


@pytest.fixture(scope="module")
def checker() -> Any:
    made = Checker()
    yield made
    made.close()


@given(value=members)
def test_it_agrees_with_the_child_about_every_value(checker: Checker, value: Any) -> None:
    asked = checker._submit(PLAIN, value).result(30)

    assert surely_valid(PLAIN, value) == (asked.state == "valid")


def test_a_plain_valid_value_needs_no_child() -> None:
    fresh = Checker()

    assert fresh.check(PLAIN, {"text": "hello"}).state == "valid"
    assert fresh.pid is None


def test_what_is_wrong_is_said_by_the_child(checker: Checker) -> None:
    assert checker.check(PLAIN, {"text": ""}).errors == {"/text": ["At least 1 character."]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a+)+$"},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"type": "array", "uniqueItems": True},
        {"patternProperties": {".*": True}},
        {"type": "string", "format": "email"},
        {"unevaluatedProperties": False},
        {"properties": {"deep": {"anyOf": [{"dependentSchemas": {}}]}}},
        {"$schema": "https://json-schema.org/draft/2019-09/schema"},
        {"type": "no such type"},
        {"enum": list(range(30_000))},
        "no schema",
        {"properties": {"a": "no schema"}},
    ],
    ids=lambda schema: " ".join(schema) if isinstance(schema, dict) else schema,
)
def test_what_may_not_end_or_is_not_understood_is_left_to_the_child(schema: Any) -> None:
    assert not surely_valid(schema, "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!")
    assert not surely_valid(schema, [1, 2])


@pytest.mark.parametrize(
    "value",
    [[0] * 10_000, ["x" * 2_000_000], {str(number): [] for number in range(10_000)}],
    ids=["many", "long", "members"],
)
def test_a_value_of_many_parts_is_left_to_the_child(value: Any) -> None:
    assert not surely_valid({"items": {"enum": [0, 1]}, "additionalProperties": {"type": "array"}}, value)


def test_a_default_nested_beyond_all_bounds_is_left_to_the_child() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]

    assert not surely_valid({"default": deep}, 1)
    assert surely_valid({"default": json.loads("[[1]]")}, 1)
