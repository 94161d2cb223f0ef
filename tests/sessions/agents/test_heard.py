"""A call that needed approval is answered once, by whichever way its agent hears the end; a further equal one is another."""

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
from sessions.models import McpSession
from tests.sessions.agents.door import Door, finish, make_listed, token_of
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


def test_a_denied_call_that_could_not_be_recorded_is_recorded_the_next_time(
    ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(make_listed("files"), PolicyEffect.DENY)
    text, real, refused = token_of(ada), policy_check.rights.record_refusal, list[Exception]()

    def record(*given: Any, **more: Any) -> None:
        if not refused:
            refused.append(RuntimeError("The database is away."))
            raise refused[0]
        real(*given, **more)

    monkeypatch.setattr(policy_check.rights, "record_refusal", record)

    principal, check = principal_of(text, ""), PolicyCheck()
    for expected in (RuntimeError, Forbidden, Forbidden):
        with pytest.raises(expected):
            place(check, principal, "files", "echo")
    assert AuditEvent.objects.filter(subject="echo").count() == 1
