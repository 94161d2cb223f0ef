"""What servers write instead of JSON Schema does not cost a tool its form, its checks or its agents."""

from typing import Any

import pytest

from servers.schemas.checker import check
from servers.schemas.compatibility import check_compatibility
from servers.schemas.compile import compile_form
from servers.schemas.input_schema import input_schema_of
from servers.schemas.nodes import JsonNode

OBJECT, TEXT = {"type": "object"}, {"type": "string"}
NULLS = {"type": "string", "enum": None, "pattern": None, "default": None, "description": None}
#: as written, as meant
WRITTEN: list[tuple[Any, Any]] = [
    (None, OBJECT),
    ({}, OBJECT),
    ({"type": None}, OBJECT),
    ({"type": "object", "properties": None, "required": None}, {"type": "object", "properties": {}}),
    ({"properties": {"a": NULLS}}, OBJECT | {"properties": {"a": {"type": "string", "default": None}}}),
    ({"type": "object", "properties": {"a": None, "b": True}}, OBJECT | {"properties": {"a": {}, "b": True}}),
    (
        {
            "type": "object",
            "properties": {"a": TEXT | {"required": True}, "b": TEXT | {"required": False}, "c": TEXT},
            "required": ["c"],
        },
        {"type": "object", "properties": {"a": TEXT, "b": TEXT, "c": TEXT}, "required": ["c", "a"]},
    ),
    (
        {"type": "object", "properties": {"a": TEXT | {"required": True}}, "required": True},
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
    ),
]


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_what_has_one_meaning_is_put_right(written: Any, meant: Any) -> None:
    before = repr(written)
    assert input_schema_of({"inputSchema": written}) == meant
    assert repr(written) == before
    assert input_schema_of({"inputSchema": meant}) == meant


@pytest.mark.parametrize("written", [written for written, _ in WRITTEN if written])
def test_it_becomes_a_form_and_arguments_are_checked(written: Any) -> None:
    schema = input_schema_of({"inputSchema": written})
    form = compile_form(schema)
    assert not any(isinstance(node, JsonNode) and "not valid" in node.reason for node in form.walk())
    assert not isinstance(form, JsonNode)
    assert not check(schema, {"a": 1}).unable


@pytest.mark.parametrize(("written", "meant"), WRITTEN)
def test_a_server_that_writes_it_properly_from_now_on_changes_nothing_for_agents(written: Any, meant: Any) -> None:
    for one, other in ((written, meant), (meant, written)):
        assert check_compatibility({"inputSchema": one}, {"inputSchema": other}).change in ("words", "compatible")
    assert check_compatibility({}, {"inputSchema": OBJECT}).change == "compatible"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "default": None}, "b": {"const": None}}},
        {"type": "object", "properties": {"a": {"type": "object", "required": ["x"]}}},
        {"type": "array"},
        [],
        True,
    ],
)
def test_what_is_a_schema_or_can_mean_nothing_stays_as_it_is(schema: Any) -> None:
    assert input_schema_of({"inputSchema": schema}) is schema
