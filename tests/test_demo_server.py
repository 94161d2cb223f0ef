"""The demo server works over real pipes: checked line by line, and with the official SDK's client."""

import json
import struct
import subprocess
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from tests.peers import peer_python

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "mcpadmin.demo_server"]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Conversation:
    """Lines to and from one demo server. `heard` keeps the notifications that preceded a response."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.heard: list[dict[str, Any]] = []
        self._next_id = 0

    def write(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}} | more).encode())

    def read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, f"the server ended: {self.process.stderr.read().decode()}"
        return json.loads(line)

    def answer_to(self, request_id: Any) -> dict[str, Any]:
        while (message := self.read()).get("id", object()) != request_id:
            self.heard.append(message)
        return message

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the whole response."""
        self._next_id += 1
        self.send(method, params, id=self._next_id)
        return self.answer_to(self._next_id)

    def ask_modern(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        return self.ask(method, (params or {}) | {"_meta": META | meta})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        client = {"name": "test", "version": "1"}
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})
        self.send("notifications/initialized")
        return answer["result"]

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


@pytest.fixture
def conversation() -> Iterator[Conversation]:
    started = Conversation()
    yield started
    started.close()


@pytest.fixture
def legacy(conversation: Conversation) -> Conversation:
    conversation.initialize()
    return conversation


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_legacy_revision_is_granted_when_asked_for(conversation: Conversation, version: str) -> None:
    assert conversation.initialize(version)["protocolVersion"] == version


def test_an_unknown_revision_is_answered_with_the_newest_legacy_one(conversation: Conversation) -> None:
    assert conversation.initialize("2031-01-01")["protocolVersion"] == "2025-11-25"


def test_a_request_before_the_handshake_is_refused(conversation: Conversation) -> None:
    assert conversation.ask("tools/list")["error"]["code"] == -32600


def test_discover_names_the_modern_revision_and_who_answers(conversation: Conversation) -> None:
    result = conversation.ask_modern("server/discover")["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcpadmin-demo"


def test_a_modern_revision_that_is_not_spoken_is_refused_with_those_that_are(conversation: Conversation) -> None:
    future = {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    error = conversation.ask_modern("tools/list", **future)["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2027-01-01"})


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
def test_a_modern_client_finds_no_legacy_methods(conversation: Conversation, method: str) -> None:
    assert conversation.ask_modern(method, {"uri": "demo://clock", "level": "info"})["error"]["code"] == -32601


def test_a_ping_is_answered_even_before_the_handshake(conversation: Conversation) -> None:
    assert conversation.ask("ping")["result"] == {}


def test_every_answer_of_a_list_says_how_long_it_may_be_kept_to_modern_clients_only(conversation: Conversation) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        result = conversation.ask_modern(method)["result"]
        assert result["ttlMs"] > 0
        assert result["cacheScope"] == "public"
    conversation.initialize()
    assert "ttlMs" not in conversation.ask("tools/list")["result"]


def test_all_schemas_are_valid_and_results_fit_them(legacy: Conversation) -> None:
    tools = {tool["name"]: tool for tool in legacy.ask("tools/list")["result"]["tools"]}
    for tool in tools.values():
        validator_for(tool["inputSchema"])
    for name, arguments in (("add", {"a": 1.5, "b": 2}), ("search_notes", {"tags": ["garden"], "with_text": False})):
        result = legacy.call(name, **arguments)
        validator_for(tools[name]["outputSchema"]).validate(result["structuredContent"])
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_annotations_tell_the_destructive_tool_from_the_reading_ones(legacy: Conversation) -> None:
    tools = {tool["name"]: tool["annotations"] for tool in legacy.ask("tools/list")["result"]["tools"]}
    assert [name for name, hints in tools.items() if hints.get("destructiveHint")] == ["forget_notes"]
    assert tools["search_notes"]["readOnlyHint"] is True


def test_a_greeting_survives_any_script(legacy: Conversation) -> None:
    assert legacy.call("greet", name="世界 \u2028", language="japanese")["content"][0]["text"] == "こんにちは, 世界!"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("greet", {}, "name is missing"),
        ("greet", {"name": 5}, "name must be text"),
        ("greet", {"name": "a", "language": "klingon"}, "one of english"),
        ("greet", {"name": "a", "volume": 3}, "Unknown argument: volume"),
        ("add", {"a": True, "b": 1}, "a must be a number"),
        ("countdown", {"start": 0}, "from 1 to 60"),
        ("countdown", {"start": 1.5}, "whole number"),
        ("search_notes", {"tags": ["nonsense"]}, "tags may contain"),
        ("search_notes", {"created": {"since": "2025"}}, "created.since"),
        ("search_notes", {"with_text": "yes"}, "true or false"),
        ("fail_on_purpose", {"message": "as asked"}, "as asked"),
    ],
)
def test_a_tool_that_cannot_do_it_says_why_in_a_result_with_is_error(
    legacy: Conversation, tool: str, arguments: dict[str, Any], words: str
) -> None:
    result = legacy.call(tool, **arguments)
    assert result["isError"] is True
    assert words in result["content"][0]["text"]


