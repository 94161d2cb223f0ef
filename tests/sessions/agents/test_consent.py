"""Calls of agents that need a person, through the whole product. The peer's log of effects shows what ran. How often
a consent counts: test_consent_reuse.py."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.sessions.agents.product import Agent, Product, in_background, response_of
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up
DECIDE = """
from django.contrib.auth import get_user_model
from servers.audit.record import Actor
from sessions.approvals import deciding, ending, validity
from sessions.models import Approval
user = get_user_model().objects.get(username={by!r})
row = Approval.objects.select_related("call__server", "call__arguments", "token").get(uid={uid!r})
{before}
try:
    print("DECIDED", {verb})
except Exception as problem:
    print("DECIDED", type(problem).__name__, problem)
"""
YES = "deciding.approve(Actor.of_user(user), user, row, validity.binding(row)).value"
NO = "deciding.refuse(Actor.of_user(user), user, row, 'not on a Friday').value"


@pytest.fixture(scope="module", autouse=True)
def boss(product: Product) -> None:
    product.stack.shell(
        "from django.contrib.auth import get_user_model as u; from django.contrib.auth.models import Permission as P\n"
        "b = u().objects.create_user('boss', password='x')\n"
        "b.user_permissions.set(P.objects.filter(codename__in=['view_server', 'answer_question']))"
    )


def agent_of(product: Product, slug: str = "legacy", **more: Any) -> Agent:
    """Without the scope for destructive tools."""
    made = product.agent(product.token("list", "read", "call", **more), slug)
    assert made.initialize().status_code == 200
    return made


def counter(name: str) -> dict[str, Any]:
    return {"name": "counter", "arguments": {"id": name}}


def effects(product: Product, name: str) -> int:
    return product.effects.read_text().count(name) if product.effects.exists() else 0


def held(product: Product, count: int = 1, **columns: Any) -> list[Any]:
    """Requests for approval that are open, by the arguments of their calls."""
    sql = """SELECT approval.* FROM mcp_sessions_approval approval JOIN mcp_sessions_call call
             ON call.id = approval.call_id WHERE call.preview LIKE ? ORDER BY approval.id"""
    return eventually(lambda: found if len(found := product.stack.rows(sql, f"%{columns['name']}%")) >= count else None)


def decide(product: Product, uid: str, verb: str = YES, by: str = "boss", before: str = "") -> str:
    said = product.stack.shell(DECIDE.format(by=by, uid=str(uuid.UUID(uid)), verb=verb, before=before))
    return said.split("DECIDED ", 1)[1].strip()


def leave(product: Product, agent: Agent, name: str, count: int = 1) -> list[Any]:
    """A legacy agent that goes once its call is held; the requests for approval of calls with this argument."""
    body = agent.body("tools/call", counter(name))

    async def go() -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            task = asyncio.create_task(client.post(agent.url, json=body, headers=agent.headers()))
            await asyncio.to_thread(held, product, count, name=name)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(go())
    return held(product, count, name=name)


def ask(agent: Agent, params: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """A call in the background; the result once it came."""
    thread, found = in_background(lambda: agent.ask("tools/call", params)["result"])

    def result() -> dict[str, Any]:
        thread.join(40)
        return found[0]

    return result


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def events(product: Product, call_id: int) -> list[str]:
    sql = """SELECT event.action FROM servers_auditevent event JOIN mcp_sessions_call call ON call.uid = event.call_uid
             WHERE call.id = ? ORDER BY event.seq"""
    return [row["action"].partition(":")[2] for row in product.stack.rows(sql, call_id)]


def test_a_held_call_runs_once_when_a_person_approves_it_and_the_log_has_each_step(product: Product) -> None:
    agent = agent_of(product)
    result = ask(agent, counter("approved-once"))
    (row,) = held(product, name="approved-once")
    assert effects(product, "approved-once") == 0
    assert "mcp:call:destructive" in row["why"]
    assert "another person must decide" in decide(product, row["uid"], by="ada")
    assert decide(product, row["uid"]) == "done"
    assert not result().get("isError")
    assert effects(product, "approved-once") == 1
    assert events(product, row["call_id"]) == [
        "tool:request",
        "approval:ask",
        "approval:grant",
        "tool:send",
        "tool:finish",
    ]


def test_a_no_is_reported_with_its_reason_and_nothing_runs(product: Product) -> None:
    result = ask(agent_of(product), counter("refused"))
    (row,) = held(product, name="refused")
    assert decide(product, row["uid"], NO) == "done"
    told = result()
    assert (told["isError"], "not on a Friday" in text_of(told)) == (True, True)
    assert told["_meta"]["mcpadmin/outcome"] == "refused"
    assert decide(product, row["uid"]) == "late"
    assert effects(product, "refused") == 0


def test_a_program_that_left_finds_its_call_again(product: Product) -> None:
    agent = agent_of(product)
    (row,) = leave(product, agent, "came-back")
    assert decide(product, row["uid"]) == "done"
    eventually(lambda: effects(product, "came-back") == 1)
    assert agent.ask("tools/call", counter("came-back"))["result"]["content"]
    assert effects(product, "came-back") == 1
    assert len(held(product, name="came-back")) == 1


def test_a_program_that_opens_addresses_is_led_to_the_page(product: Product) -> None:
    token = product.token("list", "read", "call")
    modern = product.agent(token, "modern")
    key = "io.modelcontextprotocol/clientCapabilities"
    meta = {key: {"elicitation": {"form": {}, "url": {}}}}
    first = response_of(modern.ask_modern("tools/call", counter("url-page"), **meta))["result"]
    assert first["resultType"] == "input_required"
    (asked,) = first["inputRequests"].values()
    (row,) = held(product, name="url-page")
    page = asked["params"]["url"]
    assert asked["params"]["mode"] == "url"
    assert page.endswith(f"/inbox/approvals/{uuid.UUID(row['uid'])}/")
    assert decide(product, row["uid"]) == "done"
    answers = {name: {"action": "accept"} for name in first["inputRequests"]}
    again = counter("url-page") | {"requestState": first["requestState"], "inputResponses": answers}
    told = response_of(modern.ask_modern("tools/call", again, **meta))["result"]
    assert told["resultType"] == "complete"
    assert effects(product, "url-page") == 1


def test_equal_calls_wait_for_a_person_where_the_endpoint_says_so(product: Product) -> None:
    agent = agent_of(product, "ours")
    greet = {"name": "greet", "arguments": {"name": "in-a-loop"}}
    for _ in range(7):  # no number is set at first
        assert not agent.ask("tools/call", greet)["result"].get("isError")
    product.stack.shell(
        "from django.contrib.auth import get_user_model as u; from servers.agents import policy_changes\n"
        "from servers.audit.record import Actor; from servers.models import Server\n"
        "ada = u().objects.get(username='ada')\n"
        "policy_changes.change(Actor.of_user(ada), ada, Server.objects.get(slug='ours'), {'equal_calls': 2})"
    )
    twice = {"name": "greet", "arguments": {"name": "thrice"}}
    for _ in range(2):
        assert not agent.ask("tools/call", twice)["result"].get("isError")
    result = ask(agent, twice)
    (row,) = held(product, name="thrice")
    assert "may be in a loop" in row["why"]
    assert decide(product, row["uid"], by="ada") == "done"
    assert not result().get("isError")
