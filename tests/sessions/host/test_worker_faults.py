"""After a worker ends, nothing runs twice, nothing stays open, and every call has an end."""

import os
import signal
from pathlib import Path

import pytest
from redis import Redis

from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import Call, McpSession, Worker
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import (
    Effects,
    WorkerProcess,
    alive,
    await_ready,
    descendants,
    descriptors,
    effect_session,
    ended,
    eventually,
    is_ready,
    wake,
)
from tests.sessions.host.make import make_call
from tests.tools import valkey

pytestmark = pytest.mark.integration


def start_slow_call(session: McpSession, effects: Effects, seconds: float) -> Call:
    call = make_call(session, "slow", seconds=seconds)
    wake(call)
    eventually(lambda: effects.count("slow"))
    return call


def test_after_kill_nine_the_call_is_unknown_and_the_next_worker_has_the_session(
    start_worker: StartWorker, effects: Effects
) -> None:
    session = effect_session(effects)
    first = start_worker()
    before = await_ready(session)
    call = start_slow_call(session, effects, 30)
    first.kill()
    start_worker()
    done = ended(call)
    assert done.state == CallState.OUTCOME_UNKNOWN
    assert "may have run" in done.detail
    assert eventually(lambda: (row := is_ready(session)) and row.epoch > before.epoch and row)
    assert effects.count("slow") == 1
    assert Worker.objects.count() == 1


def test_children_of_a_killed_worker_are_gone(start_worker: StartWorker, effects: Effects) -> None:
    session = effect_session(effects)
    worker = start_worker()
    await_ready(session)
    below = descendants(worker.pid)
    assert below
    worker.kill()
    eventually(lambda: not any(alive(pid) for pid in below), 10)


def test_a_worker_of_another_node_takes_over_when_the_silence_is_long_enough(
    start_worker: StartWorker, effects: Effects
) -> None:
    session = effect_session(effects)
    first = start_worker("w1")
    await_ready(session)
    second = start_worker("w2")
    call = start_slow_call(session, effects, 30)
    first.freeze()
    row = eventually(lambda: (row := is_ready(session)) and row.owner.pid == second.pid and row, 60)
    assert ended(call).state == CallState.OUTCOME_UNKNOWN
    first.process.send_signal(signal.SIGCONT)
    again = make_call(session, "echo", text="new owner")
    wake(again)
    assert ended(again).state == CallState.SUCCEEDED
    eventually(lambda: "host.overtaken" in first.output)
    assert McpSession.objects.get().epoch == row.epoch
    assert effects.count("slow") == 1


def test_sigterm_lets_a_call_end_and_gives_the_session_back(start_worker: StartWorker, effects: Effects) -> None:
    session = effect_session(effects)
    worker = start_worker()
    await_ready(session)
    below = descendants(worker.pid)
    call = start_slow_call(session, effects, 1.5)
    assert worker.stop() == 0, worker.output
    assert ended(call).state == CallState.SUCCEEDED
    row = McpSession.objects.get()
    assert (row.owner, row.state, row.condition) == (None, SessionState.DISCONNECTED, SessionCondition.WAITING_WORKER)
    assert not Worker.objects.exists()
    assert not any(alive(pid) for pid in below)


def test_sigterm_ends_a_call_that_takes_too_long_as_unknown(start_worker: StartWorker, effects: Effects) -> None:
    session = effect_session(effects)
    worker = start_worker()
    await_ready(session)
    call = start_slow_call(session, effects, 60)
    assert worker.stop() == 0, worker.output
    done = ended(call)
    assert done.state == CallState.OUTCOME_UNKNOWN
    assert McpSession.objects.get().owner is None


def test_a_redis_that_goes_and_comes_back_empty_ends_no_session(
    start_worker: StartWorker, effects: Effects, tmp_path: Path
) -> None:
    socket = tmp_path / "valkey.sock"
    redis = valkey.start(socket)
    session = effect_session(effects)
    worker = start_worker("w1", MCPADMIN_VALKEY_SOCKET=str(socket))
    before = await_ready(session)
    valkey.stop(redis)
    call = make_call(session, "echo", text="without Redis")
    assert ended(call).state == CallState.SUCCEEDED
    redis = valkey.start(socket)
    again = make_call(session, "echo", text="with Redis")
    assert ended(again).state == CallState.SUCCEEDED
    assert McpSession.objects.get().epoch == before.epoch
    assert effects.count("started") == 1
    assert worker.stop() == 0
    valkey.stop(redis)


def test_a_redis_that_fails_over_ends_no_session_and_gives_tasks_again_afterwards(
    start_worker: StartWorker, effects: Effects, tmp_path: Path
) -> None:
    socket = tmp_path / "valkey.sock"
    redis = valkey.start(socket)
    session = effect_session(effects)
    worker = start_worker("w1", MCPADMIN_VALKEY_SOCKET=str(socket))
    before = await_ready(session)
    with Redis(unix_socket_path=str(socket)) as client:
        client.replicaof("127.0.0.1", "1")  # from now on it refuses to give messages
        eventually(lambda: "broker.refused" in worker.output or worker.process.poll() is not None)
        assert ended(make_call(session, "echo", text="without tasks")).state == CallState.SUCCEEDED
        client.replicaof("NO", "ONE")
        client.lpush("mcpadmin:queue:celery", "whatever")
        eventually(lambda: not client.exists("mcpadmin:queue:celery"), words="it takes no messages any more")
    assert McpSession.objects.get().epoch == before.epoch
    assert effects.count("started") == 1
    assert worker.stop() == 0
    assert "CPendingDeprecationWarning" not in worker.output
    valkey.stop(redis)


def test_a_host_whose_epoch_is_overtaken_closes_and_the_session_comes_back_under_a_new_one(
    start_worker: StartWorker, effects: Effects
) -> None:
    session = effect_session(effects)
    start_worker()
    before = await_ready(session)
    McpSession.objects.update(epoch=before.epoch + 7)
    eventually(lambda: (row := is_ready(session)) and row.epoch > before.epoch + 7)
    assert effects.count("started") == 2


@pytest.mark.long
@pytest.mark.slow
def test_fifty_sessions_opened_and_closed_leave_nothing_behind(start_worker: StartWorker, effects: Effects) -> None:
    worker = start_worker()
    open_and_close(effects, range(5))
    eventually(lambda: not descendants(worker.pid))
    base = usage(worker)
    for start in range(5, 55, 10):
        open_and_close(effects, range(start, start + 10))
    eventually(lambda: usage(worker) == base, 10, f"{usage(worker)} was {base}")


def open_and_close(effects: Effects, numbers: range) -> None:
    sessions = [effect_session(effects, f"server-{number}") for number in numbers]
    for session in sessions:
        await_ready(session, 60)
    for session in sessions:  # a single update would lock the rows in another order than the worker does
        McpSession.objects.filter(pk=session.pk).update(desired="closed")
    eventually(lambda: not McpSession.objects.exclude(owner=None).exists(), 30)


def usage(worker: WorkerProcess) -> tuple[int, int, int]:
    """Descriptors, threads, descendants."""
    return descriptors(worker.pid), len(os.listdir(f"/proc/{worker.pid}/task")), len(descendants(worker.pid))
