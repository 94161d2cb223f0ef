"""Each kind is kept by its own age and size; what is still needed stays; the log of what went is in the log."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.proof import alarms
from servers.audit.record import SYSTEM, Actor, Event, record_many
from servers.audit.verify import verify
from servers.definitions.versions import store_listing
from servers.enums import (
    AlarmKind,
    AuditAction,
    AuditOutcome,
    DefinitionKind,
    IdentityKind,
    PayloadKind,
    SignsInAs,
    SinkKind,
)
from servers.models import AuditEvent, BackgroundJob, Checkpoint, Identity, Instance, Payload, Sink
from servers.signals import payload_erased, rows_removed
from sessions.calls import agent_calls, placing
from sessions.calls.placing import SubmittedArguments
from sessions.connections import commands
from sessions.enums import CallState, Desired, LogSource, QuestionKind, QuestionState, StoredKind
from sessions.host.logs import store
from sessions.host.logs.line import ServerLogLine
from sessions.live import feeds
from sessions.live.topics import Topic, TopicKind
from sessions.models import (
    AgentAttachment,
    AgentCall,
    AgentRound,
    AgentSession,
    Attempt,
    Call,
    LogLine,
    McpSession,
    Question,
    ResourceVersion,
    RetentionLimit,
    ServerTask,
    StorageHour,
)
from sessions.retention import batched_deletes, job, ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.limits import Limit
from sessions.retention.plan import Removal, plan
from sessions.tasks import start_retention
from tests.servers.audit.proof.log import new_key
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.harness import eventually
from tests.sessions.host.make import make_hold, make_session
from tests.sessions.retention.rows import call_at, days_ago, line_at
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def session() -> McpSession:
    return make_session("tools")


def silent(done: int, total: int | None = None) -> None:
    pass


def keep(kind: StoredKind, *, days: int | None = None, size: int | None = None) -> None:
    RetentionLimit.objects.update_or_create(kind=kind, defaults={"days": days, "bytes": size})


def run(now: datetime | None = None) -> str:
    return job.run(silent, now).detail  # type: ignore[arg-type]  # called as a progress is


# --- the ledger ----------------------------------------------------------------------------------------------------------
def test_the_ledger_counts_every_row_once_however_often_it_runs(session: McpSession) -> None:
    for days in (3.0, 2.0, 1.0):
        call_at(session, days_ago(days))
    for _ in range(3):
        ledger.measure_all()
    assert ledger.total(StoredKind.CALLS).rows == 3
    assert ledger.total(StoredKind.PAYLOADS).rows == 6
    assert StorageHour.objects.filter(kind=StoredKind.CALLS).count() == 3
    call_at(session, days_ago(0.5))
    ledger.measure_all()
    assert ledger.total(StoredKind.CALLS).rows == 4


def test_a_row_of_this_moment_is_counted_when_no_older_one_can_come_any_more(session: McpSession) -> None:
    call_at(session, timezone.now())
    ledger.measure_all()
    assert ledger.total(StoredKind.CALLS).rows == 0
    ledger.measure_all(timezone.now() + timedelta(minutes=3))
    assert ledger.total(StoredKind.CALLS).rows == 1


def test_the_bytes_of_contents_are_those_that_are_stored(session: McpSession) -> None:
    call_at(session, days_ago(1), size=1000)
    ledger.measure_all()
    texts = sum(len(row.text) for row in Payload.objects.all())
    overhead = 2 * 350
    assert ledger.total(StoredKind.PAYLOADS).bytes == texts + 2 * 16 + overhead  # with their salts


def elsewhere(work: Callable[[], object]) -> None:
    """Like another job, on a separate connection."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def after_reading(table: str, then: Callable[[], object]) -> Any:
    """Elsewhere, as soon as this connection has read rows of the table and before it writes: once."""
    left = [then]

    def hook(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if f'FROM "{table}"' in sql and left:
            elsewhere(left.pop())
        return found

    return connection.execute_wrapper(hook)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CHUNK", 2)


@pytest.mark.usefixtures("small_chunks")
def test_a_dry_run_in_the_middle_of_a_run_counts_no_row_twice(session: McpSession) -> None:
    for number in range(5):
        call_at(session, days_ago(3))
        line_at(session, days_ago(3), number)
    with after_reading("mcp_sessions_call", ledger.measure_all):
        ledger.measure_all(on_progress=lambda rows: elsewhere(ledger.measure_all))
    assert ledger.total(StoredKind.CALLS).rows == 5
    assert ledger.total(StoredKind.PAYLOADS).rows == 10
    assert ledger.total(StoredKind.LOGS).rows == 4, "the newest line always stays"
    assert sum(entry.last - entry.first + 1 for entry in StorageHour.objects.filter(kind=StoredKind.CALLS)) == 5


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


@pytest.mark.usefixtures("on_postgres")
def test_on_postgresql_a_measurement_waits_for_another_that_is_under_way_and_counts_on_after_it() -> None:
    session = make_session("tools")
    call_at(session, days_ago(3))
    calls = stored_kinds()[StoredKind.CALLS]
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert ledger._enter(StoredKind.CALLS, list(calls.sized()), 0)
            second = pool.submit(elsewhere, partial(ledger.measure, calls))
            eventually(waits_for_a_lock)
        second.result()
    assert ledger.total(StoredKind.CALLS).rows == 1


def test_rows_that_a_dry_run_enters_while_what_is_left_is_counted_stay_counted(session: McpSession) -> None:
    at = days_ago(3).replace(minute=0)
    call_at(session, at)
    ledger.measure_all()
    call_at(session, at)
    entry = StorageHour.objects.get(kind=StoredKind.CALLS)
    with after_reading("mcp_sessions_call", ledger.measure_all):
        ledger.recount(stored_kinds()[StoredKind.CALLS], entry.first, entry.last)
    assert ledger.total(StoredKind.CALLS).rows == 2


# --- calls ---------------------------------------------------------------------------------------------------------------
def test_old_calls_go_with_attempts_and_payloads_and_young_ones_stay(session: McpSession) -> None:
    old, young = call_at(session, days_ago(40)), call_at(session, days_ago(2))
    keep(StoredKind.CALLS, days=30)
    assert run() == "Removed calls: 1."
    assert list(Call.objects.all()) == [young]
    assert set(Payload.objects.values_list("pk", flat=True)) == {young.arguments_id, young.result_id}
    assert Attempt.objects.get().call_id == young.pk
    assert ledger.total(StoredKind.CALLS).rows == 1
    assert ledger.total(StoredKind.PAYLOADS).rows == 2
    assert not Call.objects.filter(pk=old.pk).exists()


@pytest.mark.parametrize("kind", [StoredKind.CALLS, StoredKind.PAYLOADS])
def test_the_log_verifies_after_calls_or_their_contents_are_gone(kind: StoredKind) -> None:
    """The calls are placed and cancelled as people do it; the clock of the retention is ahead."""
    user = person("ann", "view_server", "call_tool")
    session = make_session("tools")
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    store_listing(session.server, DefinitionKind.TOOL, [tool], session.state_since)
    for _ in range(3):
        call = placing.place(Actor.of_user(user), user, session.server, "echo", SubmittedArguments(value={}))
        assert placing.cancel(Actor.of_user(user), user, call)
    keep(kind, days=30)
    run(timezone.now() + timedelta(days=40))
    assert Payload.objects.filter(erased_at=None).count() == 0
    verdict = verify()
    assert verdict.ok, verdict.reason


def test_a_call_that_has_not_ended_stays_and_is_still_counted(session: McpSession) -> None:
    waiting = call_at(session, days_ago(40), state=CallState.SENT)
    call_at(session, days_ago(40))
    keep(StoredKind.CALLS, days=30)
    assert run() == "Removed calls: 1."
    assert Call.objects.get() == waiting
    assert ledger.total(StoredKind.CALLS).rows == 1
    Call.objects.update(state=CallState.FAILED)
    assert run() == "Removed calls: 1."
    assert not Call.objects.exists()


def test_a_call_whose_task_is_followed_on_stays_until_that_has_ended(session: McpSession) -> None:
    lost = call_at(session, days_ago(3), state=CallState.OUTCOME_UNKNOWN)
    call_at(session, days_ago(3), state=CallState.OUTCOME_UNKNOWN)
    begun = {"begun_at": days_ago(3), "changed_at": days_ago(3), "seen_at": days_ago(3)}
    ServerTask.objects.create(call=lost, session=session, task_id="t", status="working", **begun)
    keep(StoredKind.CALLS, days=2)
    assert run() == "Removed calls: 1."
    assert Call.objects.get() == lost
    ServerTask.objects.update(begun_at=days_ago(8))
    assert run() == "Removed calls: 1."
    assert not Call.objects.exists()


def test_calls_of_programs_go_with_what_only_they_have_and_a_younger_one_stays(session: McpSession) -> None:
    old, young = call_at(session, days_ago(3)), call_at(session, days_ago(1))
    first = AgentCall.objects.create(call=old, token_name="laptop", same="a")
    AgentCall.objects.create(call=young, token_name="laptop", same="a", continues=first)
    agent_session = AgentSession.objects.create(
        token=principal_of(person("ann", "view_server", "call_tool")).token,
        server=session.server,
        created_at=days_ago(3),
        last_seen_at=days_ago(1),
    )
    AgentAttachment.objects.create(call=first, session=agent_session, request_id="2")
    AgentAttachment.objects.create(call=first, token=agent_session.token, key="second")
    row = agent_calls.sealed({"requestState": "theirs"}, back=True)
    row.call_id = old.pk
    row.save(force_insert=True)
    keep(StoredKind.CALLS, days=2)
    run()
    assert [agent.call_id for agent in AgentCall.objects.all()] == [young.pk]
    assert AgentCall.objects.get().continues is None
    assert not AgentRound.objects.exists()
    assert not AgentAttachment.objects.exists()


def test_a_call_that_an_agent_may_repeat_outlasts_a_limit_by_size(session: McpSession) -> None:
    calls = [call_at(session, days_ago(days)) for days in (2, 0.5, 0.4)]
    for number, call in enumerate(calls[:2]):
        AgentCall.objects.create(call=call, token_name="laptop", same=str(number), key=f"key-{number}")
    keep(StoredKind.CALLS, size=1)
    run()
    assert [call.pk for call in Call.objects.all()] == [calls[1].pk]


def test_a_call_that_repeats_a_removed_one_stays(session: McpSession) -> None:
    old, young = call_at(session, days_ago(40)), call_at(session, days_ago(1))
    Call.objects.filter(pk=young.pk).update(repeats=old)
    keep(StoredKind.CALLS, days=30)
    run()
    assert Call.objects.get().repeats_id is None


def ask(session: McpSession, at: datetime, state: QuestionState, call: Call | None = None) -> Question:
    return Question.objects.create(
        session=session,
        server=session.server,
        server_name="Tools",
        call=call,
        kind=QuestionKind.FORM,
        method="elicitation/create",
        origin="request",
        question=payloads.store(PayloadKind.QUESTION, "{}"),
        state=state,
        created_at=at,
        expires_at=at,
    )


def test_requests_of_servers_go_with_their_call_or_at_its_age(session: McpSession) -> None:
    old = call_at(session, days_ago(40))
    ask(session, days_ago(40), QuestionState.ACCEPTED, old)
    ask(session, days_ago(41), QuestionState.DECLINED)
    open_one = ask(session, days_ago(41), QuestionState.OPEN)
    young = ask(session, days_ago(1), QuestionState.DECLINED)
    keep(StoredKind.CALLS, days=30)
    run()
    assert set(Question.objects.all()) == {open_one, young}
    assert Payload.objects.filter(kind=PayloadKind.QUESTION).count() == 2


# --- contents ------------------------------------------------------------------------------------------------------------
def test_contents_go_before_their_calls_and_digests_stay(session: McpSession) -> None:
    old, young = call_at(session, days_ago(40)), call_at(session, days_ago(2))
    heard: list[int] = []

    def hear(payload_ids: list[int], **_: Any) -> None:
        heard.extend(payload_ids)

    payload_erased.connect(hear)
    keep(StoredKind.PAYLOADS, days=30)
    assert run() == "Removed arguments and results: 2."
    payload_erased.disconnect(hear)
    assert sorted(heard) == sorted([old.arguments_id, old.result_id])
    gone, kept = Call.objects.get(pk=old.pk), Call.objects.get(pk=young.pk)
    assert payloads.read(gone.arguments) is None
    assert gone.arguments.digest == old.arguments.digest
    assert payloads.read(kept.arguments) is not None
    assert run() == "Measured. Nothing exceeds its limit.", "what is emptied is not looked at again"


def test_arguments_that_are_still_to_be_sent_keep_their_content(session: McpSession) -> None:
    waiting = call_at(session, days_ago(40), state=CallState.REQUESTED)
    keep(StoredKind.PAYLOADS, days=30)
    run()
    assert payloads.read(Call.objects.get(pk=waiting.pk).arguments) is not None


def test_an_answer_that_was_not_delivered_yet_keeps_its_content(session: McpSession) -> None:
    asked = [ask(session, days_ago(40), QuestionState.ACCEPTED) for _ in range(3)]
    for question in asked:
        question.answer = payloads.store(PayloadKind.ANSWER, "{}")
        question.save()
    waiting, delivered, lost = (question.pk for question in asked)
    Question.objects.filter(pk=delivered).update(delivered_at=timezone.now())
    Question.objects.filter(pk=lost).update(detail="The worker stopped before it could deliver this answer.")
    Payload.objects.update(created_at=days_ago(40))
    keep(StoredKind.PAYLOADS, days=30)
    assert run() == "Removed arguments and results: 4."
    read = dict(Question.objects.values_list("pk", "answer__erased_at"))
    assert read[waiting] is None
    assert None not in (read[delivered], read[lost])


def test_contents_that_were_still_needed_go_when_their_call_has_ended(session: McpSession) -> None:
    at = days_ago(40).replace(minute=0)
    waiting = call_at(session, at, state=CallState.REQUESTED)
    call_at(session, at)
    emptied = [call_at(session, days_ago(days)) for days in (39, 38)]
    keep(StoredKind.PAYLOADS, days=30)
    assert run() == "Removed arguments and results: 7."
    assert run() == "Measured. Nothing exceeds its limit.", "what is still needed is no reason for a run"
    first, last = waiting.arguments_id, emptied[-1].result_id
    assert ledger.spans(StoredKind.PAYLOADS, first, last) == [(first, emptied[0].arguments_id - 1)]
    again: list[int] = []

    def hear(payload_ids: list[int], **_: Any) -> None:
        again.extend(payload_ids)

    Call.objects.filter(pk=waiting.pk).update(state=CallState.FAILED)
    payload_erased.connect(hear)
    assert run() == "Removed arguments and results: 1."
    payload_erased.disconnect(hear)
    assert again == [waiting.arguments_id]
    assert payloads.read(Call.objects.get(pk=waiting.pk).arguments) is None
    assert not StorageHour.objects.filter(kind=StoredKind.PAYLOADS, emptied=False).exists()


def test_contents_that_come_in_an_hour_that_was_emptied_go_by_the_limits_too(session: McpSession) -> None:
    at = days_ago(3).replace(minute=0)
    call_at(session, at)
    keep(StoredKind.PAYLOADS, size=1)
    assert run() == "Removed arguments and results: 2."
    late = call_at(session, at + timedelta(minutes=1))
    assert run() == "Removed arguments and results: 2."
    assert payloads.read(Call.objects.get(pk=late.pk).arguments) is None


def test_by_size_the_oldest_go_first_and_no_more_than_needed(session: McpSession) -> None:
    calls = [call_at(session, days_ago(days), size=10_000) for days in (5, 4, 3, 2)]
    keep(StoredKind.PAYLOADS, size=45_000)
    run()
    left = [payloads.read(call.arguments) is not None for call in Call.objects.order_by("pk")]
    assert left == [False, False, True, True]
    assert len(calls) == 4


# --- the others ----------------------------------------------------------------------------------------------------------
def test_old_log_lines_go(session: McpSession) -> None:
    line_at(session, days_ago(10), 1)
    line_at(session, days_ago(1), 2)
    keep(StoredKind.LOGS, days=7)
    heard: list[Any] = []

    def hear(sender: Any, ids: list[int], **_: Any) -> None:
        heard.append((sender, len(ids)))

    rows_removed.connect(hear)
    assert run() == "Removed server logs: 1."
    rows_removed.disconnect(hear)
    assert [line.seq for line in LogLine.objects.all()] == [2]
    assert heard == [(LogLine, 1)]


def test_pages_go_on_with_a_log_whose_lines_were_all_too_old() -> None:
    session = make_session(signs_in_as=SignsInAs.EITHER)
    own = Identity.objects.create(server=session.server, user=person("ada"), kind=IdentityKind.PERSONAL, name="ada")
    of_ada = commands.session_of(own, session.server)
    McpSession.objects.filter(pk=of_ada.pk).update(desired=Desired.OPEN)
    leases = [make_hold(session), make_hold(of_ada)]
    topics = [Topic(TopicKind.LOG, session.server.uid), Topic(TopicKind.LOG, session.server.uid, own.uid)]
    for lease in leases:
        with transaction.atomic():
            store.append(lease, [ServerLogLine(LogSource.SERVER, "info", f"line {number}") for number in range(5)])
    LogLine.objects.update(at=days_ago(10))
    heads = [feeds.feed_head(topic) for topic in topics]
    keep(StoredKind.LOGS, days=7)
    assert run() == "Removed server logs: 8."
    assert run() == "Measured. Nothing exceeds its limit."
    for lease, topic, head in zip(leases, topics, heads, strict=True):
        with transaction.atomic():
            store.append(lease, [ServerLogLine(LogSource.SERVER, "error", "new")])
        assert [row["text"] for row in feeds.feed_after(topic, head).rows] == ["new"]


def test_of_resource_versions_the_newest_stays_however_old_it_is(session: McpSession) -> None:
    subscription = make_subscription(session)
    for text in ("one", "two", "three"):
        add_version(subscription, text)
    ResourceVersion.objects.update(at=days_ago(40))
    keep(StoredKind.VERSIONS, days=30)
    run()
    (version,) = ResourceVersion.objects.all()
    assert "three" in (payloads.read(version.contents) or "")
    assert Payload.objects.filter(kind=PayloadKind.RESOURCE).count() == 1
    assert run() == "Measured. Nothing exceeds its limit."
    assert AuditEvent.objects.filter(action=AuditAction.RETENTION_RUN).count() == 1


def test_a_resource_version_ages_from_when_it_was_replaced(session: McpSession) -> None:
    subscription = make_subscription(session)
    first, second = add_version(subscription, "one"), add_version(subscription, "two")
    ResourceVersion.objects.filter(pk=first.pk).update(at=days_ago(60))
    keep(StoredKind.VERSIONS, days=30)
    assert run() == "Measured. Nothing exceeds its limit."
    assert ResourceVersion.objects.count() == 2
    ResourceVersion.objects.filter(pk=second.pk).update(at=days_ago(31))
    assert run() == "Removed resource versions: 1."
    assert ResourceVersion.objects.get() == second


def test_without_limits_nothing_goes(session: McpSession) -> None:
    call_at(session, days_ago(4000))
    assert run() == "Measured. Nothing exceeds its limit."
    assert Call.objects.count() == 1
    assert not AuditEvent.objects.filter(action=AuditAction.RETENTION_RUN).exists()


# --- plan, record, job ---------------------------------------------------------------------------------------------------
def test_what_will_go_is_in_the_log_before_it_goes(session: McpSession) -> None:
    old = call_at(session, days_ago(40))
    keep(StoredKind.CALLS, days=30)
    run()
    details = json.loads(AuditEvent.objects.get(action=AuditAction.RETENTION_RUN).body)["details"]
    assert details["calls"]["rows"] == 1
    assert datetime.fromisoformat(details["calls"]["before"]) == old.created_at


def test_a_dry_run_says_what_would_go_and_removes_nothing(session: McpSession) -> None:
    for days in (40, 35, 2):
        call_at(session, days_ago(days))
    keep(StoredKind.CALLS, days=30)
    outcome = job.dry_run(silent)  # type: ignore[arg-type]  # called as a progress is
    assert outcome.detail.startswith("Would remove 2 rows, ")
    assert outcome.result["would_remove"]["calls"]["rows"] == 2
    assert Call.objects.count() == 3


def test_what_came_while_the_clock_was_ahead_keeps_nothing_behind_it(session: McpSession) -> None:
    ahead = call_at(session, days_ago(-1000))
    ledger.measure_all(days_ago(-1001))
    old, young = call_at(session, days_ago(45)), call_at(session, days_ago(1))
    keep(StoredKind.CALLS, days=30)
    run()
    assert set(Call.objects.values_list("pk", flat=True)) == {ahead.pk, young.pk}
    assert ahead.pk < old.pk


@pytest.mark.django_db
def test_the_audit_log_is_not_cut_past_events_that_came_while_the_clock_was_ahead() -> None:
    for first, days in ((1, -1000), (2, 45)):
        StorageHour.objects.create(
            kind=StoredKind.EVENTS, hour=days_ago(days), first=first, last=first, until=days_ago(days), rows=1, bytes=1
        )
    assert plan({StoredKind.EVENTS: Limit(days=30)}) == []


def test_by_age_and_size_the_stricter_one_decides(session: McpSession) -> None:
    for days in (40, 20, 2):
        call_at(session, days_ago(days))
    ledger.measure_all()
    (by_age,) = plan({StoredKind.CALLS: Limit(days=30, bytes=10**9)})
    (by_size,) = plan({StoredKind.CALLS: Limit(days=30, bytes=1)})
    assert (by_age.rows, by_size.rows) == (1, 3)


def test_an_interrupted_run_goes_on_where_it_stopped(session: McpSession) -> None:
    for _ in range(200):
        call_at(session, days_ago(40))
    keep(StoredKind.CALLS, days=30)

    class Killed(Exception):
        pass

    def kill(rows: int) -> None:
        raise Killed

    ledger.measure_all()
    (removal,) = plan({StoredKind.CALLS: Limit(days=30)})
    with pytest.raises(Killed):
        batched_deletes.trim(removal, kill)
    assert 0 < Call.objects.count() < 200
    run()
    assert Call.objects.count() == 0
    assert Payload.objects.count() == 0
    assert ledger.total(StoredKind.CALLS).rows == 0


def test_the_schedule_runs_it_once_an_hour_as_a_background_job(session: McpSession) -> None:
    call_at(session, days_ago(40))
    keep(StoredKind.CALLS, days=30)
    for _ in range(2):
        start_retention()
    row = BackgroundJob.objects.get()
    assert (row.state, row.detail, row.result) == ("succeeded", "Removed calls: 1.", {"removed": {"calls": 1}})


def test_a_held_copy_keeps_what_is_older_than_its_limits_until_it_is_released(
    session: McpSession, settings: Any, tmp_path: Path
) -> None:
    new_key(settings, tmp_path)
    call_at(session, days_ago(40))
    keep(StoredKind.CALLS, days=30)
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    start_retention()
    assert run() == "This instance is on hold. Nothing is removed until an administrator releases it."
    assert (Call.objects.count(), BackgroundJob.objects.count(), Checkpoint.objects.count()) == (1, 0, 0)
    Instance.objects.update(held_at=None)
    start_retention()
    assert (Call.objects.count(), BackgroundJob.objects.get().detail) == (0, "Removed calls: 1.")


@pytest.mark.usefixtures("on_postgres")
def test_on_postgres_it_is_the_same() -> None:
    session = make_session("tools")
    for days in (40, 2):
        call_at(session, days_ago(days))
        line_at(session, days_ago(days), 50 - days)
    for kind in (StoredKind.CALLS, StoredKind.LOGS):
        keep(kind, days=30)
    keep(StoredKind.PAYLOADS, days=1)
    run()
    assert (Call.objects.count(), LogLine.objects.count(), Payload.objects.count()) == (1, 1, 2)
    assert payloads.read(Call.objects.get().arguments) is None


def old_events(count: int) -> None:
    with transaction.atomic():
        record_many([Event(AuditAction.SIGN_IN, AuditOutcome.OK, SYSTEM) for _ in range(count)])


def runs() -> list[dict[str, Any]]:
    found = AuditEvent.objects.filter(action=AuditAction.RETENTION_RUN).order_by("seq")
    return [json.loads(event.body)["details"] for event in found]


def test_the_log_names_only_those_events_that_go(settings: Any, tmp_path: Path) -> None:
    new_key(settings, tmp_path)
    old_events(30)
    sink = Sink.objects.create(name="SIEM", kind=SinkKind.HTTP, address="https://siem.example.com/", cursor=0)
    keep(StoredKind.EVENTS, days=30)
    later = timezone.now() + timedelta(days=40)
    assert run(later) == "Measured. Nothing exceeds its limit."
    assert (runs(), job.dry_run(silent, later).result) == ([], {"would_remove": {}})
    Sink.objects.filter(pk=sink.pk).update(cursor=12)
    would = job.dry_run(silent, later).result["would_remove"]["events"]
    assert run(later) == "Removed audit events: 12."
    (recorded,) = runs()
    assert recorded["events"]["rows"] == would["rows"] == 12
    assert run(later) == "Measured. Nothing exceeds its limit."
    assert len(runs()) == 1


def test_an_open_alarm_keeps_events_and_nothing_else(session: McpSession, settings: Any, tmp_path: Path) -> None:
    new_key(settings, tmp_path)
    old_events(3)
    line_at(session, days_ago(10), 1)
    line_at(session, days_ago(1), 2)
    keep(StoredKind.EVENTS, days=30)
    keep(StoredKind.LOGS, days=7)
    alarms.sound(AlarmKind.BROKEN, 2, "Event 2 is missing.")
    outcome = job.run(silent, timezone.now() + timedelta(days=31))
    assert (outcome.ok, outcome.result) == (False, {"removed": {"logs": 1}})
    assert outcome.detail.startswith(
        "Removed server logs: 1. Not removed: audit events. The audit log has an open alarm"
    )
    assert [list(details) for details in runs()] == [["logs"]]


def test_without_a_checkpoint_key_whatever_needs_no_signature_goes(
    session: McpSession, settings: Any, tmp_path: Path
) -> None:
    new_key(settings, tmp_path)
    call_at(session, days_ago(40))
    line_at(session, days_ago(10), 1)
    line_at(session, days_ago(1), 2)
    keep(StoredKind.CALLS, days=30)
    keep(StoredKind.PAYLOADS, days=30)
    keep(StoredKind.LOGS, days=7)
    settings.CHECKPOINT_KEY_FILE.unlink()
    outcome = job.run(silent)
    assert (outcome.ok, outcome.result) == (False, {"removed": {"logs": 1}})
    assert "Not removed: calls, arguments and results. " in outcome.detail
    assert Call.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_events_that_a_sink_has_not_received_stay(settings: Any, tmp_path: Path) -> None:
    new_key(settings, tmp_path)
    with transaction.atomic():
        record_many([Event(AuditAction.SIGN_IN, AuditOutcome.OK, SYSTEM) for _ in range(30)])
    sink = Sink.objects.create(name="SIEM", kind=SinkKind.HTTP, address="https://siem.example.com/", cursor=12)
    removal = Removal(StoredKind.EVENTS, first=1, last=25, before=timezone.now(), rows=25, bytes=1)
    try:
        job._cut(removal, lambda rows: None)
        assert AuditEvent.objects.order_by("seq")[0].seq == 13
        Sink.objects.filter(pk=sink.pk).update(paused_at=timezone.now())
        job._cut(removal, lambda rows: None)
        assert AuditEvent.objects.order_by("seq")[0].seq == 26
    finally:
        writing.reset()
