"""A call that needed approval is answered once, however its agent learns the outcome. An equal call is a new one."""

import asyncio
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from mcpadmin.command_line.exit_status import ExitStatus, status_of
from servers.agents.tokens import principal_of
from servers.audit import writer as writer_module
from servers.audit.writer import AuditUnavailable
from servers.enums import AuditAction, PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentRule, AuditEvent, Definition
from sessions.agents import visits
from sessions.agents.call_request import call_request_of
from sessions.agents.calls import idempotency
from sessions.agents.endpoints import entry_of
from sessions.agents.exchange import Exchange
from sessions.agents.policy import counting, policy_check, quotas
from sessions.agents.policy.policy_check import Forbidden, PolicyCheck
from sessions.api import calls
from sessions.api.asking import Caller
from sessions.approvals.requesting import TooManyHeld
from sessions.calls import placing
from sessions.enums import CallState, QuestionState
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import Refusal
from sessions.models import AgentAttachment, AgentSession, Approval, Call, McpSession
from tests.sessions.agents.door import LEGACY, Asked, Door, finish, make_listed, token_of
from tests.sessions.agents.placed import place
from tests.sessions.inbox.rows import a_question

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"name": "echo", "arguments": {}}


def rule(session: McpSession, effect: PolicyEffect, **limits: int) -> None:
    policy = AgentPolicy.objects.create(server=session.server)
    AgentRule.objects.create(policy=policy, kind=PolicyKind.TOOL, pattern="*", effect=effect, **limits)
    policy_check.memory.forget()


def test_a_call_whose_end_the_api_told_does_not_answer_the_next_equal_one(ada: Any) -> None:
    rule(make_listed("files"), PolicyEffect.ASK)
    principal, check = principal_of(token_of(ada), ""), PolicyCheck()
    first = place(check, principal, "files", "echo")
    caller = Caller(principal, "192.0.2.7", "request-0001")
    assert json.loads(calls._detail(caller, first.uid).text)["state"] == CallState.HELD
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


async def test_a_call_that_cannot_wait_for_approval_says_that_it_may_be_made_again(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise TooManyHeld

    monkeypatch.setattr(idempotency, "request_approval", refuse)
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ASK))
    asked = door.modern(await door.thread(token_of, ada), "files", "tools/call", ECHO)
    result = (await asked.response())["result"]
    assert result["_meta"] == {"mcpadmin/outcome": "not_sent", "mcpadmin/mayHaveRun": False}
    assert status_of(result, call=asked.headers.get("mcpadmin-call", "")) == (ExitStatus.UNAVAILABLE, "")
    assert not await door.thread(Call.objects.exists)


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


async def test_a_session_that_joined_an_earlier_call_answers_its_questions_and_hears_the_end_of_its_visits(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    form: dict[str, Any] = {"elicitation": {"form": {}}}
    key = await door.session(token, "files", **form)
    first = door.legacy(token, "files", key, "tools/call", ECHO)
    call = await door.viewed()
    first.leaves()
    await first.ends()
    row = await door.thread(Call.objects.select_related("server").get, uid=call)
    asks = {"message": "Which name?", "requestedSchema": {"type": "object", "properties": {}}}
    question = await door.thread(a_question, asks, call=row, owner=ada)
    other, joining = [await door.session(token, "files", **form) for _ in range(2)]
    joined = door.legacy(token, "files", joining, "tools/call", ECHO)
    assert await door.viewed() == call
    answer = {"jsonrpc": "2.0", "id": f"question:{question.uid}", "result": {"action": "accept", "content": {}}}
    for session, state in ((other, QuestionState.OPEN), (joining, QuestionState.ACCEPTED)):
        await door.post(token, "files", answer, mcp_session_id=session, mcp_protocol_version=LEGACY).ends()
        await door.thread(question.refresh_from_db)
        assert question.state == state
        pk = (await door.thread(AgentSession.objects.get, key=session)).pk
        assert bool(await door.thread(visits.calls_of_session, pk, [call])) is (session == joining)
    joined.leaves()
    await joined.ends()


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


def test_a_refused_call_of_a_tool_whose_change_no_one_has_approved_is_recorded(ada: Any) -> None:
    make_listed("files")
    Definition.objects.update(approved_digest="1" * 64)
    principal, check = principal_of(token_of(ada), ""), PolicyCheck()
    for _ in range(2):
        with pytest.raises(Forbidden, match="approved the change"):
            place(check, principal, "files", "echo")
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.subject, event.outcome, event.actor_name) == ("echo", "denied", "ada")


