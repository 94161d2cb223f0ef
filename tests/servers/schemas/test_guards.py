"""Schemas designed to break the form, and names designed to break the page, do no harm."""

import json
import subprocess
import sys
from typing import Any

import pytest

from servers.schemas.compile import MAX_DEPTH, MAX_NODES, compile_form
from servers.schemas.parse import parse_form
from servers.schemas.render import render_errors, render_form
from tests.servers.schemas.browser_form import parsed_html, posted
from tests.servers.schemas.cases import nasty_tools

CASES = {case.name: case for case in nasty_tools()}


def doubling(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"a0": {"type": "string"}}
    for level in range(1, levels + 1):
        defs[f"a{level}"] = {"allOf": [{"$ref": f"#/$defs/a{level - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/a{levels}"}


HOSTILE: list[Any] = [
    {"properties": None},
    {"properties": []},
    {"type": "object", "properties": {"a": None, "b": [], "c": "string", "d": 3}},
    {"type": "object", "required": {"a": 1}},
    {"type": "object", "required": [1, None]},
    {"type": ["string", 3]},
    {"type": "banana"},
    {"type": []},
    {"enum": {"a": 1}},
    {"enum": []},
    {"anyOf": []},
    {"anyOf": [None]},
    {"allOf": {"a": 1}},
    {"allOf": [[]]},
    {"items": "x"},
    {"$ref": 3},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "http://127.0.0.1:1/x"},
    {"$ref": "#/nowhere"},
    {"$ref": "#/$defs/é%zz", "$defs": None},
    {"title": {"a": 1}, "description": ["x"], "default": {"x": 1}, "type": "string", "maxLength": "long"},
    {"type": "integer", "minimum": "low", "maximum": True, "multipleOf": 0},
    {"type": "array", "minItems": -1, "maxItems": 1e400},
    {"type": "array", "minItems": 10**9, "items": {"type": "string"}},
    {"type": "string", "pattern": "(", "format": 7, "examples": "no"},
    {"if": {"pattern": "^(a+)+$"}, "then": {"type": "string"}, "else": {"type": "number"}},
    {"type": "object", "required": ["a", "a"], "properties": {"a": {"$ref": "#"}}},
    {"type": "object", "required": ["l", "r"], "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}},
    {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(MAX_NODES + 1)}},
    {"type": "object", "required": [f"p{n}" for n in range(3000)]},
    {"enum": list(range(50_000))},
    {"anyOf": [{"const": n} for n in range(5_000)]},
    {"allOf": [{"properties": {f"p{n}": {}}} for n in range(5_000)]},
    {"type": "object", "dependentSchemas": {"a": None}},
    {"title": "\ud800", "description": "\ud800", "type": "string", "examples": ["\ud800"]},
    doubling(26),
    None,
    7,
    "string",
    [],
    True,
    False,
]


@pytest.mark.parametrize("schema", HOSTILE, ids=lambda schema: json.dumps(schema)[:50])
def test_a_hostile_schema_makes_a_form_within_bounds_that_keeps_the_value(schema: Any) -> None:
    for value in ("a", {"a": {"b": [1, None]}}, [1, "x"], None):
        node = compile_form(schema, value)
        assert sum(1 for _ in node.walk()) <= MAX_NODES + 1
        html = render_form(node)
        html.encode()
        parsed = parse_form(schema, posted(html))
        if not parsed.errors and "required" not in str(schema)[:200]:
            assert parsed.value == value
    render_form(compile_form(schema)).encode()


def test_a_schema_nested_three_thousand_deep_is_edited_as_json() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    node = compile_form(schema, {"a": 1})
    assert node.kind == "json"
    assert parse_form(schema, posted(render_form(node))).value == {"a": 1}


def test_a_value_nested_too_deep_for_fields_is_shown_as_json_from_there_on() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    value: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 6):
        value = {"child": value}
    node = compile_form(schema, value)
    assert [part.kind for part in node.walk()][-1] == "json"
    assert parse_form(schema, posted(render_form(node))).value == value


def test_a_list_longer_than_the_form_may_be_is_shown_as_json() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "string"}},
    }
    value = {"a": list(range(MAX_NODES + 5)), "b": "kept"}
    node = compile_form(schema, value)
    assert [part.kind for part in node.walk()] == ["object", "json", "text"]
    assert parse_form(schema, posted(render_form(node))).value == value


def test_a_posted_count_cannot_make_the_reader_work_without_end() -> None:
    schema = {"type": "array", "items": {"$ref": "#"}}  # ten lists in a list, each claiming 99,999 items
    parsed = parse_form(schema, {"arg.len:": ["99999"], **{f"arg.len:/{n}": ["99999"] for n in range(10)}})
    assert len(parsed.draft) == MAX_NODES
    assert sum(len(item) for item in parsed.draft if isinstance(item, list)) <= 2 * MAX_NODES


@pytest.mark.parametrize("name", ["hostile-names", "free-hostile-keys", "odd-texts"])
def test_hostile_names_and_texts_make_no_markup_of_their_own(name: str) -> None:
    case = CASES[name]
    errors = {f"/{key}": ["<script>alert(2)</script>"] for key in case.full}
    node = compile_form(case.schema, case.full, errors)
    for html in (render_form(node), render_errors(node), render_form(compile_form(case.schema))):
        tags = parsed_html(html).tags
        assert not {tag for tag, _ in tags} & {"script", "img", "style", "iframe"}
        assert not [key for _, given in tags for key in given if key.startswith(("on", "hx-on")) or key == "style"]
        assert "49" not in parsed_html(html).text


def test_no_field_name_can_meet_a_name_of_the_page() -> None:
    case = CASES["hostile-names"]
    html = render_form(compile_form(case.schema, case.full), prefix="arg")
    names = {given["name"] for _, given in parsed_html(html).tags if "name" in given}
    assert {name for name in names if not name.startswith(("arg:", "arg."))} <= {"_op"}


def test_ids_are_unique_and_every_label_and_description_finds_its_target() -> None:
    for case in CASES.values():
        tags = parsed_html(render_form(compile_form(case.schema, case.full, {"": ["a"]}), id_prefix="x-")).tags
        ids = [given["id"] for _, given in tags if "id" in given]
        assert len(ids) == len(set(ids)), case.name
        wanted = [given.get(key, "") for _, given in tags for key in ("for", "aria-describedby", "aria-labelledby")]
        assert {part for text in wanted for part in text.split()} <= set(ids), case.name


def test_every_control_has_a_label() -> None:
    for case in CASES.values():
        tags = parsed_html(render_form(compile_form(case.schema, case.full))).tags
        labelled = {given["for"] for tag, given in tags if tag == "label" and "for" in given}
        for tag, given in tags:
            if tag in {"textarea", "select"} or (tag == "input" and given.get("type", "text") == "text"):
                assert given.get("id") in labelled or given.get("aria-label"), (case.name, given)


def test_only_rendering_needs_django() -> None:
    modules = "compile, parse, operations, checker, nodes"
    code = (
        f"import sys\nfrom servers.schemas import {modules}\nprint([name for name in sys.modules if name == 'django'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
