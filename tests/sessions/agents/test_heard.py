"""A call that needed approval is answered once, by whichever way its agent hears the end; a further equal one is another."""

import asyncio
from typing import Any

import pytest

from servers.agents.tokens import principal_of
from servers.enums import PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentRule, AuditEvent
from sessions.agents.policy import policy_check
from sessions.agents.policy.policy_check import Forbidden, PolicyCheck
from sessions.api import calls
from sessions.api.asking import Caller
from sessions.enums import CallState
from sessions.models import AgentAttachment, Call, McpSession
from tests.sessions.agents.door import LEGACY, Door, finish, make_listed, token_of
from tests.sessions.agents.placed import place

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"name": "echo", "arguments": {}}


def rule(session: McpSession, effect: PolicyEffect) -> None:
    policy = AgentPolicy.objects.create(server=session.server)
    AgentRule.objects.create(policy=policy, kind=PolicyKind.TOOL, pattern="*", effect=effect)
    policy_check.memory.forget()


def test_a_call_whose_end_the_api_told_does_not_answer_the_next_equal_one(ada: Any) -> None:
    rule(make_listed("files"), PolicyEffect.ASK)
    principal, check = principal_of(token_of(ada), ""), PolicyCheck()
    first = place(check, principal, "files", "echo")
    caller = Caller(principal, "192.0.2.7", "request-0001")
    assert calls._detail(caller, first.uid).state == CallState.HELD
    finish(first.uid)
    assert calls._detail(caller, first.uid).final
    assert place(check, principal, "files", "echo").uid != first.uid


async def test_a_call_whose_end_a_resumed_stream_told_does_not_answer_the_next_equal_one(ada: Any, door: Door) -> None:
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ASK))
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    asked = door.legacy(token, "files", key, "tools/call", ECHO)
    call = await door.viewed()
    asked.leaves()
    await asked.ends()
    await door.finish(call)
    resumed = door.get(token, "files", key, last_event_id=f"{call}:0")
    assert (await resumed.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    another = door.legacy(token, "files", key, "tools/call", ECHO, id=2)
    assert await door.viewed() != call
    another.leaves()
    await another.ends()


async def test_an_agent_that_takes_no_stream_is_sent_none_to_lead_it_to_the_approval(ada: Any, door: Door) -> None:
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ASK))
    token = await door.thread(token_of, ada)
    hello = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {"url": {}}}, "clientInfo": {}}
    opened = door.post(token, "files", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    await opened.ends()
    given = {"mcp_session_id": opened.headers["mcp-session-id"], "accept": "application/json"}
    asked = door.post(token, "files", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ECHO}, **given)
    call = await door.viewed()
    door.hint(f"call.{call}")
    await asyncio.sleep(0.2)
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await asked.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    assert asked.headers["content-type"] == "application/json"


async def test_a_request_that_joined_an_earlier_call_is_repeated_resumed_and_cancelled_by_its_own_id(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    first = door.legacy(token, "files", key, "tools/call", ECHO, id=1)
    call = await door.viewed()
    first.leaves()
    await first.ends()
    for _ in range(2):  # the second time with an id that is known by then
        joined = door.legacy(token, "files", key, "tools/call", ECHO, id=2)
        assert await door.viewed() == call
        joined.leaves()
        await joined.ends()
    attachment = await door.thread(AgentAttachment.objects.get)
    resumed = door.get(token, "files", key, last_event_id=f"{call}.{attachment.pk}:0")
    assert await door.viewed() == call
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    await door.post(token, "files", cancelled, mcp_session_id=key, mcp_protocol_version=LEGACY).ends()
    row = await door.thread(Call.objects.get, uid=call)
    assert row.cancel_requested_at is not None or row.state == CallState.CANCELLED
    resumed.leaves()
    await resumed.ends()
    other_key = await door.session(token, "files")
    foreign = door.get(token, "files", other_key, last_event_id=f"{call}.{attachment.pk}:0")
    assert "error" in await foreign.response()


async def test_a_repeated_request_that_had_joined_an_earlier_call_gets_the_end_of_that_one(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    first = door.legacy(token, "files", key, "tools/call", ECHO, id=1)
    call = await door.viewed()
    first.leaves()
    await first.ends()
    joined = door.legacy(token, "files", key, "tools/call", ECHO, id=2)
    assert await door.viewed() == call
    attachment = await door.thread(AgentAttachment.objects.get)
    joined.leaves()
    await joined.ends()
    await door.finish(call)
    resumed = await door.get(token, "files", key, last_event_id=f"{call}.{attachment.pk}:0").response()
    repeated = await door.legacy(token, "files", key, "tools/call", ECHO, id=2).response()
    assert (resumed["id"], repeated["id"]) == (2, 2)
    assert resumed["result"] == repeated["result"]
    assert await door.thread(Call.objects.count) == 1


def test_a_denied_call_that_could_not_be_recorded_is_recorded_the_next_time(
    ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(make_listed("files"), PolicyEffect.DENY)
    text, real, refused = token_of(ada), policy_check.permissions.record_refusal, list[Exception]()

    def record(*given: Any, **more: Any) -> None:
        if not refused:
            refused.append(RuntimeError("The database is away."))
            raise refused[0]
        real(*given, **more)

    monkeypatch.setattr(policy_check.permissions, "record_refusal", record)

    principal, check = principal_of(text, ""), PolicyCheck()
    for expected in (RuntimeError, Forbidden, Forbidden):
        with pytest.raises(expected):
            place(check, principal, "files", "echo")
    assert AuditEvent.objects.filter(subject="echo").count() == 1
