"""A bundle may describe a tool otherwise than its server and hide parameters; what the server requires is never hidden."""

from typing import Any

import pytest

from servers.bundles import overrides
from servers.bundles.overrides import NONE, Override

TOOL: dict[str, Any] = {
    "name": "search",
    "description": "Searches.",
    "inputSchema": {"type": "object", "properties": {"query": {}, "limit": {}, "debug": {}}, "required": ["query"]},
}


def test_the_description_is_replaced_and_optional_parameters_go() -> None:
    found = overrides.applied(TOOL, Override("Finds pages. Use it first.", ("debug", "gone", "query")))
    assert found["description"] == "Finds pages. Use it first."
    assert list(found["inputSchema"]["properties"]) == ["query", "limit"]
    assert found["inputSchema"]["required"] == ["query"]
    assert list(TOOL["inputSchema"]["properties"]) == ["query", "limit", "debug"]


def test_an_argument_that_says_itself_that_it_is_required_is_not_left_out() -> None:
    tool = TOOL | {"inputSchema": {"type": "object", "properties": {"query": {"required": True}, "limit": {}}}}
    assert overrides.parameters(tool) == {"query": True, "limit": False}
    assert overrides.applied(tool, Override("", ("limit", "query")))["inputSchema"]["properties"] == {
        "query": {"required": True}
    }


def test_nothing_changes_without_an_override() -> None:
    assert overrides.applied(TOOL, NONE) == TOOL
    assert (NONE.digest, NONE.value()) == ("", {})


def test_each_change_has_a_digest_of_its_own() -> None:
    ones = [Override("a"), Override("b"), Override("", ("a",)), Override("", ("b",)), Override("a", ("a",))]
    assert len({one.digest for one in ones}) == len(ones)
    assert all(overrides.stored({"search": one.value()}, "search") == one for one in ones)


@pytest.mark.parametrize("value", [None, [], "text", {"description": 7, "hidden": "all"}, {"hidden": [1, None]}])
def test_what_is_no_override_changes_nothing(value: Any) -> None:
    assert not overrides.stored({"search": value}, "search")


@pytest.mark.parametrize("schema", [None, [], {}, {"properties": []}, {"$ref": "#/$defs/input"}])
def test_a_schema_without_properties_hides_nothing(schema: Any) -> None:
    tool = TOOL | {"inputSchema": schema}
    assert overrides.applied(tool, Override("", ("debug",))) == tool
