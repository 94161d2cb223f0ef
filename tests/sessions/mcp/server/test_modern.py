"""Modern requests: the order of the checks, the headers, discovery, listening."""

import json

import pytest

from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.headers import mirrored_arguments
from sessions.mcp.core.jsonrpc import Notification
from sessions.mcp.core.versions import MODERN
from sessions.mcp.server import modern
from sessions.mcp.server.posted import Posted
from sessions.mcp.server.refusals import Refusal

NOW = MODERN[0]
P = "io.modelcontextprotocol/"


def meta(version=NOW, **more):
    return {P + "protocolVersion": version, P + "clientCapabilities": {}, **more}


def read(method="tools/list", params=None, headers=None, identity=7, version=NOW):
    params = {"_meta": meta(version)} if params is None else params
    default = {"mcp-protocol-version": version, "mcp-method": method}
    value = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
    return modern.read(Posted((value,), batch=False), default if headers is None else headers)


def refused(**given):
    with pytest.raises(Refusal) as found:
        read(**given)
    assert found.value.id == given.get("identity", 7)
    return found.value.status, found.value.code


def test_a_complete_request_is_read_with_what_it_declares():
    params = {
        "name": "é",
        "_meta": meta(**{P + "logLevel": "debug", P + "clientInfo": {"name": "x"}, "progressToken": 0}),
    }
    headers = {
        "mcp-protocol-version": NOW,
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?w6k=?=",
    }
    request = read("tools/call", params, headers, identity="1")
    assert (request.id, request.client, request.log_level) == ("1", {"name": "x"}, "debug")
    assert request.progress_token == 0
    assert request.progress_token is not None


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_missing_metadata_is_refused_before_missing_headers(missing):
    left = {name: value for name, value in meta().items() if name != P + missing}
    assert refused(params={"_meta": left}, headers={"mcp-protocol-version": NOW}) == (400, -32602)
    assert refused(params={}, headers={"mcp-protocol-version": NOW}, identity=0) == (400, -32602)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"mcp-protocol-version": NOW},
        {"mcp-method": "tools/list"},
        {"mcp-protocol-version": NOW, "mcp-method": "Tools/List"},
        {"mcp-protocol-version": "2025-11-25", "mcp-method": "tools/list"},
        {"mcp-protocol-version": NOW, "mcp-method": "tools/l\x7fist"},
        {"mcp-protocol-version": NOW, "mcp-method": "=?base64?%%%?="},
    ],
)
def test_headers_that_differ_from_the_body_are_refused(headers):
    assert refused(headers=headers) == (400, -32020)


def test_a_named_target_needs_its_header():
    headers = {"mcp-protocol-version": NOW, "mcp-method": "tools/call"}
    params = {"name": "echo", "_meta": meta()}
    assert refused(method="tools/call", params=params, headers=headers) == (400, -32020)
    assert refused(method="tools/call", params=params, headers={**headers, "mcp-name": "Echo"}) == (400, -32020)
    assert read("tools/call", params, {**headers, "mcp-name": " echo "}).params["name"] == "echo"


def test_an_unknown_version_is_refused_before_an_unknown_method_and_names_ours():
    with pytest.raises(Refusal) as found:
        read("initialize", version="1900-01-01")
    assert (found.value.status, found.value.code) == (400, -32022)
    assert found.value.data == {"supported": list(MODERN), "requested": "1900-01-01"}


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "nope"],
)
def test_methods_that_the_revision_does_not_have_are_not_found(method):
    assert refused(method=method) == (404, -32601)


def test_batches_and_responses_are_refused_and_notifications_accepted():
    with pytest.raises(Refusal):
        modern.read(Posted(({"jsonrpc": "2.0", "id": 1, "method": "x"},), batch=True), {})
    with pytest.raises(Refusal):
        modern.read(Posted(({"jsonrpc": "2.0", "id": 1, "result": {}},), batch=False), {})
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert isinstance(modern.read(Posted((notification,), batch=False), {}), Notification)


SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "region": {"type": "string", "x-mcp-header": "Region"},
    },
}


@pytest.mark.parametrize(
    ("arguments", "headers", "ok"),
    [
        ({"count": 42, "region": "eu"}, {"mcp-param-count": "42", "mcp-param-region": "eu"}, True),
        ({"count": 42}, {"mcp-param-count": "42.0"}, True),
        ({"region": "é"}, {"mcp-param-region": "=?base64?w6k=?="}, True),
        ({}, {}, True),
        ({"count": 42}, {"mcp-param-count": "43"}, False),
        ({"count": 42}, {"mcp-param-count": "4.2e1"}, True),
        ({"count": 42}, {"mcp-param-count": "4_2"}, False),
        ({"count": 42}, {"mcp-param-count": "=?base64?2aTZog==?="}, False),  # in Arabic digits
        ({"count": 2**53 - 1}, {"mcp-param-count": "9007199254740991.25"}, False),
        ({"count": 42}, {}, False),
        ({}, {"mcp-param-region": "eu"}, False),
        ({"region": "eu"}, {"mcp-param-region": "EU"}, False),
        ({"count": 2**53 + 1}, {"mcp-param-count": "9007199254740993"}, False),
    ],
)
def test_mirrored_arguments_must_match_and_integers_are_compared_as_numbers(arguments, headers, ok):
    mirrored = mirrored_arguments(SCHEMA)
    if ok:
        modern.check_mirrored(arguments, mirrored, headers)
        return
    with pytest.raises(Refusal) as found:
        modern.check_mirrored(arguments, mirrored, headers)
    assert found.value.code == -32020


def test_discovery_names_our_versions_and_may_not_be_shared():
    body = modern.discovery(Implementation("files", "1"), {"tools": {}}, "")
    assert body["supportedVersions"] == list(MODERN)
    assert (body["resultType"], body["cacheScope"], body["ttlMs"]) == ("complete", "private", 0)
    assert body["_meta"][P + "serverInfo"] == {"name": "files", "version": "1"}


def test_a_listen_request_grants_known_kinds_and_each_message_carries_its_id():
    asked = {"toolsListChanged": True, "promptsListChanged": "yes", "taskIds": ["t"], "resourceSubscriptions": ["a"]}
    listen = modern.listen_of({"notifications": asked})
    assert listen == modern.Listen(frozenset({"tools"}), ("a",))
    told = json.loads(modern.acknowledged("x", listen))
    assert told["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a"]}
    assert told["params"]["_meta"] == {P + "subscriptionId": "x"}
    assert json.loads(modern.listen_ended(0))["result"]["resultType"] == "complete"


@pytest.mark.parametrize("params", [{}, {"notifications": {"resourceSubscriptions": [1]}}])
def test_a_listen_request_without_a_usable_filter_is_refused(params):
    with pytest.raises(Refusal):
        modern.listen_of(params)
