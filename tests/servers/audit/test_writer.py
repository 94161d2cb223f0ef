"""The writer thread works on a real SQLite file and, where installed, on a real PostgreSQL."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.utils import timezone

from servers.audit import writer as writer_module
from servers.audit.record import SYSTEM, Event, record
from servers.audit.verify import verify
from servers.audit.writer import AuditUnavailable, ReferenceDeleted, WriterBusy, audited, writer
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import AuditEvent, AuditHead, Payload, Server
from sessions.models import LogLine
from tests.sessions.host.harness import eventually

on_file = pytest.mark.django_db(transaction=True)


def event(subject: str = "echo") -> Event:
    return Event(AuditAction.CALL_REQUEST, AuditOutcome.PENDING, SYSTEM, subject=subject)


def payload(text: str) -> Payload:
    return Payload.objects.create(kind=PayloadKind.ARGUMENTS, salt=b"", digest="", size=len(text), text=text)


def together(number: int, work: Callable[[int], None]) -> None:
    """Run `work(i)` in `number` threads at once, and raise the first exception of any of them here."""
    problems: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as problem:  # raised below, in the waiting thread
            problems.append(problem)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=[index]) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if problems:
        raise problems[0]


def fifty_threads_append_a_thousand_events() -> None:
    def submit_twenty(index: int) -> None:
        for number in range(20):
            writer().submit(lambda: None, lambda _, n=number: [event(f"{index}.{n}")]).result(30)

    together(50, submit_twenty)
    assert list(AuditEvent.objects.order_by("seq").values_list("seq", flat=True)) == list(range(1, 1001))
    assert len(set(AuditEvent.objects.values_list("subject", flat=True))) == 1000
    verdict = verify()
    assert (verdict.ok, verdict.checked) == (True, 1000)


@on_file
def test_fifty_threads_append_without_a_gap_and_the_chain_holds() -> None:
    fifty_threads_append_a_thousand_events()


@pytest.mark.usefixtures("on_postgres")
def test_fifty_threads_append_without_a_gap_on_postgresql() -> None:
    fifty_threads_append_a_thousand_events()


def threads_without_the_writer() -> None:
    """Imitate several processes: each thread has its own connection and transaction, and the first creates the head."""

    def append_ten(index: int) -> None:
        for number in range(10):
            with transaction.atomic():
                record(event(f"{index}.{number}"))

    together(8, append_ten)
    verdict = verify()
    assert (verdict.ok, verdict.checked) == (True, 80)
    assert AuditHead.objects.get().seq == 80


@on_file
def test_writers_of_several_connections_share_one_chain() -> None:
    threads_without_the_writer()


@pytest.mark.usefixtures("on_postgres")
def test_writers_of_several_connections_share_one_chain_on_postgresql() -> None:
    threads_without_the_writer()


@on_file
def test_a_failing_work_fails_alone_and_its_neighbours_are_committed() -> None:
    def explode() -> None:
        payload("never")
        raise IntegrityError("mine alone")

    hold, held = threading.Event(), threading.Event()
    writer().submit(lambda: (held.set(), hold.wait(10)))
    held.wait(10)  # the following work queues up and forms one batch
    good = [writer().submit(lambda n=n: payload(f"good {n}"), lambda row: [event(row.text)]) for n in range(3)]
    bad: Future[Any] = writer().submit(explode, lambda _: [event("bad")])
    good += [writer().submit(lambda n=n: payload(f"good {n}"), lambda row: [event(row.text)]) for n in range(3, 6)]
    hold.set()
    with pytest.raises(IntegrityError, match="mine alone"):
        bad.result(10)
    assert [future.result(10).text for future in good] == [f"good {n}" for n in range(6)]
    assert sorted(AuditEvent.objects.values_list("subject", flat=True)) == [f"good {n}" for n in range(6)]
    assert not Payload.objects.filter(text="never").exists()
    assert verify().ok


def rows_of_a_deleted_server_fail_alone() -> None:
    server = Server.objects.create(name="Gone", slug="gone")
    deleted = server.pk
    server.delete()
    hold, held = threading.Event(), threading.Event()
    writer().submit(lambda: (held.set(), hold.wait(10)))
    held.wait(10)  # the following work queues up and forms one batch
    good: Future[Any] = writer().submit(lambda: payload("good"), lambda row: [event(row.text)])
    bad: Future[Any] = writer().submit(
        lambda: LogLine.objects.create(server_id=deleted, seq=1, at=timezone.now(), level="info", text="late"),
        lambda _: [event("bad")],
    )
    hold.set()
    with pytest.raises(ReferenceDeleted, match="has been deleted, so nothing was changed"):
        bad.result(10)
    assert good.result(10).text == "good"
    assert list(AuditEvent.objects.values_list("subject", flat=True)) == ["good"]
    assert not LogLine.objects.exists()


@on_file
def test_rows_of_a_deleted_server_fail_alone() -> None:
    """Foreign keys are checked at the commit, which all works of a batch share."""
    rows_of_a_deleted_server_fail_alone()


@pytest.mark.usefixtures("on_postgres")
def test_rows_of_a_deleted_server_fail_alone_on_postgresql() -> None:
    rows_of_a_deleted_server_fail_alone()


@pytest.mark.usefixtures("on_postgres")
def test_a_row_that_waits_for_what_it_refers_to_does_not_hold_the_chain_on_postgresql() -> None:
    """A change that holds the server's row ends with the chain: had the writer locked it already, neither could go on."""
    server = Server.objects.create(name="Busy", slug="busy")
    with audited(SYSTEM) as trail:
        Server.objects.select_for_update().get(pk=server.pk)
        line = writer().submit(
            lambda: LogLine.objects.create(server_id=server.pk, seq=1, at=timezone.now(), level="info", text="late"),
            lambda _: [event("of the server")],
        )
        eventually(_waits_for_a_lock)
        began = time.monotonic()
        together(1, lambda _: _act("of another process"))
        trail.add(event("change"))
    assert line.result(10).text == "late"
    assert time.monotonic() - began < 0.9  # PostgreSQL looks for deadlocks after a second
    assert list(AuditEvent.objects.order_by("seq").values_list("subject", flat=True)) == [
        *("of another process", "change", "of the server"),
    ]


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


