"""Any schema and any value produce a form, and the form returns the value."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servers.json import text as json_text
from servers.schemas.compile import compile_form
from servers.schemas.operations import Operation, apply
from servers.schemas.parse import parse_form, parse_json
from servers.schemas.render import render_errors, render_form
from servers.schemas.resolve import Document
from servers.schemas.values import hashable, same
from tests.servers.schemas.browser_form import posted

MODERATE = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\n", "\na", "a\r\nb", "\0", "\ud800", "true", "1", "~1/", "é"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
_WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "if",
        "then",
        "required",
        "additionalProperties",
        "a",
        "pattern",
        "$defs",
        "patternProperties",
        "prefixItems",
        "title",
        "description",
        "default",
        "minItems",
        "dependencies",
        "format",
        "minimum",
    ]
)
KEYS = st.sampled_from(["a", "b", "text", "a/b", "~", "", "__proto__", "x\ny"])

SIMPLE = st.fixed_dictionaries({"type": st.sampled_from(["string", "number", "integer", "boolean", "null"])})
FIXED = st.fixed_dictionaries({"enum": st.lists(LEAVES, min_size=1, max_size=4)}) | st.fixed_dictionaries(
    {"const": VALUES}
)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(KEYS, inner, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        st.just({"$ref": "#"}),
    )


SCHEMAS = st.recursive(SIMPLE | FIXED | st.booleans() | st.just({}), _compound, max_leaves=10)


def exact(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@MODERATE
@given(SCHEMAS, VALUES)
def test_any_value_comes_back_from_the_form_of_any_schema_without_required_fields(schema: Any, value: Any) -> None:
    parsed = parse_form(schema, posted(render_form(compile_form(schema, value))))
    assert parsed.errors == {}
    assert exact(parsed.value) == exact(value)


@MODERATE
@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_WORDS, inner), max_leaves=12), VALUES)
def test_a_schema_of_any_shape_makes_a_form(schema: Any, value: Any) -> None:
    for form in (compile_form(schema), compile_form(schema, value, {"/a/b": ["wrong"]})):
        assert posted(render_form(form))
        parse_form(schema, posted(render_form(form)))
    assert "wrong" in render_errors(compile_form(schema, value, {"/a/b": ["wrong"]}))


@MODERATE
@given(SCHEMAS, st.dictionaries(st.text(max_size=20).map("arg{}".format) | st.text(), st.lists(st.text()), max_size=6))
def test_any_posted_data_is_read_without_a_failure(schema: Any, data: dict[str, list[str]]) -> None:
    parsed = parse_form(schema, data)
    assert parsed.ok or parsed.errors
    render_form(compile_form(schema, parsed.draft, parsed.errors))


@MODERATE
@given(SCHEMAS, VALUES, st.data())
def test_every_button_of_a_form_can_be_pressed(schema: Any, value: Any, data: st.DataObject) -> None:
    nodes = list(compile_form(schema, value).walk())
    verb = data.draw(st.sampled_from(["add", "del", "branch", "addkey", "refresh"]))
    node = data.draw(st.sampled_from(nodes))
    draft = apply(Operation(verb, node.path, data.draw(st.integers(0, 3))), schema, value)
    html = render_form(compile_form(schema, draft))
    parsed = parse_form(schema, posted(html))
    render_form(compile_form(schema, parsed.draft, parsed.errors))


@MODERATE
@given(VALUES)
def test_json_text_comes_back(value: Any) -> None:
    assert exact(parse_json(json_text.dumps(value)).value) == exact(value)


@given(VALUES, VALUES)
@MODERATE
def test_two_values_have_one_hashable_form_exactly_when_json_schema_calls_them_equal(left: Any, right: Any) -> None:
    assert (hashable(left) == hashable(right)) is same(left, right)
    assert hashable(left) == hashable(json.loads(json.dumps(left)))


@pytest.mark.parametrize(("left", "right"), [(1, 1.0), ([1], [1.0]), ({"a": 1, "b": 2}, {"b": 2.0, "a": 1})])
def test_numbers_are_equal_by_their_value(left: Any, right: Any) -> None:
    assert same(left, right)
    assert hashable(left) == hashable(right)


@pytest.mark.parametrize(("left", "right"), [(1, True), (0, False), (1, "1"), (None, ""), ([], {})])
def test_other_types_are_never_equal(left: Any, right: Any) -> None:
    assert not same(left, right)
    assert hashable(left) != hashable(right)


def test_two_long_lists_of_values_that_both_apply_offer_all_that_they_share() -> None:
    both = {"allOf": [{"enum": list(range(1_500))}, {"enum": list(range(600, 3_000))}]}
    flat = Document(both).effective(both, lambda condition: True)
    assert flat["enum"] == list(range(600, 1_500))
