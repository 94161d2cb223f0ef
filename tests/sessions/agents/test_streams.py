"""What comes between a request and its response, and what streams carry without one: log lines, announcements, updates."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.peers.peers import peer_command
from tests.sessions.agents.product import META, Agent, Product, in_background, messages_of, response_of, standing
from tests.sessions.host.harness import eventually
from tests.tools.stack import started_stack

pytestmark = pytest.mark.up
LOGS = {"name": "test_tool_with_logging", "arguments": {}}


@pytest.fixture(scope="module")
def token(product: Product) -> str:
    return product.token("list", "read", "call", label="streams")


def said(heard: list[dict[str, Any]]) -> list[Any]:
    return [one["params"]["data"] for one in heard if (one or {}).get("method") == "notifications/message"]


@pytest.mark.parametrize("slug", ["suite-legacy", "suite-modern"])
def test_a_legacy_session_gets_the_lines_of_its_own_calls_from_its_level_on(
    product: Product, token: str, slug: str
) -> None:
    agent, other = product.agent(token, slug), product.agent(token, slug)
    agent.initialize()
    other.initialize()
    assert said(messages_of(agent.post(agent.body("tools/call", LOGS)))) == []
    assert agent.ask("logging/setLevel", {"level": "debug"})["result"] == {}
    heard = messages_of(agent.post(agent.body("tools/call", LOGS)))
    assert said(heard) == ["Tool execution started", "Tool processing data", "Tool execution completed"]
    assert "result" in heard[-1]
    assert said(messages_of(other.post(other.body("tools/call", LOGS)))) == []
    assert agent.ask("logging/setLevel", {"level": "error"})["result"] == {}
    assert said(messages_of(agent.post(agent.body("tools/call", LOGS)))) == []
    assert agent.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


@pytest.mark.parametrize("slug", ["suite-legacy", "suite-modern"])
def test_a_modern_request_gets_lines_only_if_it_asks_for_them(product: Product, token: str, slug: str) -> None:
    agent = product.agent(token, slug)
    assert len(said(messages_of(agent.ask_modern("tools/call", LOGS, **{META + "logLevel": "info"})))) == 3
    assert said(messages_of(agent.ask_modern("tools/call", LOGS, **{META + "logLevel": "warning"}))) == []
    assert said(messages_of(agent.ask_modern("tools/call", LOGS))) == []


def test_a_server_without_a_log_has_no_level(product: Product, token: str) -> None:
    agent = product.agent(token, "asking-legacy")
    agent.initialize()
    has = "logging" in agent.initialize().json()["result"]["capabilities"]
    assert ("error" in agent.ask("logging/setLevel", {"level": "info"})) is not has


@pytest.mark.parametrize("slug", ["suite-legacy", "suite-modern"])
def test_an_announced_list_reaches_both_eras_without_a_difference_and_listing_announces_nothing(
    product: Product, token: str, slug: str
) -> None:
    old, new = product.agent(token, slug), product.agent(token, slug)
    old.initialize()
    body, headers = new.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    with standing(old) as heard, standing(new, body, **headers) as listened:
        eventually(lambda: listened)
        for _ in range(3):
            assert old.ask("tools/list")["result"]["tools"]
        old.ask("tools/call", {"name": "test_trigger_tool_change"})
        assert eventually(lambda: heard)[0]["method"] == "notifications/tools/list_changed"
        told = eventually(lambda: listened[1:])[0]
        assert told["params"]["_meta"][META + "subscriptionId"] == body["id"]
        old.ask("tools/call", {"name": "test_trigger_prompt_change"})
        assert eventually(lambda: heard[1:])[0]["method"] == "notifications/prompts/list_changed"
        assert len(listened) == 2  # it asked for tools only


def test_updates_go_to_an_open_post_stream_only_without_a_get_stream(product: Product) -> None:
    token = product.token("list", "read", "call", label="updates")  # streams of a token are few
    agent, other = product.agent(token, "legacy"), product.agent(token, "legacy")
    agent.initialize()
    other.initialize()
    uri = agent.ask("resources/list")["result"]["resources"][0]["uri"]
    assert agent.ask("resources/subscribe", {"uri": uri})["result"] == {}
    listening = "SELECT * FROM mcp_sessions_subscription WHERE uri = ? AND state = 'listening'"
    eventually(lambda: product.stack.rows(listening, uri))
    slow = {"name": "slow", "arguments": {"steps": 6, "delay": 0.25}, "_meta": {"progressToken": "p"}}

    def updated(heard: list[Any]) -> list[Any]:
        return [one for one in heard if (one or {}).get("method") == "notifications/resources/updated"]

    with standing(agent, agent.body("tools/call", slow)) as heard:
        eventually(lambda: heard)
        other.ask("tools/call", {"name": "touch", "arguments": {"uri": uri}})
        assert eventually(lambda: updated(heard))[0]["params"] == {"uri": uri}
        eventually(lambda: heard[-1] is None)
        assert "result" in heard[-2]
    with standing(agent) as got, standing(agent, agent.body("tools/call", slow)) as heard:
        eventually(lambda: heard)
        other.ask("tools/call", {"name": "touch", "arguments": {"uri": uri}})
        eventually(lambda: updated(got))
        eventually(lambda: heard[-1] is None)
        assert not updated(heard)
    assert agent.ask("resources/unsubscribe", {"uri": uri})["result"] == {}


def test_progress_of_a_batch_comes_on_one_stream_with_each_response(product: Product, token: str) -> None:
    agent = product.agent(token, "legacy")
    agent.initialize("2025-03-26")
    slow = {"name": "slow", "arguments": {"steps": 2, "delay": 0.05}, "_meta": {"progressToken": 7}}
    body = [agent.body("tools/call", slow), agent.body("ping"), agent.body("nothing/such")]
    answer = agent.post(body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    heard = messages_of(answer)
    assert sorted(one["id"] for one in heard if "id" in one) == [one["id"] for one in body]
    steps = [one["params"]["progress"] for one in heard if one.get("method") == "notifications/progress"]
    assert steps == [1, 2]
    assert heard[-1]["id"] == body[0]["id"]


def test_a_web_process_that_stops_ends_streams_in_an_orderly_way_and_cancels_nothing(product: Product) -> None:
    token = product.token("list", "read", "call", label="stopping")
    old, new = product.agent(token, "legacy"), product.agent(token, "modern")
    old.initialize()
    body, headers = new.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    slow, asked = new.modern("tools/call", {"name": "slow", "arguments": {"steps": 2, "delay": 1.0}})
    with standing(new, body, **headers) as listened:
        eventually(lambda: listened)
        before = len(product.calls(target="slow"))
        thread, answers = in_background(lambda: new.post(slow, **asked))
        eventually(lambda: product.calls(target="slow")[before:])
        (web,) = product.stack.part("mcpadmin.web.daphne")
        os.kill(web.pid, signal.SIGTERM)
        last = eventually(lambda: [one for one in listened if (one or {}).get("result")])[0]
        assert (last["id"], last["result"]["resultType"]) == (body["id"], "complete")
        thread.join(20)
    assert "done" in str(response_of(answers[0])["result"])
    row = eventually(lambda: [one for one in product.calls(target="slow")[before:] if one["finished_at"]])[0]
    assert row["state"] == "succeeded"
    eventually(lambda: _answers(old))


def test_a_call_that_runs_while_everything_stops_is_answered() -> None:
    with started_stack(administrator=True) as stack:
        product = Product(stack, Path())
        product.register("Ours", peer_command("demo"))
        agent = product.agent(product.token(), "ours")
        body, headers = agent.modern("tools/call", {"name": "countdown", "arguments": {"start": 2}})
        thread, answers = in_background(lambda: agent.post(body, **headers))
        eventually(lambda: product.calls(target="countdown", state="sent"))
        assert stack.stop() == 0
        thread.join(20)
    assert "result" in response_of(answers[0])


def _answers(agent: Agent) -> bool:
    try:
        return json.loads(agent.post(agent.body("ping")).text)["result"] == {}
    except Exception:  # the process is being started again
        return False
