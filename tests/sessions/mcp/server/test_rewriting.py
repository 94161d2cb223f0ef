"""URIs of resources are rewritten in every place that the protocol has, and nowhere else."""

from typing import Any

from sessions.mcp.server import rewriting

TEXT = {"type": "text", "text": "see s://old", "annotations": {"audience": ["user"]}}
LINK = {"type": "resource_link", "uri": "s://old", "name": "n"}
EMBEDDED = {
    "type": "resource",
    "resource": {"uri": "s://old", "text": "s://old", "_meta": {"ui": {"resourceUri": "s://old"}}},
}
META = {"ui": {"resourceUri": "s://old", "visibility": ["model"]}, "ui/resourceUri": "s://old", "other": "s://old"}
NEW_META = {
    "ui": {"resourceUri": "new:s://old", "visibility": ["model"]},
    "ui/resourceUri": "new:s://old",
    "other": "s://old",
}
NEW_LINK = LINK | {"uri": "new:s://old"}
NEW_EMBEDDED = {
    "type": "resource",
    "resource": {"uri": "new:s://old", "text": "s://old", "_meta": {"ui": {"resourceUri": "new:s://old"}}},
}


def new(uri: str) -> str:
    return f"new:{uri}"


def test_every_place_of_a_uri_is_rewritten() -> None:
    called: dict[str, Any] = {"content": [TEXT, LINK, EMBEDDED], "structuredContent": {"uri": "s://old"}, "_meta": META}
    assert rewriting.result(called, "tools/call", new) == {
        "content": [TEXT, NEW_LINK, NEW_EMBEDDED],
        "structuredContent": {"uri": "s://old"},
        "_meta": NEW_META,
    }
    read = {"contents": [{"uri": "s://old", "text": "s://old"}]}
    assert rewriting.result(read, "resources/read", new) == {"contents": [{"uri": "new:s://old", "text": "s://old"}]}
    prompt = {"messages": [{"role": "user", "content": LINK}, {"role": "user", "content": TEXT}]}
    assert rewriting.result(prompt, "prompts/get", new)["messages"][0]["content"] == NEW_LINK
    asked = {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [LINK, TEXT]}]}]}
    (message,) = rewriting.request(asked, new)["messages"]
    assert message["content"][0]["content"] == [NEW_LINK, TEXT]
    required = {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": "sampling/createMessage", "params": asked}},
    }
    found = rewriting.result(required, "tools/call", new)["inputRequests"]["q"]["params"]
    assert found == rewriting.request(asked, new)
    assert rewriting.definition({"name": "a", "_meta": META}, new, name="x__a") == {"name": "x__a", "_meta": NEW_META}


def test_what_is_malformed_passes_as_it_is() -> None:
    for odd in (
        {"content": "s://old"},
        {"content": [7, None]},
        {"content": [{"type": "resource"}]},
        {"_meta": 7},
        {"inputRequests": {"q": 7}},
    ):
        assert rewriting.result(odd, "tools/call", new) == odd
