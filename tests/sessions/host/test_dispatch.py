"""The final state of a call whose run ends before its outcome is written."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db import DataError
from django.utils import timezone

from servers.audit import payload_privacy, payloads, writer
from servers.audit.proof.rows import Removed
from servers.audit.writer import AuditUnavailable
from servers.crypto import SealError
from servers.enums import AuditAction, PayloadKind
from servers.models import AuditEvent, Payload, PrivacySettings
from servers.privacy import redaction
from sessions.calls import claims
from sessions.calls.card import card_of
from sessions.calls.proof import CallRows
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.host import open_session
from sessions.host.answer_redaction import Redactor
from sessions.host.calls import dispatch, spool
from sessions.host.calls.dispatch import Calls
from sessions.host.calls.spool import Spool
from sessions.host.db import Database, DatabaseAway
from sessions.host.open_session import OpenSession
from sessions.mcp.core.tasks import Status, TaskState
from sessions.models import Call, McpSession, ServerTask
from tests.sessions.host.make import make_call, make_hold, make_session

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "ghp_" + "a1B2" * 9


class Session:
    """An open session whose server answers each call at once."""

    accepting, modern, spoken_revision = True, False, ("legacy", "2025-11-25")

    def __init__(self, lease: Lease) -> None:
        self.lease, self.redactor, self.sent = lease, Redactor(), 0
        self.catalog = SimpleNamespace(unread=frozenset())
        self.launch = SimpleNamespace(timeouts=SimpleNamespace(tool=5, total=5))
        self.client = self
        self.answer: dict[str, Any] = {"content": []}

    @asynccontextmanager
    async def slot(self, run: object) -> AsyncIterator[bool]:
        yield True

    async def call_tool(self, name: str, arguments: dict[str, Any], **options: Any) -> Any:
        await options["before_send"](1, "first")
        self.sent += 1
        return SimpleNamespace(raw=self.answer)

    def follow_tasks(self) -> None:
        """It has none."""


@pytest.fixture
def live() -> Iterator[Session]:
    yield Session(make_hold(make_session()))
    writer.reset()


@pytest.fixture
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads are encrypted from now on, and the spool cannot read the key ring."""
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.forget()

    def refused(*_: object, **__: object) -> None:
        raise SealError("The key ring cannot be read.")

    monkeypatch.setattr(spool, "seal_bytes", refused)


@pytest.fixture
def call(live: Session) -> Call:
    return make_call(McpSession.objects.get(), text="hi")


def handled(call: Call, live: Session, folder: Path, database: type[Database] = Database) -> Calls:
    """Everything that the host does with the call until its run has ended."""

    async def run() -> Calls:
        db = database()
        try:
            calls = Calls(db, lambda _: live, Counter(), Spool(folder, live.lease.worker_uid))
            calls.accept(call.uid, live.lease.session_id)
            await calls.settle(20)
            return calls
        finally:
            db.stop()

    return asyncio.run(run())


def after_the_next_tick(call: Call, live: Session, calls: Calls) -> Call:
    Call.objects.update(sent_at=timezone.now() - timedelta(minutes=1))
    claims.end_unhandled(live.lease.worker_uid, calls.uids, calls.unconfirmed)
    return Call.objects.get(pk=call.pk)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(minutes=-1)])
def test_a_call_that_nothing_handles_is_ended_also_after_the_clock_was_set_back(
    call: Call, live: Session, ahead: timedelta
) -> None:
    mine = {"state": CallState.SENT, "worker_uid": live.lease.worker_uid}
    Call.objects.update(**mine, sent_at=timezone.now() + ahead)
    assert claims.end_unhandled(live.lease.worker_uid, {call.uid}, ()) == []
    assert len(claims.end_unhandled(live.lease.worker_uid, (), ())) == 1
    assert Call.objects.get().state == CallState.OUTCOME_UNKNOWN


