"""Results across eras, pages of lists, events and progress."""

import json

import pytest

from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers, streams

P = "io.modelcontextprotocol/"


def test_a_result_reaches_a_modern_agent_with_its_type_and_unknown_members():
    result = {"content": [], "structuredContent": [1], "x": {"$anchor": 1}, "_meta": {P + "serverInfo": {}, "k": 1}}
    told = answers.translated(result, "tools/call", Era.MODERN)
    assert told == {
        "content": [],
        "structuredContent": [1],
        "x": {"$anchor": 1},
        "_meta": {"k": 1},
        "resultType": "complete",
    }
    read = answers.translated({"contents": [], "ttlMs": -1, "cacheScope": "public"}, "resources/read", Era.MODERN)
    assert (read["ttlMs"], read["cacheScope"]) == (0, "private")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], [{"type": "text", "text": "[1,2]"}]),
        ([{"type": "text", "text": "own"}], [{"type": "text", "text": "own"}]),
    ],
)
def test_structure_that_legacy_cannot_express_stays_readable(content, told):
    result = {"resultType": "complete", "ttlMs": 5, "content": content, "structuredContent": [1, 2]}
    assert answers.translated(result, "tools/call", Era.LEGACY) == {"content": told}


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({}, []),
        ({"content": None}, []),
        ({"structuredContent": {"a": 1}}, [{"type": "text", "text": '{"a":1}'}]),
        ({"content": "plain"}, [{"type": "text", "text": "plain"}]),
        ({"content": {"type": "text", "text": "one"}}, [{"type": "text", "text": "one"}]),
        ({"content": ["a", 1, {"type": "text", "text": "b"}]}, ["a", "1", "b"]),
    ],
)
def test_a_tools_result_reaches_agents_with_a_list_of_blocks(era, result, content):
    blocks = [one if isinstance(one, dict) else {"type": "text", "text": one} for one in content]
    assert answers.translated(result, "tools/call", era)["content"] == blocks
    assert "content" not in answers.translated({}, "prompts/get", era)


def test_a_page_passes_definitions_on_as_they_are():
    odd = '{"name":"a","inputSchema":{"$anchor":"x", "if":{} }}'
    assert odd in answers.page("tools/list", [odd], "c", Era.LEGACY, 0)
    told = json.loads(answers.page("tools/list", [odd], "c", Era.MODERN, 60))
    assert (told["nextCursor"], told["ttlMs"], told["cacheScope"]) == ("c", 60, "private")
    assert "ttlMs" not in json.loads(answers.page("prompts/list", [], "", Era.LEGACY, 60))


@pytest.mark.parametrize("identity", ["1", 1, 0, "\u2028"])
def test_the_id_of_an_answer_keeps_its_type(identity):
    told = json.loads(answers.answer(identity, "{}"))
    assert told["id"] == identity
    assert type(told["id"]) is type(identity)


def test_capabilities_are_what_the_server_declared_and_we_relay():
    upstream = {"tools": {}, "resources": {"subscribe": True}, "logging": {}, "completions": {}, "tasks": {}}
    assert answers.offered(upstream) == {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    }


def test_an_event_is_one_line_of_data():
    assert streams.event(b'{"a":1}', "u:1") == b'event: message\nid: u:1\ndata: {"a":1}\n\n'
    assert streams.priming("u:0") == b"id: u:0\ndata: \n\n"


def test_progress_rises_bursts_and_is_flushed_before_the_result():
    relay = streams.ProgressRelay(0)
    sent = [relay.offer(value, 100, None, 0.0) for value in (0, 50, 50, 40, 100)]
    values = [json.loads(one)["params"] for one in sent if one]
    assert [value["progress"] for value in values] == [0, 50, 100]
    assert all(value["progressToken"] == 0 for value in values)
    for value in range(101, 140):
        relay.offer(value, None, "m", 0.0)
    assert relay.waits
    assert json.loads(relay.flush())["params"]["progress"] == 139
    assert relay.flush() is None
