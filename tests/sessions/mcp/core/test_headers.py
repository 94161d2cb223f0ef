"""Mirrored headers: their encoding, and which annotations a schema may have."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core.errors import InvalidRequest
from sessions.mcp.core.headers import BadAnnotation, Mirrored, encode_value, mirrored_arguments, request_headers


@pytest.mark.parametrize("value", ["plain", "", "a b", "~", "=?base64", "x=?base64?eA==?="])
def test_a_plain_value_goes_as_it_is(value: str) -> None:
    assert encode_value(value) == value


@pytest.mark.parametrize("value", ["Grüße", " x", "x ", "a\tb", "a\r\nb", "=?base64?eA==?=", "\x7f", "日本"])
def test_what_a_header_cannot_carry_is_encoded(value: str) -> None:
    encoded = encode_value(value)
    assert encoded.startswith("=?base64?")
    assert base64.b64decode(encoded[9:-2]).decode() == value


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest):
        encode_value(value)


def test_the_example_of_the_specification_is_met() -> None:
    assert encode_value("Grüße") == "=?base64?R3LDvMOfZQ==?="


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_value_can_break_out_of_its_header(value: str) -> None:
    encoded = encode_value(value)
    assert all(" " <= character <= "~" for character in encoded)
    assert encoded == encoded.strip()


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_annotated_arguments_are_found_at_any_depth_of_properties() -> None:
    inner = {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}}
    found = mirrored_arguments(schema(a={"type": "integer", "x-mcp-header": "A"}, deep=inner, plain={"type": "string"}))
    assert found == (Mirrored(("a",), "integer", "A"), Mirrored(("deep", "zone"), "string", "Zone"))


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb", None, 7, [], {}, True])
def test_a_name_that_is_no_token_excludes_the_tool(name: Any) -> None:
    with pytest.raises(BadAnnotation):
        mirrored_arguments(schema(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.parametrize("kind", ["number", "array", "object", None, ["string", "null"]])
def test_a_type_that_no_header_can_say_excludes_the_tool(kind: Any) -> None:
    with pytest.raises(BadAnnotation):
        mirrored_arguments(schema(a={"type": kind, "x-mcp-header": "A"}))


MARK = {"type": "string", "x-mcp-header": "A"}


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "object", "x-mcp-header": "A"},
        schema(a={"type": "array", "items": MARK}),
        schema(a={"anyOf": [MARK]}),
        {"allOf": [{"properties": {"a": MARK}}]},
        {"$defs": {"a": MARK}},
        {"patternProperties": {"^x": MARK}},
        {"additionalProperties": MARK},
        {"if": {"properties": {"a": MARK}}},
        schema(a=MARK, b={"type": "string", "x-mcp-header": "a"}),
    ],
)
def test_an_annotation_elsewhere_or_twice_excludes_the_tool(bad: dict[str, Any]) -> None:
    with pytest.raises(BadAnnotation):
        mirrored_arguments(bad)


def test_data_that_looks_like_an_annotation_is_no_annotation() -> None:
    example = {"x-mcp-header": "not here"}
    assert (
        mirrored_arguments(schema(a={"type": "object", "default": example, "enum": [example], "const": example})) == ()
    )


@pytest.mark.parametrize(
    ("kind", "value", "header"),
    [
        ("string", "eu-1", "eu-1"),
        ("string", "", ""),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("integer", 42, "42"),
        ("integer", 42.0, "42"),
        ("integer", -7, "-7"),
        ("string", 5, None),
        ("boolean", "true", None),
        ("integer", "5", None),
        ("integer", True, None),
        ("integer", 1.5, None),
        ("string", None, None),
    ],
)
def test_values_are_written_by_their_type_and_left_out_otherwise(kind: str, value: Any, header: str | None) -> None:
    mirrored = (Mirrored(("z",), kind, "Zone"),)
    headers = request_headers("tools/call", {"name": "t", "arguments": {"z": value}}, "2026-07-28", mirrored)
    assert headers.get("Mcp-Param-Zone") == header


def test_a_path_through_something_that_is_no_object_is_left_out() -> None:
    mirrored = (Mirrored(("a", "b"), "string", "B"),)
    for arguments in ({"a": 5}, {"a": None}, {}, None):
        headers = request_headers("tools/call", {"name": "t", "arguments": arguments}, "2026-07-28", mirrored)
        assert "Mcp-Param-B" not in headers


def test_an_integer_that_is_not_exact_everywhere_is_refused_here() -> None:
    with pytest.raises(InvalidRequest):
        request_headers(
            "tools/call", {"name": "t", "arguments": {"n": 2**53}}, "x", (Mirrored(("n",), "integer", "N"),)
        )


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "t"}, "t"),
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "file:///ü"}, encode_value("file:///ü")),
        ("tools/list", {"name": "t"}, None),
    ],
)
def test_the_name_header_repeats_what_the_method_names(method: str, params: dict[str, Any], name: str | None) -> None:
    assert request_headers(method, params, "2026-07-28").get("Mcp-Name") == name
