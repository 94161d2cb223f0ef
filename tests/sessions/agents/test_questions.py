"""What a server asks during a call of an agent: to the agent if it can answer, to people otherwise. Four cases of
eras."""

from contextlib import ExitStack
from typing import Any

import pytest

from tests.sessions.agents.product import META, Agent, Product, response_of, standing
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up
PIZZA = {"name": "pizza", "arguments": {}}
FORM = {"elicitation": {"form": {}}}
ANSWER = {"action": "accept", "content": {"name": "Ann", "count": 3}}
SERVERS = ["asking-legacy", "asking-modern"]


@pytest.fixture(scope="module")
def token(product: Product) -> str:
    return product.token("list", "read", "call", "sampling", "inbox")


def open_questions(product: Product) -> list[Any]:
    return product.stack.rows("SELECT * FROM mcp_sessions_question WHERE state = 'open'")


@pytest.mark.parametrize("slug", SERVERS)
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_legacy_agent_is_asked_on_the_stream_of_its_call(
    product: Product, token: str, slug: str, version: str
) -> None:
    agent = product.agent(token, slug)
    agent.initialize(version, **({"elicitation": {}} if version == "2025-06-18" else FORM))
    with standing(agent, agent.body("tools/call", PIZZA)) as heard:
        asked = eventually(lambda: heard)[0]
        assert asked["method"] == "elicitation/create"
        properties = asked["params"]["requestedSchema"]["properties"]
        assert properties["size"]["enumNames"] == ["Small", "Large"]
        assert properties["size"]["default"] == "l"
        assert agent.post({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER}).status_code == 202
        last = eventually(lambda: heard[1:])[0]
    assert "count=3" in last["result"]["content"][0]["text"]
    assert not open_questions(product)


@pytest.mark.parametrize("slug", SERVERS)
def test_a_modern_agent_gets_the_call_back_and_its_retry_continues_the_same_call(
    product: Product, token: str, slug: str
) -> None:
    agent = product.agent(token, slug)
    before = len(product.calls(target="pizza"))
    first = response_of(agent.ask_modern("tools/call", PIZZA, **{META + "clientCapabilities": FORM}))["result"]
    assert first["resultType"] == "input_required"
    ((key, asked),) = first["inputRequests"].items()
    assert asked["method"] == "elicitation/create"
    again = {"requestState": first["requestState"], "inputResponses": {"other": ANSWER}}
    missing = response_of(agent.ask_modern("tools/call", PIZZA | again, **{META + "clientCapabilities": FORM}))[
        "result"
    ]
    assert list(missing["inputRequests"]) == [key]
    for wrong in (7, None, {"action": "accept", "content": {"count": "many"}}):
        bad = {"requestState": first["requestState"], "inputResponses": {key: wrong}}
        if wrong is not None:
            refused = response_of(agent.ask_modern("tools/call", PIZZA | bad, **{META + "clientCapabilities": FORM}))
            assert refused["error"]["code"] == -32602
    assert missing["requestState"] != first["requestState"]
    retry = {"requestState": first["requestState"], "inputResponses": {key: ANSWER}}
    last = response_of(agent.ask_modern("tools/call", PIZZA | retry, **{META + "clientCapabilities": FORM}))["result"]
    assert (last["resultType"], "count=3" in last["content"][0]["text"]) == ("complete", True)
    used = response_of(agent.ask_modern("tools/call", PIZZA | retry, **{META + "clientCapabilities": FORM}))["result"]
    assert used["content"] == last["content"]
    assert len(product.calls(target="pizza")) == before + 1


