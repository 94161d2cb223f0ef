"""Each call through a real worker ends once and is sent at most once, whatever happens to the messages."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import F
from django.utils import timezone

from servers import crypto
from servers.audit import payloads
from servers.enums import AuditAction
from servers.models import AuditEvent, Server, ServerValue
from sessions import hints
from sessions.enums import CallState
from sessions.explorer import language, search
from sessions.models import Attempt, Call, LogLine, McpSession
from tests.sessions.host.harness import (
    Effects,
    WorkerProcess,
    await_ready,
    effect_session,
    ended,
    eventually,
    is_ready,
    wake,
)
from tests.sessions.host.make import make_call
from tests.tools.valkey import flush

pytestmark = pytest.mark.integration


@pytest.fixture
def worker(shared_worker: WorkerProcess) -> WorkerProcess:
    return shared_worker


@pytest.fixture
def session(worker: WorkerProcess, effects: Effects) -> McpSession:
    """A ready session whose tools are known."""
    session = effect_session(effects)
    await_ready(session)
    eventually(lambda: session.server.definitions.filter(key="shaped").exists())
    return session


def restart(session: McpSession) -> None:
    before = await_ready(session).connected_at
    McpSession.objects.update(restart_requested=F("restart_requested") + 1)
    eventually(lambda: (row := is_ready(session)) and row.connected_at != before)


def run(session: McpSession, tool: str, **arguments: Any) -> Call:
    call = make_call(session, tool, **arguments)
    wake(call)
    return ended(call)


def result(call: Call) -> dict[str, Any]:
    return json.loads(payloads.read(call.result) or "")


def test_a_call_records_its_way_over_the_wire_and_its_words_are_found(
    worker: WorkerProcess, session: McpSession
) -> None:
    person = get_user_model().objects.create_superuser("root", password="x")
    call = run(session, "echo", text="Quokka")
    assert call.duration_ms is not None
    event = AuditEvent.objects.get(call_uid=call.uid, action=AuditAction.CALL_FINISH)
    context = json.loads(event.body)["context"]
    assert context["session"] == str(session.uid)
    assert context["request_id"]
    assert (context["era"], context["revision"]) == ("legacy", "2025-11-25")
    assert (context["duration_ms"], context["bytes_in"]) == (call.duration_ms, call.arguments.size)
    assert call.result is not None
    assert context["bytes_out"] == call.result.size
    query = language.parse("quokka in:calls", timezone.now())
    eventually(lambda: [row.call_uid for row in search.page(person, query).rows] == [str(call.uid)])


def test_the_three_ways_in_which_a_call_can_end_look_different(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    good, bad, refused = run(session, "echo", text="hello"), run(session, "fail"), run(session, "rpc")
    assert (good.state, result(good)["content"][0]["text"]) == (CallState.SUCCEEDED, "hello")
    assert (bad.state, result(bad)["isError"]) == (CallState.TOOL_ERROR, True)
    assert (refused.state, refused.error_code, refused.error_message) == (CallState.RPC_ERROR, -32602, "no such thing")
    assert json.loads(refused.error_data) == {"why": "x"}
    for call in (good, bad, refused):
        actions = AuditEvent.objects.filter(call_uid=call.uid).order_by("seq").values_list("action", flat=True)
        assert list(actions) == [AuditAction.CALL_SEND, AuditAction.CALL_FINISH]
    assert [effects.count(name) for name in ("echo hello", "fail", "rpc")] == [1, 1, 1]


def test_the_same_message_a_hundred_times_has_one_effect(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    call = make_call(session, "echo", text="once")
    for _ in range(100):
        wake(call)
    assert ended(call).state == CallState.SUCCEEDED
    wake(call)
    run(session, "echo", text="after")
    assert effects.count("echo once") == 1
    assert Attempt.objects.filter(call=call).count() == 1


def test_a_hundred_calls_at_once_have_a_hundred_effects(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    calls = [make_call(session, "echo", text=f"number {number}.") for number in range(100)]
    for call in calls:
        wake(call)
    assert {ended(call, 60).state for call in calls} == {CallState.SUCCEEDED}
    assert sorted(line for line in effects.lines() if line.startswith("echo number")) == sorted(
        f"echo number {n}." for n in range(100)
    )


def test_a_call_whose_message_was_lost_with_all_of_redis_is_found_by_the_tick(
    worker: WorkerProcess, session: McpSession, effects: Effects, valkey_server: Path
) -> None:
    call = make_call(session, "echo", text="lost")
    flush(valkey_server)
    assert ended(call).state == CallState.SUCCEEDED
    assert effects.count("echo lost") == 1


def test_a_cancelled_call_is_cancelled_at_the_server_too(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    call = make_call(session, "slow", seconds=20, text="first")
    wake(call)
    eventually(lambda: effects.count("slow first"))
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    wake(call, "cancel")
    done = ended(call)
    assert (done.state, done.fault) == (CallState.CANCELLED, "cancelled")
    eventually(lambda: effects.count("cancelled slow"))


def test_a_cancellation_whose_message_was_lost_is_found_by_the_tick(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    call = make_call(session, "slow", seconds=20, text="second")
    wake(call)
    eventually(lambda: effects.count("slow second"))
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    assert ended(call).state == CallState.CANCELLED


def test_an_answer_that_comes_after_the_time_is_over_is_kept_as_late(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    servers = Server.objects.filter(pk=session.server_id)
    servers.update(total_timeout_seconds=1, request_timeout_seconds=1)
    restart(session)
    call = run(session, "slow", seconds=2, stubborn=True)
    assert (call.state, call.fault, call.result) == (CallState.OUTCOME_UNKNOWN, "timeout", None)
    assert "may have run" in call.detail
    late = eventually(lambda: Call.objects.select_related("late_result").get(pk=call.pk).late_result)
    assert json.loads(payloads.read(late) or "")["content"][0]["text"] == "at last"
    assert Call.objects.get(pk=call.pk).state == CallState.OUTCOME_UNKNOWN


def test_progress_is_on_the_row_while_the_call_runs(worker: WorkerProcess, session: McpSession) -> None:
    call = make_call(session, "slow", seconds=3)
    wake(call)
    eventually(lambda: Call.objects.get(pk=call.pk).progress_message.startswith("step "))
    assert ended(call).state == CallState.SUCCEEDED


def test_a_result_that_breaks_the_tools_own_schema_is_kept_and_noted(
    worker: WorkerProcess, session: McpSession
) -> None:
    call = run(session, "shaped")
    assert call.state == CallState.SUCCEEDED
    assert "/n" in call.schema_violation
    assert call.schema_valid is False


def test_a_secret_of_the_server_comes_back_neither_in_results_nor_in_logs(
    worker: WorkerProcess, session: McpSession, effects: Effects
) -> None:
    value = ServerValue(server=session.server, kind="environment", name="TOKEN", secret=True)
    value.sealed, value.key_id = crypto.seal(
        "tok-4711-secret", table=ServerValue._meta.db_table, uid=value.uid, field="sealed"
    )
    value.save()
    restart(session)
    call = run(session, "leak")
    assert "the token is [redacted]" in result(call)["content"][0]["text"]
    line = eventually(LogLine.objects.filter(text__contains="my token is").first)
    assert line.text == "my token is [redacted]"
    assert "tok-4711" not in worker.output


def test_messages_of_strangers_are_dropped_and_the_worker_goes_on(worker: WorkerProcess, session: McpSession) -> None:
    row = worker.row()
    assert row is not None
    strange = [[], {"v": 2}, {"v": 1, "verb": "explode", "id": str(uuid.uuid4())}, {"v": 1, "verb": "call", "id": "x"}]
    strange += [{"v": 1, "verb": "call", "id": str(uuid.uuid4())}, "text", {"v": 1, "verb": ["call"], "id": None}]
    strange += [
        {"v": 1, "verb": "call", "id": str(uuid.uuid4()), "session": odd} for odd in ("x", [], float("inf"), 4711)
    ]
    tell = async_to_sync(get_channel_layer().group_send)
    for body in ({"wakes": strange}, {"wakes": "text"}, {"wakes": None}, {"hints": [1]}, {}):
        tell(hints.worker_group(row.uid), body)
    with redis.Redis.from_url(settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]) as server:
        for raw in (b"\xff\xfe", b"", b"{" * 5000):
            assert server.publish(f"mcpadmin__group__{hints.worker_group(row.uid)}", raw) == 1
    assert run(session, "echo", text="still here").state == CallState.SUCCEEDED


def test_a_call_that_no_one_could_send_in_time_lapses(worker: WorkerProcess, session: McpSession) -> None:
    McpSession.objects.update(desired="closed")
    eventually(lambda: McpSession.objects.get().owner is None)
    call = ended(make_call(session, "echo", lapses_in=0.5))
    assert (call.state, call.sent_at) == (CallState.EXPIRED, None)