def _act(subject: str) -> None:
    with audited(SYSTEM) as trail:
        trail.add(event(subject))


@on_file
def test_a_work_whose_events_cannot_be_made_leaves_no_row() -> None:
    future = writer().submit(lambda: payload("orphan"), lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        future.result(10)
    assert not Payload.objects.exists()
    assert not AuditEvent.objects.exists()


@on_file
def test_a_locked_database_refuses_the_intent_and_no_row_appears_later() -> None:
    with transaction.atomic():
        payload("the lock")  # this connection holds SQLite's write lock for the whole block

        def intent(_: int) -> None:
            with pytest.raises(AuditUnavailable):
                writer().submit_and_wait(lambda: payload("intent"), lambda _: [event()], timeout=0.5)

        together(1, intent)
    writer().submit(lambda: None).result(10)  # everything queued before has run by now
    assert list(Payload.objects.values_list("text", flat=True)) == ["the lock"]
    assert not AuditEvent.objects.exists()


@on_file
def test_a_database_that_stays_locked_fails_the_whole_batch_in_one_wait() -> None:
    with transaction.atomic():
        payload("the lock")
        futures = [writer().submit(lambda: payload("intent")) for _ in range(20)]
        for future in futures:
            with pytest.raises(AuditUnavailable):
                future.result(10)
    assert not Payload.objects.filter(text="intent").exists()


@pytest.mark.usefixtures("on_postgres")
def test_a_frozen_holder_of_the_head_refuses_the_intent_on_postgresql() -> None:
    with transaction.atomic():
        record(event("first"))
        future = writer().submit(lambda: payload("intent"), lambda _: [event("second")])
        with pytest.raises(AuditUnavailable):
            future.result(10)
    assert not Payload.objects.exists()
    assert list(AuditEvent.objects.values_list("subject", flat=True)) == ["first"]


@pytest.mark.usefixtures("on_postgres")
def test_a_lost_connection_is_renewed_and_the_work_done_once_on_postgresql() -> None:
    pid = writer().submit(_backend_pid).result(10)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert writer().submit(lambda: payload("after"), lambda _: [event("after")]).result(10).text == "after"
    assert Payload.objects.count() == 1
    assert writer().submit(_backend_pid).result(10) != pid


def _backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _next_commit(monkeypatch: pytest.MonkeyPatch, instead: Callable[[Any, Callable[[], None]], None]) -> None:
    """Of a real connection; those after it are as before."""
    real = DatabaseWrapper._commit

    def commit(self: Any) -> None:
        monkeypatch.setattr(DatabaseWrapper, "_commit", real)
        instead(self, lambda: real(self))

    monkeypatch.setattr(DatabaseWrapper, "_commit", commit)


@on_file
def test_whether_a_change_was_made_is_unknown_when_the_connection_breaks_at_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose_the_answer(wrapper: Any, commit: Callable[[], None]) -> None:
        commit()
        wrapper.connection.close()
        raise OperationalError("server closed the connection unexpectedly")

    writer().submit(lambda: None).result(10)
    _next_commit(monkeypatch, lose_the_answer)
    with pytest.raises(AuditUnavailable, match="Check whether the change was made") as refusal:
        writer().submit(lambda: payload("committed")).result(10)
    assert not refusal.value.unchanged
    assert Payload.objects.filter(text="committed").exists()
    writer().submit(lambda: payload("next")).result(10)


@on_file
def test_a_commit_that_the_database_itself_refuses_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(wrapper: Any, commit: Callable[[], None]) -> None:
        raise OperationalError("database or disk is full")

    writer().submit(lambda: None).result(10)
    _next_commit(monkeypatch, refuse)
    with pytest.raises(AuditUnavailable, match="so nothing was changed") as refusal:
        writer().submit(lambda: payload("refused")).result(10)
    assert refusal.value.unchanged
    assert not Payload.objects.exists()


_AT_COMMIT = """
CREATE FUNCTION pg_temp.at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {}; RETURN NULL; END';
CREATE TEMP TABLE row_of_this_batch (id int) ON COMMIT DROP;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON row_of_this_batch DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.at_commit();
INSERT INTO row_of_this_batch VALUES (1)
"""


@pytest.mark.usefixtures("on_postgres")
@pytest.mark.parametrize(
    ("does", "unchanged"),
    [("PERFORM pg_terminate_backend(pg_backend_pid())", False), ("RAISE EXCEPTION ''no''", True)],
)
def test_only_a_commit_that_was_answered_is_known_to_have_failed_on_postgresql(does: str, unchanged: bool) -> None:
    def work() -> None:
        payload("at the commit")
        with connection.cursor() as cursor:
            cursor.execute(_AT_COMMIT.format(does))

    with pytest.raises(AuditUnavailable) as refusal:
        writer().submit(work).result(10)
    assert refusal.value.unchanged is unchanged
    assert writer().submit(lambda: payload("next")).result(10).text == "next"


@on_file
def test_a_work_that_is_cancelled_while_it_runs_is_rolled_back() -> None:
    started, hold = threading.Event(), threading.Event()

    def slow() -> Payload:
        row = payload("given up")
        started.set()
        hold.wait(10)
        return row

    future = writer().submit(slow, lambda _: [event("given up")])
    started.wait(10)
    neighbour = writer().submit(lambda: payload("kept"), lambda _: [event("kept")])
    assert future.cancel()
    hold.set()
    neighbour.result(10)
    assert list(Payload.objects.values_list("text", flat=True)) == ["kept"]
    assert list(AuditEvent.objects.values_list("subject", flat=True)) == ["kept"]


@on_file
def test_the_neighbour_of_a_work_that_was_given_up_can_still_be_given_up() -> None:
    started, hold, given_up = threading.Event(), threading.Event(), list[bool]()
    writer().submit(lambda: (started.set(), hold.wait(10)))
    started.wait(10)

    def patient() -> None:
        if hopeless.cancelled():  # the second attempt
            given_up.append(patience.cancel())

    patience: Future[None] = writer().submit(patient)
    hopeless: Future[bool] = writer().submit(lambda: hopeless.cancel())
    hold.set()
    writer().submit(lambda: None).result(10)
    assert given_up == [True]


@on_file
def test_a_full_queue_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servers.audit.writer.QUEUE_LIMIT", 3)
    hold, held = threading.Event(), threading.Event()
    futures = [writer().submit(lambda: (held.set(), hold.wait(10)))]
    held.wait(10)
    futures += [writer().submit(lambda: None) for _ in range(3)]
    with pytest.raises(WriterBusy):
        writer().submit(lambda: None)
    hold.set()
    for future in futures:
        future.result(10)


@on_file
def test_urgent_work_is_done_before_what_was_queued_earlier() -> None:
    order: list[str] = []
    hold, held = threading.Event(), threading.Event()
    writer().submit(lambda: (held.set(), hold.wait(10)))
    held.wait(10)
    ordinary = writer().submit(lambda: order.append("call"))
    urgent = writer().submit(lambda: order.append("heartbeat"), urgent=True)
    hold.set()
    urgent.result(10)
    ordinary.result(10)
    assert order == ["heartbeat", "call"]


@on_file
def test_spare_work_waits_for_everything_else_and_is_committed_apart() -> None:
    hold, held = threading.Event(), threading.Event()
    writer().submit(lambda: (held.set(), hold.wait(10)))
    held.wait(10)
    calls: list[Future[Payload]] = []
    spare = writer().submit(lambda: [call.done() for call in calls], low_priority=True)
    calls += [writer().submit(lambda n=n: payload(f"call {n}")) for n in range(3)]
    hold.set()
    assert spare.result(10) == [True, True, True]


@on_file
def test_spare_work_is_done_although_other_work_never_ends() -> None:
    done = threading.Event()

    def call() -> None:
        if not done.is_set():
            writer().submit(call)

    writer().submit(call)
    spare = writer().submit(lambda: payload("lines"), low_priority=True)
    try:
        assert spare.result(30).text == "lines"
    finally:
        done.set()


@on_file
def test_stopping_writes_what_waits_and_refuses_what_comes_after() -> None:
    one = writer()
    futures = [one.submit(lambda n=n: payload(str(n)), lambda row: [event(row.text)]) for n in range(50)]
    assert one.stop(10)
    assert all(future.done() for future in futures)
    assert AuditEvent.objects.count() == 50
    with pytest.raises(WriterBusy):
        one.submit(lambda: None)


@on_file
def test_a_fault_after_the_commit_leaves_no_one_waiting_and_the_writer_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(batch: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(writer_module, "make_durable", fault)
        with pytest.raises(AuditUnavailable) as refused:
            writer().submit(lambda: payload("perhaps")).result(10)
    assert not refused.value.unchanged
    thread = writer()._thread
    assert writer().submit(lambda: payload("later")).result(10).text == "later"
    assert writer()._thread is thread


@on_file
def test_without_a_thread_for_the_writer_nothing_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(WriterBusy):
            writer().submit(lambda: payload("never"))
    assert writer().submit(lambda: payload("later")).result(10).text == "later"
    assert [row.text for row in Payload.objects.all()] == ["later"]


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@on_file
def test_waiting_for_the_writer_inside_a_transaction_is_refused_instead_of_deadlocking() -> None:
    with transaction.atomic(), pytest.raises(transaction.TransactionManagementError):
        writer().submit_and_wait(lambda: None)


@on_file
def test_a_failing_hook_after_the_commit_does_not_turn_done_into_failed() -> None:
    def work() -> Payload:
        transaction.on_commit(lambda: 1 / 0)
        return payload("done")

    assert writer().submit(work, lambda _: [event()]).result(10).text == "done"
    assert Payload.objects.count() == AuditEvent.objects.count() == 1


@on_file
def test_rows_of_any_model_and_their_events_share_one_commit() -> None:
    server = writer().submit(lambda: Server.objects.create(slug="a", name="A", transport="stdio")).result(10)
    assert Server.objects.get().uid == server.uid


@on_file
async def test_a_loop_is_told_that_a_locked_database_refused() -> None:
    hold, held = threading.Event(), threading.Event()
    writer().submit(lambda: (held.set(), hold.wait(10)))
    held.wait(10)
    with pytest.raises(AuditUnavailable):
        await writer().durable(writer().submit(lambda: payload("late"), lambda _: [event()]), seconds=0.05)
    hold.set()
    await writer().durable(writer().submit(lambda: None))
    assert await Payload.objects.acount() == 0


@on_file
def test_the_follow_up_runs_after_a_batch_and_again_when_it_asks_for_it_and_its_failure_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: "queue.SimpleQueue[str]" = queue.SimpleQueue()
    answers = [None, 0.01]

    def follow_up() -> float | None:
        runs.put(threading.current_thread().name)
        return answers.pop()  # fails on the third run

    monkeypatch.setattr(writer_module, "_follow_up", follow_up)
    writer().submit(lambda: None).result(30)
    assert [runs.get(timeout=5), runs.get(timeout=5)] == ["audit-writer"] * 2
    writer().submit(lambda: None).result(30)
    assert runs.get(timeout=5) == "audit-writer"
    assert writer().submit(lambda: "still at work").result(30) == "still at work"