def test_a_state_that_is_altered_foreign_or_of_another_request_sends_nothing(product: Product, token: str) -> None:
    agent = product.agent(token, "asking-legacy")
    meta = {META + "clientCapabilities": FORM}
    first = response_of(agent.ask_modern("tools/call", PIZZA, **meta))["result"]
    state, (key,) = first["requestState"], first["inputRequests"]
    before = len(product.calls())
    answers = {"inputResponses": {key: ANSWER}}
    stranger = product.agent(product.token("list", "call", "inbox"), "asking-legacy")
    tries = [
        (agent, PIZZA | answers | {"requestState": state[:-2] + "xx"}),
        (agent, PIZZA | answers | {"requestState": ""}),
        (agent, PIZZA | answers),
        (agent, PIZZA | {"arguments": {"extra": 1}} | answers | {"requestState": state}),
        (stranger, PIZZA | answers | {"requestState": state}),
        (agent, PIZZA | {"inputResponses": None, "requestState": state}),
    ]
    for one, params in tries:
        assert response_of(one.ask_modern("tools/call", params, **meta))["error"]["code"] == -32602
    assert len(product.calls()) == before
    assert len(open_questions(product)) == 1
    done = response_of(agent.ask_modern("tools/call", PIZZA | answers | {"requestState": state}, **meta))["result"]
    assert done["resultType"] == "complete"


ANSWERED = """
from django.contrib.auth import get_user_model
from servers.audit.record import Actor
from sessions.calls.arguments import SubmittedArguments
from sessions.inbox import answering
from sessions.models import Question
user = get_user_model().objects.get(username="ada")
print(answering.answer(Actor.of_user(user), user, Question.objects.get(state="open"), "accept", SubmittedArguments(value={content})))
"""


@pytest.mark.parametrize("slug", SERVERS)
def test_an_agent_that_cannot_answer_waits_for_a_person(product: Product, token: str, slug: str) -> None:
    agent = product.agent(token, slug)
    agent.initialize()
    with standing(agent, agent.body("tools/call", PIZZA | {"_meta": {"progressToken": 1}})) as heard:
        eventually(lambda: open_questions(product))
        product.stack.shell(ANSWERED.format(content=ANSWER["content"]))
        last = eventually(lambda: [one for one in heard if "result" in (one or {})])[0]
    assert "count=3" in last["result"]["content"][0]["text"]


