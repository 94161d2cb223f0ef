"""A definition that clients could not read is corrected where it has one meaning."""

from typing import Any

import pytest

from sessions.mcp.server import definitions

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, OBJECT),
        ({}, OBJECT),
        ({"$anchor": "x", "anyOf": [{}]}, {"type": "object", "$anchor": "x", "anyOf": [{}]}),
        (
            {"type": "object", "properties": {"a": True, "b": False, "c": {}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {}, "b": {"not": {}}, "c": {}}, "required": ["a"]},
        ),
        ({"type": "object", "properties": None, "required": None, "$defs": None}, {"type": "object", "$defs": None}),
        ([], None),
        ({"type": "array"}, None),
        ({"type": "object", "properties": []}, None),
        ({"type": "object", "properties": {"a": 1}}, None),
        ({"type": "object", "required": "a"}, None),
    ],
)
def test_an_input_schema_becomes_that_of_an_object_or_its_tool_is_left_out(schema: Any, told: Any) -> None:
    found = definitions.mended({"name": "a", "inputSchema": schema}, tool=True)
    assert found == (None if told is None else {"name": "a", "inputSchema": told})


@pytest.mark.parametrize(
    "member",
    [
        {"title": None},
        {"description": 1},
        {"mimeType": []},
        {"size": "1"},
        {"size": True},
        {"size": 1.5},
        {"size": float("inf")},
        {"icons": [{"src": 1}]},
        {"icons": [{"src": "x", "theme": "blue"}]},
        {"arguments": [{"required": True}]},
        {"arguments": None},
        {"annotations": []},
        {"_meta": "x"},
        {"outputSchema": {"type": "object", "properties": {"a": True}}},
        {"outputSchema": None},
    ],
)
def test_an_optional_member_that_no_client_can_read_is_dropped(member: dict[str, Any]) -> None:
    assert definitions.mended({"uri": "a"} | member, tool=False) == {"uri": "a"}


def test_what_clients_can_read_stays_as_it_is() -> None:
    hints = {
        "readOnlyHint": True,
        "audience": ["user"],
        "priority": 0.5,
        "lastModified": "2026-01-01T00:00:00Z",
        "x": 1,
    }
    whole = {
        "name": "a",
        "title": "A",
        "size": 1,
        "icons": [{"src": "x", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
        "arguments": [{"name": "a", "title": "A", "description": "d", "required": False}],
        "annotations": hints,
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": True}},
        "outputSchema": {"type": "array", "items": True},
        "_meta": {"k": None},
        "unknown": None,
    }
    assert definitions.mended(whole, tool=True) == whole
    odd = {"name": "a", "annotations": {"priority": 2, "lastModified": "2026-01-01", "title": "T"}}
    assert definitions.mended(odd, tool=False) == {"name": "a", "annotations": {"title": "T"}}


@pytest.mark.parametrize(
    ("time", "read"),
    [
        ("2026-11-30T19:02:57Z", True),
        ("2026-11-30T19:02:57.123456+05:30", True),
        ("2026-11-30 19:02:57+00:00", False),
        ("20261130T190257Z", False),
        ("2026-11-30T19:02:57+0000", False),
        ("2026-11-30T19:02:57", False),
        ("2026-02-30T19:02:57Z", False),
        ("2026-11-30T24:00:00Z", False),
        (7, False),
    ],
)
def test_only_a_time_that_every_client_reads_stays(time: Any, read: bool) -> None:
    found = definitions.mended({"uri": "a", "annotations": {"lastModified": time}}, tool=False)
    assert found == {"uri": "a", "annotations": {"lastModified": time} if read else {}}