def test_an_unknown_tool_is_a_json_rpc_error(legacy: Conversation) -> None:
    assert legacy.ask("tools/call", {"name": "nope"})["error"]["code"] == -32602


def test_progress_rises_to_its_total_when_a_token_was_given(legacy: Conversation) -> None:
    arguments = {"start": 3, "pause": 0.01}
    legacy.ask("tools/call", {"name": "countdown", "arguments": arguments, "_meta": {"progressToken": "t"}})
    told = [heard["params"] for heard in legacy.heard if heard["method"] == "notifications/progress"]
    assert [(step["progressToken"], step["progress"], step["total"]) for step in told] == [
        ("t", 1, 3), ("t", 2, 3), ("t", 3, 3),
    ]  # fmt: skip


def test_no_progress_is_reported_without_a_token(legacy: Conversation) -> None:
    legacy.call("countdown", start=2, pause=0.01)
    assert [heard for heard in legacy.heard if heard["method"] == "notifications/progress"] == []


def test_a_cancelled_call_gets_no_answer_and_stops(legacy: Conversation) -> None:
    meta = {"progressToken": 7}
    legacy.send(
        "tools/call", {"name": "countdown", "arguments": {"start": 60, "pause": 0.02}, "_meta": meta}, id="slow"
    )
    while legacy.read().get("method") != "notifications/progress":
        pass  # the first progress proves that the call runs
    legacy.send("notifications/cancelled", {"requestId": "slow"})
    # Steps of the cancelled call may have run before the cancellation arrived, but none runs during the second call.
    for _ in range(2):
        legacy.heard.clear()
        legacy.call("countdown", start=10, pause=0.03)
    of_cancelled = ("slow", "notifications/progress")
    assert [one for one in legacy.heard if one.get("id") in of_cancelled or one.get("method") in of_cancelled] == []


def test_a_slow_call_holds_up_no_other_request(legacy: Conversation) -> None:
    legacy.send("tools/call", {"name": "countdown", "arguments": {"start": 60, "pause": 1}}, id="slow")
    assert legacy.call("add", a=1, b=1)["structuredContent"]["sum"] == 2
    assert [heard for heard in legacy.heard if heard.get("id") == "slow"] == []


def test_an_id_that_is_in_use_is_refused(legacy: Conversation) -> None:
    for _ in range(2):
        legacy.send("tools/call", {"name": "countdown", "arguments": {"start": 60, "pause": 1}}, id="twin")
    assert legacy.answer_to("twin")["error"]["code"] == -32600