def test_an_agent_answers_for_a_model_only_with_the_scope(product: Product, token: str) -> None:
    model = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m", "stopReason": "endTurn"}
    agent: Agent = product.agent(token, "legacy")
    agent.initialize(sampling={})
    with standing(agent, agent.body("tools/call", {"name": "ask_model", "arguments": {}})) as heard:
        asked = eventually(lambda: heard)[0]
        assert asked["method"] == "sampling/createMessage"
        agent.post({"jsonrpc": "2.0", "id": asked["id"], "result": model})
        assert "m says: four" in eventually(lambda: heard[1:])[0]["result"]["content"][0]["text"]
    without = product.agent(product.token("list", "call", "inbox"), "legacy")
    without.initialize(sampling={})
    with standing(without, without.body("tools/call", {"name": "ask_model", "_meta": {"progressToken": 1}})) as heard:
        eventually(lambda: open_questions(product))
        assert heard == []
        product.stack.shell(ANSWERED.format(content=model))
        assert "m says: four" in eventually(lambda: heard)[0]["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("slug", "tool", "wrong", "heard_upstream"),
    [
        ("legacy", "ask_model", {"text": "four"}, "answer was not valid"),
        ("asking-legacy", "pizza", {"action": "accept", "content": {"count": "many"}}, "cancel"),
        ("asking-legacy", "pizza", {"content": {}}, "cancel"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_is_no_decision_of_a_person(
    product: Product, token: str, slug: str, tool: str, wrong: Any, heard_upstream: str
) -> None:
    agent = product.agent(token, slug)
    agent.initialize(sampling={}, **FORM)
    with standing(agent, agent.body("tools/call", {"name": tool, "arguments": {}})) as heard:
        asked = eventually(lambda: heard)[0]
        refused = agent.post({"jsonrpc": "2.0", "id": asked["id"], "result": wrong})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)
        assert heard_upstream in str(eventually(lambda: heard[1:])[0])
    question = product.stack.rows("SELECT * FROM mcp_sessions_question ORDER BY id DESC LIMIT 1")[0]
    assert (question["state"], question["answered_by"]) == ("cancelled", "")
    assert question["detail"].startswith("The agent's answer was not valid.")


def test_an_answer_of_another_session_settles_nothing(product: Product, token: str) -> None:
    agent, other = product.agent(token, "asking-legacy"), product.agent(token, "asking-legacy")
    agent.initialize(**FORM)
    other.initialize(**FORM)
    with standing(agent, agent.body("tools/call", PIZZA)) as heard:
        asked = eventually(lambda: heard)[0]
        assert other.post({"jsonrpc": "2.0", "id": asked["id"], "result": ANSWER}).status_code == 202
        assert len(open_questions(product)) == 1
        agent.post({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}})
        assert "cancel" in eventually(lambda: heard[1:])[0]["result"]["content"][0]["text"]


# --- a page to be visited before the call (-32042) ----------------------------------------------------------------------
URL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
PAGE = "https://pizza.example.com/pay?order=7"


@pytest.fixture(scope="module")
def alone(product: Product) -> str:
    """A token whose requests wait for no people."""
    return product.token("list", "read", "call")


def unlock(key: str) -> dict[str, Any]:
    return {"name": "unlock", "arguments": {"key": key}}


COMPLETE = "notifications/elicitation/complete"


def told(heard: list[Any]) -> list[str]:
    """The elicitation ids of the visits that are complete."""
    return [one["params"]["elicitationId"] for one in heard if (one or {}).get("method") == COMPLETE]


@pytest.mark.parametrize(("version", "declared"), [("2025-06-18", {}), ("2025-11-25", FORM), ("2025-11-25", URL)])
def test_a_legacy_agent_gets_the_error_that_names_the_page_and_calls_again_after_the_visit(
    product: Product, alone: str, version: str, declared: dict[str, Any]
) -> None:
    agent = product.agent(alone, "asking-legacy")
    agent.initialize(version, **declared)
    key = f"{version} {declared}"
    error = agent.ask("tools/call", unlock(key))["error"]
    assert (error["code"], error["data"]["elicitations"][0]["url"]) == (-32042, PAGE)
    assert not open_questions(product)
    assert agent.ask("tools/call", unlock(key))["result"]["content"][0]["text"] == "unlocked"


def test_a_modern_agent_without_url_mode_gets_the_error_that_names_the_page(product: Product, alone: str) -> None:
    agent = product.agent(alone, "asking-legacy")
    meta = {META + "clientCapabilities": FORM}
    error = response_of(agent.ask_modern("tools/call", unlock("no url mode"), **meta))["error"]
    assert (error["code"], error["data"]["elicitations"][0]["url"]) == (-32042, PAGE)


def test_a_modern_agent_with_url_mode_is_asked_to_visit_the_page_and_its_retry_continues_the_call(
    product: Product, alone: str
) -> None:
    agent, meta, call = product.agent(alone, "asking-legacy"), {META + "clientCapabilities": URL}, unlock("modern")
    before = len(product.calls(target="unlock"))
    first = response_of(agent.ask_modern("tools/call", call, **meta))["result"]
    ((key, asked),) = first["inputRequests"].items()
    assert (asked["method"], asked["params"]["mode"], asked["params"]["url"]) == ("elicitation/create", "url", PAGE)
    retry = {"requestState": first["requestState"], "inputResponses": {key: {"action": "accept"}}}
    last = response_of(agent.ask_modern("tools/call", call | retry, **meta))["result"]
    assert (last["resultType"], last["content"][0]["text"]) == ("complete", "unlocked")
    assert len(product.calls(target="unlock")) == before + 1


def test_an_agent_that_declines_the_visit_learns_that_the_tool_did_not_run(product: Product, alone: str) -> None:
    agent, meta, call = product.agent(alone, "asking-legacy"), {META + "clientCapabilities": URL}, unlock("declined")
    first = response_of(agent.ask_modern("tools/call", call, **meta))["result"]
    (key,) = first["inputRequests"]
    retry = {"requestState": first["requestState"], "inputResponses": {key: {"action": "decline"}}}
    last = response_of(agent.ask_modern("tools/call", call | retry, **meta))["result"]
    assert last["isError"]
    assert "did not run" in last["content"][0]["text"]
    assert last["_meta"]["mcpadmin/mayHaveRun"] is False


def test_a_visit_that_people_may_make_too_is_asked_of_a_legacy_agent_on_its_stream(
    product: Product, token: str
) -> None:
    agent = product.agent(token, "asking-legacy")
    agent.initialize(**URL)
    with standing(agent, agent.body("tools/call", unlock("inbox"))) as heard:
        asked = eventually(lambda: heard)[0]
        assert (asked["method"], asked["params"]["url"]) == ("elicitation/create", PAGE)
        assert len(open_questions(product)) == 1
        agent.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
        last = eventually(lambda: [one for one in heard if "result" in (one or {})])[0]
        assert last["result"]["content"][0]["text"] == "unlocked"
        assert told(heard) == ["unlock-inbox"]


def test_a_legacy_agent_learns_on_the_stream_of_its_call_that_the_visit_is_complete(
    product: Product, token: str
) -> None:
    agent = product.agent(token, "asking-legacy")
    agent.initialize(**URL)
    with standing(agent, agent.body("tools/call", {"name": "visit", "arguments": {}})) as heard:
        asked = eventually(lambda: heard)[0]
        agent.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
        last = eventually(lambda: [one for one in heard if "result" in (one or {})])[0]
    assert last["result"]["content"][0]["text"] == "accept"
    assert told(heard) == [asked["params"]["elicitationId"]] == ["order-7"]


def test_a_visit_that_ends_after_its_call_is_reported_on_the_session_of_that_call_alone(
    product: Product, alone: str
) -> None:
    names = ("waits", "has not called", "knows no pages")
    agents = {name: product.agent(alone, "asking-legacy") for name in names}
    for name, agent in agents.items():
        agent.initialize(**(FORM if name == "knows no pages" else URL))
    with ExitStack() as stack:
        heard = {name: stack.enter_context(standing(agent)) for name, agent in agents.items()}
        for name in ("waits", "knows no pages"):
            error = agents[name].ask("tools/call", unlock(name))["error"]
            assert error["data"]["elicitations"][0]["elicitationId"] == f"unlock-{name}"
        for name in ("knows no pages", "waits"):  # the server then reports the end of the visit
            assert agents["has not called"].ask("tools/call", unlock(name))["result"]
        eventually(lambda: told(heard["waits"]))
    assert {name: told(lines) for name, lines in heard.items()} == {
        "waits": ["unlock-waits"],
        "has not called": [],
        "knows no pages": [],
    }


# --- resources that agents follow ---------------------------------------------------------------------------------------
def test_updates_of_one_upstream_subscription_reach_agents_of_both_eras(product: Product) -> None:
    token = product.token()
    old, new = product.agent(token, "legacy"), product.agent(token, "legacy")
    old.initialize()
    uri = old.ask("resources/list")["result"]["resources"][0]["uri"]
    assert old.ask("resources/subscribe", {"uri": uri})["result"] == {}
    body, headers = new.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
    with standing(old) as heard, standing(new, body, **headers) as listened:
        ack = eventually(lambda: listened)[0]
        assert ack["params"]["notifications"] == {"resourceSubscriptions": [uri]}
        listening = "SELECT * FROM mcp_sessions_subscription WHERE uri = ? AND state = 'listening'"
        (row,) = eventually(lambda: product.stack.rows(listening, uri))
        assert response_of(new.ask_modern("tools/call", {"name": "touch", "arguments": {"uri": uri}}))["result"]
        told = eventually(lambda: [one for one in heard if one["method"] == "notifications/resources/updated"])[0]
        assert told["params"] == {"uri": uri}
        marked = eventually(lambda: listened[1:])[0]
        assert marked["params"] == {"uri": uri, "_meta": {META + "subscriptionId": body["id"]}}
    assert old.ask("resources/unsubscribe", {"uri": uri})["result"] == {}
    eventually(lambda: not product.stack.rows("SELECT * FROM mcp_sessions_agentfollow WHERE stream IS NOT NULL"))
    product.stack.shell(
        "from sessions.agents import follows; import datetime\nfollows.GONE_AFTER = datetime.timedelta(0)\nprint(follows.end_unfollowed())"
    )
    (ended,) = product.stack.rows("SELECT active FROM mcp_sessions_subscription WHERE id = ?", row["id"])
    assert not ended["active"]
