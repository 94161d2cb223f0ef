"""A modern agent in front of a modern server: each exchange is a call of its own, with the agent's capabilities."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sessions.agents.product import META, Agent, Product, in_background, response_of
from tests.sessions.agents.test_questions import ANSWERED
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up
ALL = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
ANN = {"user_name": {"action": "accept", "content": {"name": "Ann"}}}
ASKS = "test_input_required_result_"


@pytest.fixture(scope="module")
def agent(product: Product) -> Agent:
    return product.agent(product.token("list", "read", "call", "sampling", label="rounds"), "suite-modern")


def ask(agent: Agent, tool: str, capabilities: Any = ALL, **params: Any) -> dict[str, Any]:
    wanted = {"name": tool, "arguments": {}, **params}
    return response_of(agent.ask_modern("tools/call", wanted, **{META + "clientCapabilities": capabilities}))


def rows(product: Product, tool: str) -> list[Any]:
    return product.stack.rows(
        "SELECT call.state, agent.id, agent.continues_id, (SELECT COUNT(*) FROM mcp_sessions_attempt attempt "
        "WHERE attempt.call_id = call.id) AS attempts FROM mcp_sessions_call call "
        "JOIN mcp_sessions_agentcall agent ON agent.call_id = call.id WHERE call.target = ? ORDER BY call.id",
        tool,
    )


def test_each_round_is_a_call_and_its_state_is_good_for_one(product: Product, agent: Agent) -> None:
    tool = f"{ASKS}multi_round"
    first = ask(agent, tool)["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["step1"]["params"]["requestedSchema"]["required"] == ["name"]
    step1 = {"step1": {"action": "accept", "content": {"name": "Ann"}}}
    second = ask(agent, tool, requestState=first["requestState"], inputResponses=step1)["result"]
    assert list(second["inputRequests"]) == ["step2"]
    assert second["requestState"] != first["requestState"]
    step2 = {"step2": {"action": "accept", "content": {"color": "red"}}}
    last = ask(agent, tool, requestState=second["requestState"], inputResponses=step2)["result"]
    assert (last["resultType"], last["content"][0]["text"]) == ("complete", "both steps done")
    for other in (step1, {"step1": {"action": "decline"}}):  # used up: it leads to what it was used for
        again = ask(agent, tool, requestState=first["requestState"], inputResponses=other)["result"]
        assert again["inputRequests"] == second["inputRequests"]
    made = rows(product, tool)
    assert [(row["state"], row["attempts"]) for row in made] == [("succeeded", 1)] * 3
    assert [row["continues_id"] for row in made] == [None, made[0]["id"], made[1]["id"]]
    assert "round 1" not in str(first) + str(second)  # the server's own state stays here
    stored = "SELECT * FROM mcp_sessions_agentround round JOIN mcp_sessions_call call ON call.id = round.call_id WHERE target = ?"
    assert all(b"round" not in row["sealed"] for row in product.stack.rows(stored, tool))


def test_two_retries_at_once_are_one_call(product: Product, agent: Agent) -> None:
    tool = f"{ASKS}request_state"
    state = ask(agent, tool)["result"]["requestState"]
    answers = {"confirm": {"action": "accept", "content": {"ok": True}}}
    with ThreadPoolExecutor(4) as pool:
        tries = [pool.submit(ask, agent, tool, requestState=state, inputResponses=answers) for _ in range(4)]
        heard = [one.result()["result"]["content"][0]["text"] for one in tries]
    assert heard == ["state-ok"] * 4
    assert len(rows(product, tool)) == 2


def test_a_foreign_altered_or_bare_state_sends_nothing(product: Product, agent: Agent) -> None:
    tool = f"{ASKS}tampered_state"
    state = ask(agent, tool)["result"]["requestState"]
    answers = {"confirm": {"action": "accept", "content": {"ok": True}}}
    stranger = product.agent(product.token("list", "call"), "suite-modern")
    before = len(product.calls())
    for one, params in (
        (agent, {"requestState": f"{state}-TAMPERED"}),
        (agent, {"requestState": state, "arguments": {"more": 1}}),
        (agent, {"requestState": state, "inputResponses": None}),
        (agent, {"requestState": state, "inputResponses": {"confirm": 7}}),
        (stranger, {"requestState": state}),
    ):
        assert ask(one, tool, **{"inputResponses": answers, **params})["error"]["code"] == -32602
    assert len(product.calls()) == before


def test_answers_without_a_state_are_for_the_server(agent: Agent) -> None:
    tool = f"{ASKS}elicitation"
    extra = ANN | {"unknown": {"action": "accept", "content": {}}}
    assert ask(agent, tool, inputResponses=extra)["result"]["content"][0]["text"] == "Hello, Ann!"
    assert list(ask(agent, tool, inputResponses={"other": {"action": "cancel"}})["result"]["inputRequests"]) == [
        "user_name"
    ]
    for wrong in ({"user_name": 12345}, None, []):
        assert ask(agent, tool, inputResponses=wrong)["error"]["code"] == -32602


def test_roots_sampling_and_prompts_pass_as_the_server_asks(agent: Agent) -> None:
    first = ask(agent, f"{ASKS}list_roots")["result"]
    assert first["inputRequests"]["client_roots"]["method"] == "roots/list"
    roots = {"client_roots": {"roots": [{"uri": "file:///work"}]}}
    last = ask(agent, f"{ASKS}list_roots", requestState=first["requestState"], inputResponses=roots)["result"]
    assert last["content"][0]["text"] == "file:///work"
    name = {"name": f"{ASKS}prompt"}
    meta = {META + "clientCapabilities": ALL}
    asked = response_of(agent.ask_modern("prompts/get", name, **meta))["result"]
    given = {"user_context": {"action": "accept", "content": {"context": "here"}}}
    more = {"requestState": asked["requestState"], "inputResponses": given}
    assert "here" in str(response_of(agent.ask_modern("prompts/get", name | more, **meta))["result"]["messages"])


def test_the_server_learns_what_this_request_declares_and_the_token_allows(product: Product, agent: Agent) -> None:
    both = ask(agent, f"{ASKS}capabilities")["result"]["inputRequests"]
    model = ask(agent, f"{ASKS}capabilities", {"sampling": {}, "extensions": {"x/y": {}}})["result"]["inputRequests"]
    assert (sorted(both), sorted(model)) == (["model", "person"], ["model"])
    without_scope = product.agent(product.token("list", "call"), "suite-modern")
    for one, capabilities in ((agent, {}), (agent, {"elicitation": {}}), (without_scope, {"sampling": {}})):
        body, headers = one.modern(
            "tools/call", {"name": "test_missing_capability"}, **{META + "clientCapabilities": capabilities}
        )
        refused = one.post(body, **headers)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == -32021
        assert refused.json()["error"]["data"]["requiredCapabilities"] == {"sampling": {}}
        assert refused.json()["id"] == body["id"]
    assert ask(agent, "test_missing_capability")["result"]["resultType"] == "input_required"


def test_what_a_program_does_not_answer_is_refused_without_the_scope_that_asks_people(product: Product) -> None:
    """Its server declared to all sessions at once that such requests are answered."""
    agent = product.agent(product.token("list", "call"), "suite-legacy")
    agent.initialize()
    before = product.stack.rows("SELECT COUNT(*) AS count FROM mcp_sessions_question")[0]["count"]
    answer = agent.ask("tools/call", {"name": "test_elicitation", "arguments": {"message": "Who?"}})
    assert "does not answer" in str(answer)
    assert product.stack.rows("SELECT COUNT(*) AS count FROM mcp_sessions_question")[0]["count"] == before


def test_what_people_are_asked_is_not_mixed_with_the_capabilities_of_the_program(product: Product) -> None:
    """With the scope the server hears of us, and its question waits in the inbox."""
    agent = product.agent(product.token("list", "call", "inbox"), "suite-modern")
    thread, found = in_background(lambda: ask(agent, "test_missing_capability", {}))
    eventually(lambda: product.stack.rows("SELECT * FROM mcp_sessions_question WHERE state = 'open'"))
    model = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m", "stopReason": "endTurn"}
    product.stack.shell(ANSWERED.format(content=model))
    thread.join(15)
    assert "sampling is there" in str(found[0])