def test_a_machine_that_sleeps_before_a_commit_raises_no_alarm(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_sleep = SimpleNamespace(now=lambda: timezone.now() + timedelta(minutes=10))
    monkeypatch.setattr("servers.audit.record.timezone", after_the_sleep)
    handled(call, live, tmp_path)
    events = [(event, json.loads(event.body)) for event in AuditEvent.objects.filter(call_uid=call.uid).order_by("seq")]
    assert [event.action for event, _ in events] == [AuditAction.CALL_SEND, AuditAction.CALL_FINISH]
    assert CallRows().of_events(events, Removed()) is None
    Call.objects.update(sent_at=timezone.now())
    found = CallRows().of_events(events, Removed())
    assert found is not None
    assert "The time of sending" in found.words


class FailsOnce(Database):
    """The first outcome meets a database that is away."""

    away = True

    async def persist(self, fn: Any, *rest: Any) -> Any:
        def once() -> Any:
            if self.away:
                self.away = False
                raise AuditUnavailable("The database is away.")
            return fn()

        return await super().persist(once, *rest)


def test_a_call_that_ran_keeps_its_outcome_when_the_spool_cannot_encrypt_it(
    call: Call, live: Session, tmp_path: Path, without_keys: None
) -> None:
    calls = handled(call, live, tmp_path / "spool", FailsOnce)
    found = after_the_next_tick(call, live, calls)
    assert (found.state, live.sent) == (CallState.SUCCEEDED, 1)


def test_a_call_that_was_sent_and_whose_run_failed_is_never_said_to_have_been_kept_back(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(claims, "finish", failing)
    calls = handled(call, live, tmp_path)
    found = after_the_next_tick(call, live, calls)
    assert (found.state, live.sent) == (CallState.OUTCOME_UNKNOWN, 1)
    assert "did not reach" not in found.detail


def test_a_call_whose_result_the_database_refuses_ends_without_it(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = claims.finish

    def refusing(pending: claims.PendingCall, lease: Lease, outcome: claims.CallOutcome, row: Any = None) -> Any:
        events = finish(pending, lease, outcome, row)
        if outcome.result is not None:
            raise DataError("no column holds this")
        return events

    monkeypatch.setattr(claims, "finish", refusing)
    handled(call, live, tmp_path / "spool")
    found = Call.objects.get(pk=call.pk)
    assert (found.state, found.result, live.sent) == (CallState.SUCCEEDED, None, 1)
    assert "The database refused what the server sent (DataError), so it was not stored." in found.detail
    assert list((tmp_path / "spool").iterdir()) == []
    ended = AuditEvent.objects.get(call_uid=call.uid, action=AuditAction.CALL_FINISH)
    assert json.loads(ended.body)["details"]["state"] == "succeeded"
    shown = card_of(found, may_read=True).outcome
    assert shown is not None
    assert shown.title == "The result was not stored"


def test_a_call_of_which_the_database_refuses_even_the_end_is_ended_by_the_tick(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object) -> None:
        raise DataError("no column holds this")

    monkeypatch.setattr(claims, "finish", refusing)
    calls = handled(call, live, tmp_path / "spool")
    assert after_the_next_tick(call, live, calls).state == CallState.OUTCOME_UNKNOWN
    assert list((tmp_path / "spool").iterdir()) == []


class CommitsUnseen(Database):
    """An outcome is committed, which the worker does not learn, so it tries again."""

    async def persist(self, fn: Any, *rest: Any) -> Any:
        await super().persist(fn, *rest)
        return await super().persist(fn, *rest)


@pytest.mark.parametrize("database", [Database, FailsOnce, CommitsUnseen])
def test_a_large_result_is_compressed_before_it_takes_the_one_writer(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: type[Database]
) -> None:
    compress, threads = payloads._compressed, []

    def noted(data: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return compress(data)

    monkeypatch.setattr(payloads, "_compressed", noted)
    live.answer = {"content": [{"type": "text", "text": "words " * 30_000}]}
    handled(call, live, tmp_path / "spool", database)
    found = Call.objects.get(pk=call.pk)
    assert (found.state, found.late_result, live.sent) == (CallState.SUCCEEDED, None, 1)
    assert json.loads(payloads.read(found.result)) == live.answer
    assert [name.rpartition("-")[0] for name in threads] == ["host-reader"]
    assert Payload.objects.filter(kind=PayloadKind.RESULT).count() == 1
    assert AuditEvent.objects.filter(action=AuditAction.CALL_FINISH).count() == 1


@pytest.mark.parametrize("words", [2, 30_000])
def test_a_large_result_is_searched_for_secrets_beside_the_loop(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    redacted, threads = redaction.redacted, []

    def noted(*given: Any) -> tuple[str, int]:
        threads.append(threading.current_thread() is threading.main_thread())
        return redacted(*given)

    monkeypatch.setattr(redaction, "redacted", noted)
    live.answer = {"content": [{"type": "text", "text": "words " * words + TOKEN}]}
    handled(call, live, tmp_path / "spool")
    found = Call.objects.get(pk=call.pk)
    assert (found.state, threads) == (CallState.SUCCEEDED, [words == 2])
    assert TOKEN not in payloads.read(found.result)


def test_a_large_result_that_cannot_be_encrypted_is_not_stored_and_the_call_says_so(
    call: Call, live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise SealError("The key ring cannot be read.")

    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.forget()
    monkeypatch.setattr(payloads, "seal_bytes", refused)
    live.answer = {"content": [{"type": "text", "text": "words " * 30_000}]}
    handled(call, live, tmp_path / "spool")
    found = Call.objects.get(pk=call.pk)
    assert (found.state, found.result) == (CallState.SUCCEEDED, None)
    assert "because it cannot be encrypted. The key ring cannot be read." in found.detail


class Slow(Session):
    """Its server has not answered any call yet."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.answers = asyncio.Event()

    @asynccontextmanager
    async def slot(self, run: object) -> AsyncIterator[bool]:
        await self.answers.wait()
        yield False


async def test_calls_that_wait_for_a_slow_server_hold_up_no_other(
    live: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "CALLS_LIMIT", 8)
    monkeypatch.setattr(dispatch, "CONCURRENCY", 2)
    slow, other, counters, db = Slow(live.lease), Slow(live.lease), Counter[str](), Database()
    calls = Calls(db, {1: slow, 2: other}.get, counters, Spool(tmp_path, uuid4()))
    try:
        for session_id, given in ((1, 10), (2, 3), (3, 1)):
            for _ in range(given):
                calls.accept(uuid4(), session_id)
        assert (len(calls.uids), counters["calls_full"]) == (8 + 2, 2 + 1 + 1)
    finally:
        slow.answers.set()
        other.answers.set()
        await calls.settle(20)
        db.stop()
    assert (calls.uids, calls._of_session) == (set(), Counter())


async def test_a_call_that_gets_no_slot_in_time_gives_up_its_place_and_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_session, "LINE_SECONDS", 0.05)
    found: list[str] = []
    live: Any = object.__new__(OpenSession)
    live.runs, live._slots, live._quiet, live._turned_away = set(), asyncio.Semaphore(1), asyncio.Event(), False
    live.inbox, live._on_room = SimpleNamespace(call_over=lambda uid: None), lambda: found.append("room")
    live._db, live._record_use_at = SimpleNamespace(post=lambda job: None), float("inf")
    running, late = Mock(uid=uuid4()), Mock(uid=uuid4())
    async with live.slot(running) as first:
        async with live.slot(late) as second:
            assert (first, second) == (True, False)
        assert (live.runs, found) == ({running}, ["room"])
    async with live.slot(late) as again:
        assert again


class Unanswered(Session):
    """Its server answers no call. `waits`: for what the call waits on our side; `task`: whether it became a task."""

    def __init__(self, lease: Lease, waits: str | None = None, *, task: bool = False, cancels: bool = False) -> None:
        super().__init__(lease)
        self.inbox = SimpleNamespace(waits_for=lambda uid: waits)
        self.tasks_offer, self.task, self.followed = SimpleNamespace(cancel=cancels), task, 0
        self.reached = asyncio.Event()

    async def call_tool(self, name: str, arguments: dict[str, Any], **options: Any) -> Any:
        await options["before_send"](1, "first")
        if self.task:
            options["task"].on_task(TaskState("t1", Status.WORKING))
        self.reached.set()
        await asyncio.Event().wait()

    def follow_tasks(self) -> None:
        self.followed += 1


def cancelled(call: Call, live: Unanswered, folder: Path) -> Call:
    async def run() -> None:
        db = Database()
        try:
            calls = Calls(db, lambda _: live, Counter(), Spool(folder, live.lease.worker_uid))
            calls.accept(call.uid, live.lease.session_id)
            async with asyncio.timeout(20):
                await live.reached.wait()
            calls.cancel(call.uid)
            await calls.settle(20)
        finally:
            db.stop()

    asyncio.run(run())
    return Call.objects.get(pk=call.pk)


def said_of(call: Call) -> str:
    words = card_of(call, may_read=True).outcome
    assert words is not None
    return words.text


def test_a_call_that_is_cancelled_at_the_server_says_that_it_was_notified(
    call: Call, live: Session, tmp_path: Path
) -> None:
    found = cancelled(call, Unanswered(live.lease), tmp_path)
    assert (found.state, found.may_have_run) == (CallState.CANCELLED, True)
    assert said_of(found).startswith("The server was notified.")


@pytest.mark.parametrize(("waits", "may_have_run"), [("round", True), ("error", False)])
def test_a_call_that_is_cancelled_while_nothing_of_it_is_at_the_server_says_so(
    call: Call, live: Session, tmp_path: Path, waits: str, may_have_run: bool
) -> None:
    found = cancelled(call, Unanswered(live.lease, waits), tmp_path)
    assert (found.state, found.may_have_run) == (CallState.CANCELLED, may_have_run)
    assert "notified" not in said_of(found)
    assert said_of(found).startswith(("It waited for ", "It was waiting for "))


def test_a_task_that_its_server_cannot_cancel_is_followed_on_after_its_call_was_cancelled(
    call: Call, live: Session, tmp_path: Path
) -> None:
    unanswered = Unanswered(live.lease, task=True)
    found = cancelled(call, unanswered, tmp_path)
    assert (found.state, unanswered.followed) == (CallState.OUTCOME_UNKNOWN, 1)
    assert "The server does not support cancelling tasks, so the task continues there." in found.detail
    assert ServerTask.objects.followed_on().get().call_id == call.pk


def test_a_task_that_its_server_can_cancel_is_cancelled(call: Call, live: Session, tmp_path: Path) -> None:
    assert cancelled(call, Unanswered(live.lease, task=True, cancels=True), tmp_path).state == CallState.CANCELLED


class ConfirmsNothing(Database):
    async def write(self, *args: Any, **options: Any) -> Any:
        await super().write(*args, **options)
        raise DatabaseAway("It did not answer in time.")


def test_a_call_whose_claim_was_not_confirmed_was_not_sent(call: Call, live: Session, tmp_path: Path) -> None:
    calls = handled(call, live, tmp_path, ConfirmsNothing)
    found = after_the_next_tick(call, live, calls)
    assert (found.state, live.sent) == (CallState.FAILED, 0)