def test_the_drawing_is_a_real_png_of_the_size_asked_for(legacy: Conversation) -> None:
    block = legacy.call("draw", shape="stripes", colour="red", size=20)["content"][0]
    data = b64decode(block["data"])
    assert block["mimeType"] == "image/png"
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (20, 20)
    length = struct.unpack(">I", data[33:37])[0]
    assert data[37:41] == b"IDAT"
    assert len(zlib.decompress(data[41 : 41 + length])) == 20 * (1 + 3 * 20)


def test_a_search_narrows_by_words_tags_and_dates(legacy: Conversation) -> None:
    def names(**arguments: Any) -> list[str]:
        return [note["name"] for note in legacy.call("search_notes", **arguments)["structuredContent"]["notes"]]

    assert names(words="water low") == ["tomatoes"]
    assert names(tags=["garden"]) == ["compost", "tomatoes"]
    assert names(tags=["garden"], sort="title", limit=1) == ["compost"]
    assert names(created={"after": "2025-06-01", "before": "2025-09-30"}) == ["standup", "lisbon"]


def test_links_are_offered_only_to_revisions_that_know_them(conversation: Conversation) -> None:
    kinds = {}
    for version in ("2025-03-26", "2025-06-18"):
        conversation.initialize(version)
        kinds[version] = {block["type"] for block in conversation.call("search_notes")["content"]}
    assert kinds == {"2025-03-26": {"text"}, "2025-06-18": {"text", "resource_link"}}


def test_forgotten_notes_are_gone_for_searches_readings_and_completions(legacy: Conversation) -> None:
    assert "2 notes" in legacy.call("forget_notes", tag="garden")["content"][0]["text"]
    assert legacy.call("search_notes", tags=["garden"])["structuredContent"]["total"] == 0
    assert legacy.ask("resources/read", {"uri": "demo://notes/tomatoes"})["error"]["code"] == -32002
    ref = {"type": "ref/prompt", "name": "summarise"}
    completed = legacy.ask("completion/complete", {"ref": ref, "argument": {"name": "note", "value": "tom"}})
    assert completed["result"]["completion"]["values"] == []


def test_a_missing_resource_has_the_error_code_of_the_era(conversation: Conversation) -> None:
    uri = {"uri": "demo://notes/nobody"}
    assert conversation.ask_modern("resources/read", uri)["error"]["code"] == -32602
    conversation.initialize()
    assert conversation.ask("resources/read", uri)["error"]["code"] == -32002


def test_a_legacy_subscriber_learns_that_the_clock_changed_and_reads_another_time(legacy: Conversation) -> None:
    def clock() -> str:
        return legacy.ask("resources/read", {"uri": "demo://clock"})["result"]["contents"][0]["text"]

    before = clock()
    legacy.ask("resources/subscribe", {"uri": "demo://clock"})
    heard = legacy.read()
    assert (heard["method"], heard["params"]["uri"]) == ("notifications/resources/updated", "demo://clock")
    assert clock() != before


def test_a_subscription_to_what_never_changes_is_refused(legacy: Conversation) -> None:
    assert legacy.ask("resources/subscribe", {"uri": "demo://readme"})["error"]["code"] == -32602


def test_a_modern_listen_is_acknowledged_with_what_it_will_tell_and_then_tells_it(conversation: Conversation) -> None:
    wanted = {"resourceSubscriptions": ["demo://clock", "demo://readme"], "toolsListChanged": True}
    conversation.send("subscriptions/listen", {"notifications": wanted, "_meta": META}, id="listen-1")
    tag = {"io.modelcontextprotocol/subscriptionId": "listen-1"}
    acknowledged, updated = conversation.read(), conversation.read()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"] == {"notifications": {"resourceSubscriptions": ["demo://clock"]}, "_meta": tag}
    assert updated["params"] == {"uri": "demo://clock", "_meta": tag}