def keyed(door: Door, token: str, session: str, id: int, key: str, **arguments: Any) -> Asked:
    params = {"name": "echo", "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return door.post(token, "files", body, mcp_session_id=session, mcp_protocol_version=LEGACY, idempotency_key=key)


async def test_a_key_that_joined_an_earlier_call_never_starts_another_one(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")
    for id, key in ((1, "first"), (2, "second")):
        asked = keyed(door, token, session, id, key)
        call = await door.viewed()
        asked.leaves()
        await asked.ends()
    await door.finish(call)
    again = keyed(door, token, session, 3, "second")
    assert (await again.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    other = door.post(
        token,
        "files",
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": 1}}},
        mcp_session_id=session,
        idempotency_key="second",
    )
    assert (await other.response())["error"]["code"] == 4091
    assert await door.thread(Call.objects.count) == 1


async def test_a_request_that_cannot_be_recorded_joins_no_earlier_call(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run the tool when it is repeated after the end of that one."""
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")
    first = keyed(door, token, session, 1, "first")
    call = await door.viewed()
    first.leaves()
    await first.ends()

    def refuse(*given: Any, **more: Any) -> None:
        raise AuditUnavailable("The audit log could not be written in time.")

    with monkeypatch.context() as away:
        away.setattr(AgentAttachment.objects, "bulk_create", refuse)
        refused = keyed(door, token, session, 2, "second")
        assert ((await refused.response())["error"]["code"], refused.status) == (5030, 503)
    joined = keyed(door, token, session, 2, "second")
    assert await door.viewed() == call
    await door.finish(call)
    door.hint(f"call.{call}")
    assert "result" in await joined.response()
    assert await door.thread(Call.objects.count) == 1


async def test_a_key_of_the_api_that_got_a_held_call_gets_it_again_after_its_end_was_reported(
    ada: Any, door: Door
) -> None:
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ASK))
    principal = await door.thread(lambda: principal_of(token_of(ada), ""))

    async def start(key: str) -> Any:
        entry = await door.thread(entry_of, principal, "files", "")
        headers = {"idempotency-key": key}
        asked = Exchange(entry, Era.LEGACY, LEGACY, 0, "tools/call", ECHO, headers, "192.0.2.7", "request-0001")
        return await door.application.requests.start(asked)

    call = await start("first")
    assert await start("second") == call
    await door.finish(call)
    caller = Caller(principal, "192.0.2.7", "request-0001")
    assert (await door.thread(calls._detail, caller, call)).final
    assert [await start(key) for key in ("second", "first")] == [call, call]
    assert await start("third") != call


async def test_a_call_that_may_have_been_committed_is_not_called_safe_to_repeat_and_meets_its_repetition(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await door.thread(token_of, ada)
    await door.thread(make_listed, "files")

    def refuse(batch: Any) -> None:
        if any(work.events is not None for work in batch):
            raise OSError("The disk does not answer.")

    with monkeypatch.context() as disk:
        disk.setattr(writer_module, "make_durable", refuse)
        disk.setattr(placing, "end", lambda *given: None)  # as if its worker were quicker
        asked = door.modern(token, "files", "tools/call", ECHO, id=7)
        found = await asked.response()
    assert (asked.status, "retry-after" in asked.headers) == (503, False)
    assert (found["id"], found["error"]["code"], found["error"]["data"]["retrySafe"]) == (7, -32603, False)
    assert "Check whether the change was made" in found["error"]["message"]
    call = await door.thread(Call.objects.get)
    again = door.modern(token, "files", "tools/call", ECHO, id=8)
    assert await door.viewed() == call.uid
    await door.finish(call.uid)
    door.hint(f"call.{call.uid}")
    assert "result" in await again.response()
    assert await door.thread(Call.objects.count) == 1


@pytest.mark.parametrize("keys", [("first", "first", "second"), ("", "", "")])
async def test_a_held_call_that_its_key_or_id_led_to_again_does_not_answer_the_next_equal_one(
    ada: Any, door: Door, keys: tuple[str, ...]
) -> None:
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ASK))
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")
    ids = (1, 2, 3) if keys[0] else (1, 1, 2)
    first = keyed(door, token, session, ids[0], keys[0])
    call = await door.viewed()
    first.leaves()
    await first.ends()
    again = keyed(door, token, session, ids[1], keys[1])
    assert await door.viewed() == call
    await door.finish(call)
    door.hint(f"call.{call}")
    assert (await again.response())["result"]["content"] == [{"type": "text", "text": "done"}]
    another = keyed(door, token, session, ids[2], keys[2])
    assert await door.viewed() != call
    another.leaves()
    await another.ends()


def cancel(door: Door, token: str, session: str, id: int) -> Asked:
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    return door.post(token, "files", notice, mcp_session_id=session, mcp_protocol_version=LEGACY)


async def test_nothing_follows_to_a_request_that_its_agent_cancelled_and_all_others_of_the_call_hear_its_end(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    session, other = await door.session(token, "files"), await door.session(token, "files")
    first = keyed(door, token, session, 1, "k")
    call = await door.viewed()
    second, foreign = keyed(door, token, session, 2, "k"), keyed(door, token, other, 1, "k")
    async with asyncio.timeout(30):
        while await door.thread(AgentAttachment.objects.count) < 2:  # noqa: ASYNC110 - another thread writes them
            await asyncio.sleep(0.01)
    await cancel(door, token, session, 2).ends()
    door.hint(f"call.{call}")
    await second.ends()
    assert b"result" not in second.sent
    attached = await door.thread(AgentAttachment.objects.get, session__key=session)
    resumed = door.get(token, "files", session, last_event_id=f"{call}.{attached.pk}:0")
    await resumed.ends()
    assert resumed.status == 204
    for asked in (first, foreign, keyed(door, token, session, 3, "k")):
        result = (await asked.response())["result"]
        assert (result["isError"], result["_meta"]["mcpadmin/outcome"]) == (True, "cancelled")
    assert await door.thread(Call.objects.count) == 1


async def test_a_key_whose_first_request_was_cancelled_leads_to_what_became_of_its_call(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")
    first = keyed(door, token, session, 1, "k")
    call = await door.viewed()
    await cancel(door, token, session, 1).ends()
    door.hint(f"call.{call}")
    await first.ends()
    assert b"result" not in first.sent
    result = (await keyed(door, token, session, 2, "k").response())["result"]
    assert (result["isError"], result["_meta"]["mcpadmin/outcome"]) == (True, "cancelled")


async def test_a_rule_counts_calls_and_no_request_that_leads_to_an_earlier_one(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "time", SimpleNamespace(time=lambda: 600.0, monotonic=time.monotonic))
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ALLOW, calls_per_minute=2))
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")

    async def viewed(id: int, key: str, **arguments: Any) -> Any:
        asked = keyed(door, token, session, id, key, **arguments)
        call = await door.viewed()
        asked.leaves()
        await asked.ends()
        return call

    first = await viewed(1, "a")
    assert [await viewed(id, "a") for id in (2, 3)] == [first, first], "below the limit"
    assert await viewed(4, "b", other=1) != first
    refused = keyed(door, token, session, 5, "c", other=2)
    assert "calls of echo a minute" in (await refused.response())["error"]["message"]
    assert refused.status == 429
    assert [await viewed(id, "a") for id in (6, 1)] == [first, first], "at the limit"
    assert await door.thread(Call.objects.count) == 2


async def test_an_answer_to_a_server_is_no_further_call_for_a_rule(ada: Any, door: Door) -> None:
    await door.thread(lambda: rule(make_listed("files"), PolicyEffect.ALLOW, calls_per_minute=1))
    principal = await door.thread(lambda: principal_of(token_of(ada), ""))
    entry = await door.thread(entry_of, principal, "files", "")
    known = await door.thread(policy_check.policies_of, entry)
    for era, params, counted in (
        (Era.MODERN, ECHO, 1),
        (Era.MODERN, ECHO | {"requestState": "x"}, 0),
        (Era.MODERN, ECHO | {"inputResponses": {}}, 1),
        (Era.LEGACY, ECHO | {"requestState": "x"}, 1),
    ):
        asked = Exchange(entry, era, LEGACY, 0, "tools/call", params, {}, "192.0.2.7", "request-0001")
        assert len(quotas.of_rules(known, asked, call_request_of(asked))) == counted


async def test_a_call_that_returned_after_its_agent_had_left_answers_its_key_and_no_equal_call(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    session = await door.session(token, "files")
    first = keyed(door, token, session, 1, "k")
    call = await door.viewed()
    first.leaves()
    await first.ends()
    await door.finish(call)
    another = keyed(door, token, session, 2, "")
    assert await door.viewed() != call
    another.leaves()
    await another.ends()
    assert (await keyed(door, token, session, 3, "k").response())["result"]["content"][0]["text"] == "done"


async def left_running(door: Door, token: str, session: str, number: int) -> UUID:
    """A call whose legacy agent disconnects while it runs."""
    asked = door.legacy(token, "files", session, "tools/call", numbered(number), id=number)
    call = await door.viewed()
    asked.leaves()
    await asked.ends()
    return call


def numbered(number: int) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"number": number}}


async def test_calls_that_run_without_their_agent_count_as_in_flight_until_they_end(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    policy = {"token": (await door.thread(principal_of, token, "")).token, "calls_in_flight": 2}
    await door.thread(AgentPolicy.objects.create, **policy)
    session = await door.session(token, "files")
    first, second = [await left_running(door, token, session, number) for number in (1, 2)]
    refused = door.legacy(token, "files", session, "tools/call", numbered(3), id=3)
    error = (await refused.response())["error"]
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert (error["data"]["reason"], error["data"]["retryAfterMs"]) == ("agent_calls_in_flight", 1000)
    assert await door.thread(Call.objects.count) == 2
    again = door.legacy(token, "files", session, "tools/call", numbered(2), id=2)  # joins its own call
    assert await door.viewed() == second
    await door.finish(first)
    another = door.legacy(token, "files", session, "tools/call", numbered(3), id=4)
    async with asyncio.timeout(30):
        while await door.thread(Call.objects.count) < 3:
            assert another.open, another.sent
            await asyncio.sleep(0.01)
    for asked in (again, another):
        asked.leaves()
        await asked.ends()


async def test_calls_that_the_api_started_count_as_in_flight_of_all_tokens_of_their_user(
    ada: Any, door: Door, settings: Any
) -> None:
    settings.AGENT_PERSON_IN_FLIGHT = 1
    await door.thread(make_listed, "files")
    one, other = [await door.thread(token_of, ada) for _ in range(2)]

    async def start(token: str, number: int) -> UUID:
        return await door.application.requests.start(await door.thread(api_exchange, token, number))

    assert await start(one, 1)
    with pytest.raises(Refusal) as refused:
        await start(other, 2)
    assert (refused.value.status, refused.value.data["reason"]) == (429, "agent_person_in_flight")


def api_exchange(token: str, number: int) -> Exchange:
    entry = entry_of(principal_of(token, ""), "files", "")
    return Exchange(entry, Era.MODERN, "2026-07-28", 1, "tools/call", numbered(number), {}, "", "")


def test_what_may_have_run_is_repeated_only_with_an_approval_where_the_policy_says_so(ada: Any) -> None:
    session = make_listed("files")
    policy = AgentPolicy.objects.create(server=session.server)
    principal, check = principal_of(token_of(ada), ""), PolicyCheck()

    def ends(call: Call, state: CallState, minutes: int = 0, **more: Any) -> None:
        finished_at = timezone.now() - timedelta(minutes=minutes)
        Call.objects.filter(pk=call.pk).update(state=state, finished_at=finished_at, **more)

    def repeated(number: int, **tool: Any) -> Call:
        Definition.objects.update(body=json.dumps({"name": "echo", "inputSchema": {"type": "object"}, **tool}))
        return place(check, principal, "files", "echo", number=number)

    unsure = {1: (CallState.OUTCOME_UNKNOWN, 0), 2: (CallState.CANCELLED, 9), 3: (CallState.OUTCOME_UNKNOWN, 11)}
    for number, (state, minutes) in unsure.items():  # their agents were told so
        ends(repeated(number), state, minutes, may_have_run=state is CallState.CANCELLED)
    ends(repeated(4), CallState.FAILED, may_have_run=False)
    ends(repeated(1), CallState.OUTCOME_UNKNOWN)  # by default, repeating it is the agent's decision

    AgentPolicy.objects.filter(pk=policy.pk).update(asks_to_repeat=True)
    policy_check.memory.forget()
    assert [repeated(number).state for number in (1, 2)] == [CallState.HELD] * 2
    assert [repeated(number).state for number in (3, 4, 5)] == [CallState.REQUESTED] * 3
    why = set(Approval.objects.values_list("why", flat=True))
    assert why == {"It is not known whether an identical call ran a short time ago."}
    other = principal_of(token_of(ada), "")
    assert place(check, other, "files", "echo", number=1).state == CallState.REQUESTED

    ends(repeated(6, annotations={"idempotentHint": True}), CallState.OUTCOME_UNKNOWN)
    AgentPolicy.objects.filter(pk=policy.pk).update(trusts_annotations=True)
    policy_check.memory.forget()
    assert repeated(6, annotations={"idempotentHint": True}).state == CallState.REQUESTED


def test_a_call_that_waits_for_approval_does_not_count_as_in_flight(ada: Any, settings: Any) -> None:
    settings.AGENT_CALLS_IN_FLIGHT = 1
    session = make_listed("files")
    principal, check = principal_of(token_of(ada), ""), PolicyCheck()
    place(check, principal, "files", "echo", number=1)
    with pytest.raises(idempotency.TooManyRunning):
        place(check, principal, "files", "echo", number=2)
    rule(session, PolicyEffect.ASK)
    assert place(check, principal, "files", "echo", number=2).state == CallState.HELD
