"""The door as agents of both eras meet it, over the product's own HTTP server."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.sessions.agents.product import (
    META,
    VERSION,
    Agent,
    Product,
    in_background,
    messages_of,
    response_of,
    standing,
)
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up


@pytest.fixture(scope="module")
def token(product: Product) -> str:
    return product.token(label="laptop")


@pytest.fixture
def agent(product: Product, token: str) -> Agent:
    """With an open legacy session."""
    made = product.agent(token)
    assert made.initialize().status_code == 200
    return made


@pytest.fixture
def modern(product: Product, token: str) -> Agent:
    return product.agent(token, "modern")


def test_a_legacy_program_lists_and_calls_and_the_ledger_names_it(product: Product, agent: Agent) -> None:
    tools = agent.ask("tools/list")["result"]["tools"]
    assert {"echo", "add"} <= {tool["name"] for tool in tools}
    told = agent.ask("tools/call", {"name": "echo", "arguments": {"text": "named"}})["result"]
    assert told["content"] == [{"type": "text", "text": "named"}]
    assert "resultType" not in told
    row = product.calls(target="echo")[-1]
    assert (row["user_name"], row["program"], row["token_name"], row["state"]) == (
        "ada",
        "raw 1",
        "laptop",
        "succeeded",
    )
    (event,) = product.stack.rows(
        "SELECT body FROM servers_auditevent WHERE call_uid = ? AND action = 'call:tool:request'", row["uid"]
    )
    body = json.loads(event["body"])
    assert (body["context"]["way"], row["way"]) == ("agent", "agent")
    assert (body["details"]["token_name"], body["details"]["program"]) == ("laptop", "raw 1")


def test_a_modern_program_discovers_lists_and_calls_without_a_session(product: Product, modern: Agent) -> None:
    found = modern.ask_modern("server/discover").json()["result"]
    assert found["supportedVersions"] == [VERSION]
    assert "tools" in found["capabilities"]
    assert found["_meta"][META + "serverInfo"]["name"] == "modern"
    listed = modern.ask_modern("tools/list")
    assert "mcp-session-id" not in listed.headers
    result = listed.json()["result"]
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    told = response_of(modern.ask_modern("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}))["result"]
    assert (told["resultType"], told["structuredContent"]["total"]) == ("complete", 5)
    assert product.calls(target="add")[-1]["program"] == "raw 2"
    # 0 while the session is not open: a list opens none, a call does
    assert 0 < modern.ask_modern("tools/list").json()["result"]["ttlMs"] <= 60_000


def test_a_header_that_repeats_an_argument_must_agree_with_it(product: Product, modern: Agent) -> None:
    modern.ask_modern("tools/list")
    where = "key = 'echo' AND server_id = (SELECT id FROM servers_server WHERE slug = 'modern')"
    body = product.stack.rows(f"SELECT body FROM servers_definition WHERE {where}")[0]["body"]  # noqa: S608  # our own words
    tool = json.loads(body)
    tool["inputSchema"]["properties"]["text"]["x-mcp-header"] = "Text"
    product.stack.write(f"UPDATE servers_definition SET body = ? WHERE {where}", json.dumps(tool))  # noqa: S608  # the same
    try:
        before = len(product.calls(target="echo"))
        given = {"name": "echo", "arguments": {"text": "repeated"}}
        for headers in ({}, {"Mcp_Param_Text": "another"}):
            body_of_request, usual = modern.modern("tools/call", given)
            refused = modern.post(body_of_request, **usual, **headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020), refused.text
            assert "Mcp-Param-Text" in refused.json()["error"]["message"]
        assert len(product.calls(target="echo")) == before
        body_of_request, usual = modern.modern("tools/call", given)
        told = modern.post(body_of_request, **usual, Mcp_Param_Text="repeated")
        assert response_of(told)["result"]["content"] == [{"type": "text", "text": "repeated"}]
    finally:
        product.stack.write(f"UPDATE servers_definition SET body = ? WHERE {where}", body)  # noqa: S608  # the same


@pytest.mark.parametrize("slug", ["legacy", "modern"])
def test_results_are_written_in_the_era_of_the_program(product: Product, token: str, slug: str) -> None:
    arguments = {"name": "add", "arguments": {"a": 1, "b": 1}}
    old = product.agent(token, slug)
    old.initialize()
    told = old.ask("tools/call", arguments)["result"]
    assert told["structuredContent"] == {"total": 2, "terms": [1, 1]}
    assert "resultType" not in told
    new = response_of(product.agent(token, slug).ask_modern("tools/call", arguments))["result"]
    assert (new["resultType"], new["structuredContent"]) == ("complete", told["structuredContent"])


@pytest.mark.parametrize("identity", ["1", 1, 0, "a" * 200])
def test_the_id_of_a_response_is_the_one_of_its_request(agent: Agent, identity: Any) -> None:
    told = response_of(agent.post(agent.body("tools/call", {"name": "echo", "arguments": {"text": "x"}}, identity)))
    assert told["id"] == identity
    assert type(told["id"]) is type(identity)


def test_what_a_model_can_mend_is_a_result_and_an_unknown_tool_an_error(agent: Agent) -> None:
    wrong = agent.ask("tools/call", {"name": "add", "arguments": {"a": "two"}})["result"]
    assert wrong["isError"] is True
    assert "/a" in wrong["content"][0]["text"]
    unknown = agent.ask("tools/call", {"name": "nope"})["error"]
    assert (unknown["code"], "nope" in unknown["message"]) == (-32602, True)
    failed = agent.ask("tools/call", {"name": "fail", "arguments": {"message": "as asked"}})["result"]
    assert (failed["isError"], "as asked" in failed["content"][0]["text"]) == (True, True)


def test_a_json_rpc_error_of_the_server_keeps_code_and_data(agent: Agent) -> None:
    error = agent.ask("tools/call", {"name": "rpc_error"})["error"]
    assert (error["code"], error["data"]) == (-32010, {"reason": "asked for", "retry": False})


def test_resources_prompts_and_completion_are_relayed(agent: Agent, modern: Agent) -> None:
    listed = agent.ask("resources/list")["result"]["resources"]
    uri = listed[0]["uri"]
    assert agent.ask("resources/read", {"uri": uri})["result"]["contents"][0]["uri"] == uri
    read = response_of(modern.ask_modern("resources/read", {"uri": uri}))["result"]
    assert (read["cacheScope"], read["resultType"]) == ("private", "complete")
    assert agent.ask("resources/templates/list")["result"]["resourceTemplates"]
    prompts = agent.ask("prompts/list")["result"]["prompts"]
    named = {prompt["name"]: prompt for prompt in prompts}
    name = next(name for name, prompt in named.items() if prompt.get("arguments"))
    arguments = {one["name"]: "a" for one in named[name]["arguments"]}
    assert agent.ask("prompts/get", {"name": name, "arguments": arguments})["result"]["messages"]
    asked = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": next(iter(arguments)), "value": ""}}
    assert isinstance(agent.ask("completion/complete", asked)["result"]["completion"]["values"], list)


def test_a_missing_resource_is_told_in_the_words_of_each_era(agent: Agent, modern: Agent) -> None:
    missing = "test://nothing/here"
    old = agent.ask("resources/read", {"uri": missing})["error"]
    new = response_of(modern.ask_modern("resources/read", {"uri": missing}))["error"]
    assert (old["code"], old["data"]) == (-32002, {"uri": missing})
    assert (new["code"], new["data"]) == (-32602, {"uri": missing})


# --- sessions -----------------------------------------------------------------------------------------------------------
def test_a_session_ends_once_and_belongs_to_its_token(product: Product, agent: Agent, token: str) -> None:
    other = product.agent(product.token(label="other"))
    other.session = agent.session
    assert other.post(other.body("ping")).status_code == 404
    elsewhere = product.agent(token, "modern")
    elsewhere.session = agent.session
    assert elsewhere.post(elsewhere.body("ping")).status_code == 404
    assert agent.ask("ping")["result"] == {}
    assert httpx.delete(agent.url, headers=agent.headers()).status_code == 204
    assert agent.post(agent.body("ping")).status_code == 404
    assert httpx.delete(agent.url, headers=agent.headers()).status_code == 404
    agent.session = ""
    missing = agent.post(agent.body("ping", identity="k"))
    assert (missing.status_code, missing.json()["id"]) == (400, "k")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_without_a_session_only_post_is_allowed(product: Product, token: str, method: str) -> None:
    agent = product.agent(token)
    answer = httpx.request(method, agent.url, headers=agent.headers())
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert httpx.put(agent.url, headers=agent.headers()).status_code == 405


def test_the_first_revision_takes_batches_and_answers_each(product: Product, token: str) -> None:
    agent = product.agent(token)
    agent.initialize("2025-03-26")
    echo = {"name": "echo", "arguments": {"text": "b"}}
    batch = [agent.body("ping"), agent.body("tools/call", echo), agent.body("nope"), {"jsonrpc": "2.0", "id": 9}]
    batch.append(agent.body("tools/call", {"name": "nope"}, "x"))
    told = {one["id"]: one for one in agent.post(batch).json()}
    assert len(told) == 5
    assert told["x"]["error"]["code"] == -32602
    assert told[batch[1]["id"]]["result"]["content"][0]["text"] == "b"
    assert told[batch[2]["id"]]["error"]["code"] == -32601
    assert told[9]["error"]["code"] == -32600


# --- progress, cancellation, streams ------------------------------------------------------------------------------------
def slow(steps: int, delay: float, **meta: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": "slow", "arguments": {"steps": steps, "delay": delay}}
    return params | ({"_meta": meta} if meta else {})


@pytest.mark.parametrize("progress_token", ["t", 0])
def test_progress_of_a_call_arrives_in_order_before_its_response(agent: Agent, progress_token: Any) -> None:
    answer = agent.post(agent.body("tools/call", slow(4, 0.05, progressToken=progress_token)))
    assert answer.headers["content-type"].startswith("text/event-stream")
    *told, last = messages_of(answer)
    values = [one["params"]["progress"] for one in told]
    assert values == [1, 2, 3, 4]
    assert {one["params"]["progressToken"] for one in told} == {progress_token}
    assert last["result"]["content"][0]["text"] == "done after 4 steps"


def test_without_a_token_there_is_no_progress_and_the_answer_is_json(agent: Agent, modern: Agent) -> None:
    assert len(messages_of(agent.post(agent.body("tools/call", slow(2, 0.05))))) == 1
    assert modern.ask_modern("tools/call", slow(2, 0.05)).headers["content-type"] == "application/json"
    *told, _ = messages_of(modern.ask_modern("tools/call", slow(3, 0.05), progressToken="m"))
    assert [one["params"]["progress"] for one in told] == [1, 2, 3]


def test_a_cancelled_call_is_cancelled_at_the_server_and_nothing_follows(product: Product, agent: Agent) -> None:
    body = agent.body("tools/call", slow(200, 0.1, progressToken="c"), "to-cancel")
    thread, found = in_background(lambda: agent.post(body))
    call = eventually(lambda: [row for row in product.calls(target="slow") if row["state"] == "sent"])[-1]
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "to-cancel"}}
    assert agent.post(notice).status_code == 202
    thread.join(15)
    assert all(message.get("method") for message in messages_of(found[0]))
    row = product.calls(uid=call["uid"])[0]
    assert (row["state"], row["cancel_requested_by"]) == ("cancelled", "ada")


async def _leave(agent: Agent, body: dict[str, Any], headers: dict[str, str], ready: Callable[[], bool]) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        task = asyncio.create_task(client.post(agent.url, json=body, headers=headers))
        await asyncio.to_thread(eventually, ready)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_modern_program_that_leaves_cancels_and_a_legacy_one_does_not(
    product: Product, agent: Agent, modern: Agent
) -> None:
    known = {row["uid"] for row in product.calls(target="slow")}

    def sent() -> list[Any]:
        return [row for row in product.calls(target="slow") if row["uid"] not in known and row["state"] == "sent"]

    body, headers = modern.modern("tools/call", slow(100, 0.1))
    asyncio.run(_leave(modern, body, modern.headers(**headers), lambda: bool(sent())))
    new = eventually(
        lambda: [row for row in product.calls(state="cancelled", target="slow") if row["uid"] not in known]
    )
    known |= {row["uid"] for row in new}
    body = agent.body("tools/call", slow(5, 0.1), "left")
    asyncio.run(_leave(agent, body, agent.headers(), lambda: bool(sent())))
    (row,) = eventually(
        lambda: [row for row in product.calls(state="succeeded", target="slow") if row["uid"] not in known]
    )
    assert eventually(lambda: product.calls(uid=row["uid"])[0]["unheard_at"])
    again = response_of(agent.post(body))
    assert again["result"]["content"][0]["text"] == "done after 5 steps"
    assert len([row for row in product.calls(target="slow") if row["uid"] not in known]) == 1


def test_a_request_id_is_used_for_one_request_only(product: Product, agent: Agent) -> None:
    first = agent.body("tools/call", {"name": "echo", "arguments": {"text": "one"}}, "same")
    assert "result" in response_of(agent.post(first))
    before = len(product.calls())
    assert response_of(agent.post(first))["result"]["content"][0]["text"] == "one"
    other = agent.body("tools/call", {"name": "echo", "arguments": {"text": "two"}}, "same")
    assert response_of(agent.post(other))["error"]["code"] == 4091
    assert len(product.calls()) == before


def test_a_lost_stream_is_resumed_with_its_response(agent: Agent) -> None:
    with httpx.stream(
        "POST",
        agent.url,
        json=agent.body("tools/call", slow(6, 0.1, progressToken="r")),
        headers=agent.headers(),
        timeout=30,
    ) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("id: "))
    headers = agent.headers(Last_Event_ID=first.removeprefix("id: "))
    resumed = httpx.get(agent.url, headers=headers, timeout=30)
    assert messages_of(resumed)[-1]["result"]["content"][0]["text"] == "done after 6 steps"
    foreign = agent.headers(Last_Event_ID="00000000-0000-4000-8000-000000000000:0")
    assert httpx.get(agent.url, headers=foreign, timeout=30).status_code == 400


# --- at most once -------------------------------------------------------------------------------------------------------
def test_an_unknown_outcome_is_a_result_that_warns_and_is_sent_once(product: Product, agent: Agent) -> None:
    body = agent.body("tools/call", {"name": "counter", "arguments": {"id": "killed", "delay": 60}})
    thread, found = in_background(lambda: agent.post(body))
    eventually(lambda: product.effects.exists() and "killed" in product.effects.read_text())
    product.stack.kill_worker()
    thread.join(30)
    result = response_of(found[0])["result"]
    assert result["isError"] is True
    assert "not known whether counter ran" in result["content"][0]["text"]
    assert result["_meta"]["mcpadmin/outcome"] == "outcome_unknown"
    assert product.effects.read_text().count("killed") == 1
    eventually(lambda: product.stack.worker_pids())
    assert agent.ask("tools/call", {"name": "echo", "arguments": {"text": "back"}})["result"]["content"]


def test_an_equal_call_whose_outcome_was_never_heard_is_told_before_it_runs_again(
    product: Product, modern: Agent
) -> None:
    counter = {"name": "counter", "arguments": {"id": "unheard", "delay": 30}}
    body, headers = modern.modern("tools/call", counter)

    def effects() -> int:
        return product.effects.read_text().count("unheard") if product.effects.exists() else 0

    newest = "SELECT unheard_at FROM mcp_sessions_agentcall ORDER BY call_id DESC LIMIT 1"
    asyncio.run(_leave(modern, body, modern.headers(**headers), lambda: effects() == 1))
    eventually(lambda: product.stack.rows(newest)[0]["unheard_at"])
    told = response_of(modern.ask_modern("tools/call", counter))["result"]
    assert (told["isError"], "was not called" in told["content"][0]["text"]) == (True, True)
    assert effects() == 1
    asyncio.run(_leave(modern, body, modern.headers(**headers), lambda: effects() == 2))


def test_what_a_killed_web_process_was_watching_is_told_before_it_runs_again(product: Product, modern: Agent) -> None:
    counter = {"name": "counter", "arguments": {"id": "web-died", "delay": 60}}

    def lost() -> None:
        with pytest.raises(httpx.HTTPError):
            modern.ask_modern("tools/call", counter)

    thread, _ = in_background(lost)
    eventually(lambda: product.effects.exists() and "web-died" in product.effects.read_text())
    (web,) = product.stack.part("daphne")
    web.kill()
    product.stack.kill_worker()
    thread.join(30)
    eventually(lambda: product.calls(target="counter")[-1]["state"] == "outcome_unknown", 60)
    eventually(lambda: _answers(product))
    told = response_of(modern.ask_modern("tools/call", counter))["result"]
    assert (told["isError"], "was not called" in told["content"][0]["text"]) == (True, True)
    assert product.effects.read_text().count("web-died") == 1


def _answers(product: Product) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{product.stack.base_url}/healthz").status_code == 200
    return False


def test_a_key_of_the_program_is_used_for_one_call(product: Product, modern: Agent) -> None:
    body, headers = modern.modern("tools/call", {"name": "echo", "arguments": {"text": "keyed"}})
    before = len(product.calls())
    first = response_of(modern.post(body, **headers, Idempotency_Key="k-1"))
    again = response_of(modern.post(body | {"id": "other"}, **headers, Idempotency_Key="k-1"))
    assert first["result"] == again["result"]
    other, headers = modern.modern("tools/call", {"name": "echo", "arguments": {"text": "another"}})
    assert response_of(modern.post(other, **headers, Idempotency_Key="k-1"))["error"]["code"] == 4091
    assert len(product.calls()) == before + 1


# --- who may ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("scopes", "method", "params"),
    [
        (("read", "call"), "tools/list", {}),
        (("list", "read"), "tools/call", {"name": "echo", "arguments": {"text": "x"}}),
        (("list", "call"), "resources/read", {"uri": "test://x"}),
        (("list", "call"), "prompts/get", {"name": "x"}),
        (("list", "call"), "resources/subscribe", {"uri": "test://x"}),
        (("list", "call"), "completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {}}),
    ],
)
def test_a_scope_that_is_missing_is_named(product: Product, scopes: Any, method: str, params: Any) -> None:
    agent = product.agent(product.token(*scopes))
    agent.initialize()
    answer = agent.post(agent.body(method, params))
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert answer.json()["id"] is not None


def test_tools_outside_of_the_token_do_not_exist_for_it(product: Product) -> None:
    agent = product.agent(product.token(tools=("ec*",)))
    agent.initialize()
    assert [tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]] == ["echo"]
    assert agent.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})["error"]["code"] == -32602


def refused(agent: Agent, **headers: str | None) -> int:
    return agent.post(agent.body("initialize", {}), **headers).status_code


def test_worthless_tokens_and_foreign_endpoints_are_refused(product: Product, token: str) -> None:
    good = product.agent(token)
    assert refused(good, Authorization=None) == 401
    assert refused(good, Authorization="Basic abc") == 401
    assert refused(good, Authorization=f"Bearer {token[:-1]}x") == 401
    assert refused(product.agent(token, "nowhere")) == 404
    assert refused(product.agent(product.token(servers=("modern",)))) == 404
    assert refused(product.agent(product.token(addresses=("192.0.2.0/24",)))) == 401
    challenge = good.post({}, Authorization=None).headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    (event,) = product.stack.rows("SELECT * FROM servers_auditevent WHERE action = 'account:token:refuse'")
    assert "127.0.0.1" in event["body"]


def test_a_person_who_loses_the_permission_loses_the_call(product: Product) -> None:
    product.stack.shell(
        "from django.contrib.auth import get_user_model as u; from django.contrib.auth.models import Permission as P\n"
        "b = u().objects.create_user('bob', password='x')\n"
        "b.user_permissions.set(P.objects.filter(codename__in=['view_server', 'call_tool']))"
    )
    agent = product.agent(product.token(name="bob"))
    agent.initialize()
    echo = {"name": "echo", "arguments": {"text": "x"}}
    assert "result" in agent.ask("tools/call", echo)
    product.stack.shell(
        "from django.contrib.auth import get_user_model as u; from django.contrib.auth.models import Permission as P\n"
        "u().objects.get(username='bob').user_permissions.set(P.objects.filter(codename='view_server'))"
    )
    answer = eventually(
        lambda: [found] if (found := agent.post(agent.body("tools/call", echo))).status_code == 403 else []
    )
    assert "permission" in answer[0].json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example.com"}, 400),
        ({"Origin": "http://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Accept": "text/html"}, 406),
    ],
)
def test_requests_of_web_pages_and_other_media_types_are_refused(agent: Agent, headers: Any, status: int) -> None:
    assert agent.post(agent.body("ping"), **headers).status_code == status


def test_our_own_origin_is_accepted(product: Product, agent: Agent) -> None:
    assert agent.post(agent.body("ping"), Origin=product.stack.base_url).status_code == 200


def test_large_arguments_pass_with_a_token_and_too_large_ones_do_not(agent: Agent) -> None:
    text = "x" * 200_000
    told = agent.ask("tools/call", {"name": "echo", "arguments": {"text": text}})["result"]
    assert told["content"][0]["text"] == text
    big = agent.body("tools/call", {"name": "echo", "arguments": {"text": "x" * 5_000_000}})
    with contextlib.suppress(httpx.TransportError):
        refused = agent.post(big)
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, -32600)
        assert "4 MiB" in refused.json()["error"]["message"]
    with contextlib.suppress(httpx.TransportError):
        assert agent.post(agent.body("ping", {"x": text}), Authorization="Bearer mca_x").status_code == 401


def test_a_program_that_asks_too_often_is_told_when_to_come_back(product: Product) -> None:
    agent = product.agent(product.token("list", label="hasty"))
    product.allow_one_request_a_second("hasty")
    agent.initialize()
    with httpx.Client(headers=agent.headers()) as client:
        answers = (client.post(agent.url, json=agent.body("ping")) for _ in range(60))
        late = next(answer for answer in answers if answer.status_code == 429)
    assert int(late.headers["retry-after"]) >= 1
    assert late.json()["error"]["data"]["retryAfterMs"] > 0


def test_a_large_batch_is_answered_in_full(product: Product) -> None:
    agent = product.agent(product.token(label="large-batch"), "ours")
    agent.initialize("2025-03-26")
    found = agent.post([agent.body("ping") for _ in range(50)]).json()
    assert [one for one in found if "result" not in one] == []


def test_each_request_of_a_batch_counts(product: Product) -> None:
    agent = product.agent(product.token(label="batches"), "ours")
    product.allow_one_request_a_second("batches")
    agent.initialize("2025-03-26")
    echo = {"name": "greet", "arguments": {"name": "batch"}}
    found = agent.post([agent.body("tools/call", echo) for _ in range(50)]).json()
    refused = [one for one in found if "error" in one]
    reasons = {one["error"]["data"]["reason"] for one in refused}
    assert reasons <= {"agent_requests_per_second", "agent_calls_in_flight"}
    assert len(refused) >= 30
    assert all(one["id"] for one in refused)
    assert sum(call["token_name"] == "batches" for call in product.calls()) == 50 - len(refused)


# --- standing streams ---------------------------------------------------------------------------------------------------
def revoke(product: Product, label: str) -> None:
    product.stack.shell(
        "from servers.agents import tokens; from servers.models import AgentToken; from servers.audit.record import Actor\n"
        f"t = AgentToken.objects.get(name={label!r}); tokens.revoke(Actor.of_user(t.user), t.user, t)"
    )


def counts_down(product: Product, label: str) -> list[Any]:
    """The call of the token with this name that runs."""
    return [call for call in product.calls(target="countdown", state="sent") if call["token_name"] == label]


def end_countdown(product: Product, label: str) -> None:
    (call,) = counts_down(product, label)
    product.stack.shell(
        f"from sessions.models import Call; from django.utils import timezone; from sessions import hints\n"
        f"c = Call.objects.get(pk={call['id']}); Call.objects.filter(pk=c.pk).update(cancel_requested_at=timezone.now())\n"
        "hints.wake_worker(c.worker_uid, 'cancel', c.uid); hints.flush()"
    )
    eventually(lambda: not counts_down(product, label))


def test_a_revoked_token_ends_its_streams_and_is_refused(product: Product) -> None:
    token = product.token("list", label="to-revoke")
    agent = product.agent(token)
    agent.initialize()
    with standing(agent) as heard:
        revoke(product, "to-revoke")
        eventually(lambda: None in heard)
    assert agent.post(agent.body("ping")).status_code == 401


def test_a_revoked_token_learns_no_more_of_the_call_that_it_waits_for(product: Product) -> None:
    agent = product.agent(product.token(label="revoked-meanwhile"), "ours")
    agent.initialize()
    asked = {"name": "countdown", "arguments": {"start": 60, "pause": 0.5}, "_meta": {"progressToken": "p"}}
    body = agent.body("tools/call", asked)
    with standing(agent, body) as heard:
        eventually(lambda: heard)
        revoke(product, "revoked-meanwhile")
        eventually(lambda: None in heard)
    assert (heard[-2]["id"], heard[-2]["error"]["code"]) == (body["id"], 4010)
    assert all("result" not in message for message in heard[:-1])
    assert counts_down(product, "revoked-meanwhile"), "it goes on"
    end_countdown(product, "revoked-meanwhile")


def test_an_api_request_that_waits_is_refused_soon_after_its_token_is_revoked(product: Product) -> None:
    token = product.token("call", label="revoked-at-the-api")
    url = f"{product.stack.base_url}/api/v1/servers/ours/calls?wait=30"
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "revoked-meanwhile"}
    given = {"tool": "countdown", "arguments": {"start": 60, "pause": 0.5}}
    thread, found = in_background(lambda: httpx.post(url, json=given, headers=headers, timeout=60))
    eventually(lambda: counts_down(product, "revoked-at-the-api"))
    revoke(product, "revoked-at-the-api")
    thread.join(40)
    assert found[0].status_code == 401
    end_countdown(product, "revoked-at-the-api")


def test_the_newest_stream_of_a_session_wins(agent: Agent) -> None:
    with standing(agent) as first, standing(agent) as second:
        eventually(lambda: None in first)
        assert None not in second


def change_list(product: Product, tool: int, digest: str) -> None:
    product.stack.shell(
        "from servers.models import Definition; from sessions import hints\n"
        f"d = Definition.objects.get(pk={tool}); Definition.objects.filter(pk=d.pk).update(digest={digest!r})\n"
        "hints.session_changed(d.server.uid, kind='catalog'); hints.flush()"
    )


def test_a_changed_list_is_reported_to_both_eras(product: Product, token: str) -> None:
    old, new = product.agent(token, "ours"), product.agent(token, "ours")
    old.initialize()
    body, headers = new.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    with standing(old) as heard, standing(new, body, **headers) as listened:
        ack = eventually(lambda: listened)[0]
        assert ack["method"] == "notifications/subscriptions/acknowledged"
        assert ack["params"]["notifications"] == {"toolsListChanged": True}
        (tool, *_) = product.stack.rows(
            """SELECT one.id, one.digest FROM servers_definition one JOIN servers_server server ON server.id = one.server_id
               WHERE server.slug = 'ours' AND one.kind = 'tool' ORDER BY one.id"""
        )
        change_list(product, tool["id"], "f" * 64)
        eventually(lambda: any(one["method"] == "notifications/tools/list_changed" for one in heard))
        told = eventually(lambda: listened[1:])[0]
        assert told["method"] == "notifications/tools/list_changed"
        assert told["params"]["_meta"] == {META + "subscriptionId": body["id"]}
    # Otherwise the next reading of the list would be a change to the calls of other tests.
    change_list(product, tool["id"], tool["digest"])
