"""A value survives the form: compiled, rendered, posted by a browser without script, and read again."""

import json

import pytest

from servers.schemas.checker import check
from servers.schemas.compile import compile_form
from servers.schemas.parse import parse_form
from servers.schemas.render import render_form
from tests.servers.schemas.browser_form import posted
from tests.servers.schemas.cases import Case, nasty_tools, real_tools

CASES = [*real_tools(), *nasty_tools()]


def exact(value: object) -> str:
    """Distinguishes 1, 1.0 and true, which == does not. Ignores the order of keys."""
    return json.dumps(value, sort_keys=True)


def shown_and_read(schema: object, value: object) -> object:
    parsed = parse_form(schema, posted(render_form(compile_form(schema, value))))
    assert parsed.errors == {}
    return parsed.value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_minimal_value_comes_back_with_nothing_added(case: Case) -> None:
    assert exact(shown_and_read(case.schema, case.minimal)) == exact(case.minimal)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_full_value_comes_back_unchanged(case: Case) -> None:
    value = case.full | {"f": 5} if case.name == "big-numbers" else case.full
    assert exact(shown_and_read(case.schema, value)) == exact(value)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_the_expected_parts_of_a_full_value_need_json(case: Case) -> None:
    nodes = [node for node in compile_form(case.schema, case.full).walk() if node.kind == "json" and node.sent]
    assert len(nodes) == case.json_controls, [(node.path, node.reason) for node in nodes]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_values_of_the_corpus_are_valid_or_cannot_be_checked(case: Case) -> None:
    for value in (case.minimal, case.full):
        verdict = check(case.schema, value)
        assert verdict.state != "invalid", verdict.errors


@pytest.mark.parametrize("case", real_tools(), ids=str)
def test_a_new_form_of_a_real_tool_sends_required_fields_only(case: Case) -> None:
    parsed = parse_form(case.schema, posted(render_form(compile_form(case.schema))))
    draft = parsed.draft
    assert set(draft) <= set(case.schema.get("required", []))


def test_an_integer_written_as_a_float_is_sent_as_an_integer() -> None:
    assert exact(shown_and_read({"type": "integer"}, 5.0)) == "5"


def test_a_default_of_an_optional_field_is_a_hint_and_is_not_sent() -> None:
    schema = {"type": "object", "properties": {"limit": {"type": "integer", "default": 50}}}
    html = render_form(compile_form(schema))
    assert "Default 50." in html
    assert parse_form(schema, posted(html)).value == {}


def test_a_default_is_named_by_the_label_of_its_option() -> None:
    titled = {
        "type": "string",
        "oneOf": [{"const": "hero-1", "title": "Superman"}, {"const": "hero-2", "title": "Wonder Woman"}],
    }
    options = [{"const": "fish-1", "title": "Tuna"}, {"const": "fish-2", "title": "Trout"}]
    several = {"type": "array", "items": {"anyOf": options}, "uniqueItems": True, "default": ["fish-1", "fish-2"]}
    sentence = {"type": "string", "default": "It was a dark and stormy night."}
    properties = {"hero": titled | {"default": "hero-1"}, "fish": several, "line": sentence}
    html = render_form(compile_form({"type": "object", "properties": properties}))
    assert "Default Superman." in html
    assert "Default Tuna, Trout." in html
    assert "stormy night.." not in html


def test_a_default_of_a_required_field_is_filled_in_and_sent() -> None:
    schema = {"type": "object", "properties": {"limit": {"type": "integer", "default": 50}}, "required": ["limit"]}
    assert parse_form(schema, posted(render_form(compile_form(schema)))).value == {"limit": 50}


def test_absent_empty_and_null_stay_three_things() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
    for value in ({}, {"a": ""}, {"a": None}):
        assert shown_and_read(schema, value) == value