def test_log_messages_come_from_the_level_that_a_legacy_client_set(legacy: Conversation) -> None:
    legacy.ask("logging/setLevel", {"level": "error"})
    legacy.call("greet", name="Ada")
    legacy.call("fail_on_purpose", message="loud")
    assert [heard["params"] for heard in legacy.heard] == [
        {"level": "error", "logger": "fail_on_purpose", "data": "loud"}
    ]
    assert legacy.ask("logging/setLevel", {"level": "shouting"})["error"]["code"] == -32602


def test_a_modern_client_hears_log_messages_only_when_its_request_asks(conversation: Conversation) -> None:
    greet = {"name": "greet", "arguments": {"name": "Ada"}}
    conversation.ask_modern("tools/call", greet)
    assert conversation.heard == []
    conversation.ask_modern("tools/call", greet, **{"io.modelcontextprotocol/logLevel": "info"})
    assert [heard["params"]["logger"] for heard in conversation.heard] == ["greet"]


def test_a_prompt_without_its_required_argument_is_refused(legacy: Conversation) -> None:
    assert "note" in legacy.ask("prompts/get", {"name": "summarise"})["error"]["message"]
    assert legacy.ask("prompts/get", {"name": "explain", "arguments": {"topic": "tools"}})["result"]["messages"]


def test_an_invalid_cursor_is_refused(legacy: Conversation) -> None:
    assert legacy.ask("tools/list", {"cursor": "made-up"})["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"rubbish", -32700),
        (b"[" * 100_000, -32700),
        (b"\xff\xfe", -32700),
        (b"42", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":3,"method":["ping"]}', -32600),
        (b'{"jsonrpc":"2.0","id":3,"method":"tools/list","params":[1]}', -32600),
        (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"greet","arguments":[]}}', -32602),
        (b'{"jsonrpc":"2.0","id":3,"method":"' + b"x" * (8 * 1024 * 1024) + b'"}', -32600),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_and_the_conversation_goes_on(legacy: Conversation, line: bytes, code: int) -> None:
    legacy.write(line)
    assert legacy.read()["error"]["code"] == code
    assert legacy.ask("ping")["result"] == {}


def test_members_of_a_batch_are_served_one_by_one(conversation: Conversation) -> None:
    conversation.initialize("2025-03-26")
    batch = [{"jsonrpc": "2.0", "id": name, "method": "ping"} for name in ("a", "b")]
    conversation.write(json.dumps(batch).encode())
    assert [conversation.read()["id"], conversation.read()["id"]] == ["a", "b"]


def test_it_ends_by_itself_when_its_input_ends_even_with_a_call_under_way(legacy: Conversation) -> None:
    legacy.send("tools/call", {"name": "countdown", "arguments": {"start": 60, "pause": 5}}, id="slow")
    legacy.process.stdin.close()
    assert legacy.process.wait(5) == 0
    assert legacy.process.stderr.read() == b""


def test_it_starts_without_django_asyncio_or_anything_of_ours() -> None:
    code = "import sys, mcpadmin.demo_server.__main__; print([n for n in sys.modules if n.partition('.')[0] in %r])"
    unwanted = ("django", "celery", "asyncio", "httpx", "servers", "sessions", "structlog")
    done = subprocess.run(
        [sys.executable, "-c", code % (unwanted,)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_official_client_understands_all_of_it(mode: str, version: str) -> None:
    judge = [str(peer_python("sdk2")), str(ROOT / "tests/peers/judge.py"), mode, *COMMAND]
    done = subprocess.run(judge, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["version"] == version
    assert verdict["tools"][:2] == ["greet", "add"]
    assert (verdict["sum"], verdict["slow"], verdict["failed"]) == (5, "Lift-off!", True)
    assert verdict["progress"] == [[1, 3], [2, 3], [3, 3]]
    assert verdict["links"] == ["demo://notes/compost", "demo://notes/tomatoes"]
    assert verdict["prompt"] == ["text", "resource"]
    assert verdict["completions"] == [["bullet points"], ["sourdough"]]
    assert verdict["updated"] == "demo://clock"
