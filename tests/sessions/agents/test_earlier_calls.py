"""The calls of before that a new one may repeat are found in one statement, and each by an index."""

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from servers.audit import payloads
from servers.audit.writer import AuditUnavailable
from servers.enums import PayloadKind
from sessions.agents import asgi, endpoints
from sessions.agents.calls import earlier_calls, idempotency
from sessions.agents.calls.earlier_calls import ATTACHED, ATTACHED_KEY, CONTINUES, KEY, REQUEST, UNHEARD
from sessions.calls import statements
from sessions.enums import CallState
from sessions.models import AgentAttachment, AgentCall, Call
from tests.servers.conftest import person
from tests.sessions.agents.door import Door, make_listed, token_of
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def called(token: int, at: datetime = NOW, **columns: Any) -> AgentCall:
    arguments = payloads.store(PayloadKind.ARGUMENTS, "{}")
    call = Call.objects.create(
        server_name="s", method="tools/call", target="t", arguments=arguments, deadline=at, created_at=at
    )
    return AgentCall.objects.create(call=call, token_id=token, token_name="laptop", **{"same": "0", **columns})


def test_each_reason_finds_its_call_in_one_statement(django_assert_num_queries: Any) -> None:
    ann = person("ann", "view_server", "call_tool")
    token, other = (principal_of(ann, name=name).token.pk for name in ("laptop", "other"))
    old = NOW - timedelta(hours=1)
    continued = called(token)
    found = {
        CONTINUES: called(other, continues=continued),
        KEY: called(token, key="k"),
        UNHEARD: called(token, same="1", unheard_at=NOW),
        ATTACHED_KEY: called(token, key="first"),
    }
    AgentAttachment.objects.create(call=found[ATTACHED_KEY], token_id=token, key="k")
    AgentAttachment.objects.create(call=found[KEY], token_id=other, key="k")
    for strange in ({"same": "1"}, {"same": "1", "unheard_at": NOW, "at": old}, {"key": "other"}):
        called(token, **strange)
    called(other, key="k", same="1", unheard_at=NOW)
    row = {
        "token_id": token,
        "same": "1",
        "key": "k",
        "session_id": None,
        "request_id": "",
        "continues_id": continued.pk,
    }
    with django_assert_num_queries(1):
        seen = earlier_calls.earlier_calls(row, NOW - timedelta(minutes=10))
    assert {one.why: one.call.uid for one in seen} == {why: one.call.uid for why, one in found.items()}
    assert [one.call.created_at for one in seen] == [NOW] * len(found)


def test_each_reason_has_an_index() -> None:
    sql = earlier_calls._sql((CONTINUES, REQUEST, ATTACHED, KEY, ATTACHED_KEY, UNHEARD))
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", [1, 1, "1", 1, "1", 1, "k", 1, "k", 1, "0", NOW])
        plan = [row[3] for row in cursor.fetchall()]
    assert [step for step in plan if step.startswith("SCAN")] == []
    names = ("agent_request_once", "agent_key_once", "agent_attached_key_once", "agent_calls_unheard")
    assert [name for name in names if name not in str(plan)] == []


def test_running_calls_are_counted_without_reading_the_others_of_their_user() -> None:
    ann = person("ann", "view_server", "call_tool")
    token = principal_of(ann).token.pk
    states = [CallState.REQUESTED, CallState.SENT, CallState.HELD, CallState.SUCCEEDED, CallState.OUTCOME_UNKNOWN]
    for state in states:
        Call.objects.filter(pk=called(token).call_id).update(state=state, user=ann)
    Call.objects.filter(pk=called(token).call_id).update(state=CallState.SENT, user=person("bob"))
    assert earlier_calls.running_calls(ann.pk) == {token: 2}
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {earlier_calls._RUNNING}", [ann.pk])
        plan = [row[3] for row in cursor.fetchall()]
    assert [step for step in plan if "calls_by_user" in step or step.startswith("SCAN")] == []
    assert "calls_by_outcome" in str(plan)


def test_calls_that_may_have_run_are_found_by_their_state() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statements._UNSURE}", ["failed", 1, "0", NOW])
        plan = str([row[3] for row in cursor.fetchall()])
    assert "calls_by_outcome" in plan
    assert "token_id" not in plan


def test_an_endpoint_is_read_in_one_statement_and_its_session_in_another(django_assert_num_queries: Any) -> None:
    session = make_session()
    principal = principal_of(person("ann", "view_server", "call_tool"))
    with django_assert_num_queries(1):
        entry = endpoints.entry_of(principal, session.server.slug, "")
    assert (entry.endpoint.server, entry.endpoint.session) == (session.server, session)
    with django_assert_num_queries(2), pytest.raises(endpoints.NoSession):
        endpoints.entry_of(principal, session.server.slug, "unknown")


@pytest.mark.django_db(transaction=True)
def test_a_process_that_starts_counts_what_lately_had_no_answer_as_not_heard() -> None:
    token = principal_of(person("ann", "view_server", "call_tool")).token.pk
    states = [CallState.REQUESTED, CallState.SENT, CallState.OUTCOME_UNKNOWN, CallState.SUCCEEDED, CallState.HELD]
    calls = {state: called(token, at=timezone.now()) for state in states}
    old = called(token, at=timezone.now() - timedelta(hours=1))
    for state, one in [*calls.items(), (CallState.SENT, old)]:
        Call.objects.filter(pk=one.call_id).update(state=state)
    idempotency.mark_orphans_undelivered()
    unheard = set(AgentCall.objects.exclude(unheard_at=None).values_list("call__state", "pk"))
    assert unheard == {(state.value, calls[state].pk) for state in states[:3]}


@pytest.mark.django_db(transaction=True)
async def test_requests_share_one_attempt_at_what_others_left_behind_and_its_failure(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float] = []

    def fails() -> None:
        attempts.append(time.monotonic())
        time.sleep(0.2)
        raise AuditUnavailable("The audit log is not available.")

    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    with monkeypatch.context() as patched:
        patched.setattr(idempotency, "mark_orphans_undelivered", fails)
        asked = [door.modern(token, "files", "tools/call", {"name": "echo", "arguments": {}}, id=n) for n in range(20)]
        for one in asked:
            await one.ends()
    assert {(one.status, one.headers["retry-after"]) for one in asked} == {(503, "2")}
    assert len(attempts) <= 3  # a request that arrives after the end of one begins another
    call = door.modern(token, "files", "tools/call", {"name": "echo", "arguments": {}}, id="next")
    await door.finish(uid := await door.viewed())
    door.hint(f"call.{uid}")
    await call.ends()
    assert call.status == 200


@pytest.mark.django_db(transaction=True)
async def test_the_log_names_what_a_request_waits_for_that_has_no_answer_for_long(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    monkeypatch.setattr(asgi, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(idempotency, "mark_orphans_undelivered", lambda: time.sleep(0.6))
    call = door.modern(token, "files", "tools/call", {"name": "echo", "arguments": {}})
    await door.finish(uid := await door.viewed())
    door.hint(f"call.{uid}")
    await call.ends()
    [line] = [one.msg for one in caplog.records if "agent_not_answered" in str(one.msg)]
    assert (line["path"], line["step"]) == ("/mcp/files", "inherit")
