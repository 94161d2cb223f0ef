"""Beat in a thread of a worker: it outlives a lost broker and its own failures, and every restart brings it back."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import Scheduler
from redis import Redis

from mcpadmin import beat
from mcpadmin.up.supervisor import worker_parts
from tests.tools import valkey as valkeys
from tests.tools.stack import Stack

SECONDS = 120.0
QUEUE = "celery"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def start_beat() -> Iterator[Callable[..., threading.Thread]]:
    """`start_beat(app)`: beat in a thread, as in a worker. It has ended when the test is over."""
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def start(app: Celery) -> threading.Thread:
        threads.append(threading.Thread(target=beat.run, args=(app, stopping, 0.0, 0.05), daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    stopping.set()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def app_on(socket: Path, **seconds: float) -> Celery:
    """An app whose broker listens on `socket`, with a task for each name, sent at that interval."""
    app = Celery("test", broker=f"redis+socket://{socket}", set_as_current=False)
    app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    app.conf.task_publish_retry = False
    app.conf.beat_schedule = {name: {"task": name, "schedule": every} for name, every in seconds.items()}
    return app


def sent(socket: Path) -> list[str]:
    with Redis(unix_socket_path=str(socket)) as redis:
        return [message.decode() for message in redis.lrange(QUEUE, 0, -1)]


def test_after_a_start_everything_is_due_once_however_long_its_interval(
    valkey: Path, start_beat: Callable[..., threading.Thread]
) -> None:
    start_beat(app_on(valkey, hourly=3600.0, often=0.1))
    until(lambda: sum('"often"' in message for message in sent(valkey)) > 2)
    assert sum('"hourly"' in message for message in sent(valkey)) == 1


def test_beat_goes_on_after_the_broker_was_away(
    tmp_path: Path, start_beat: Callable[..., threading.Thread], caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "v.sock"
    process = valkeys.start(socket)
    try:
        thread = start_beat(app_on(socket, often=0.1))
        until(lambda: sent(socket))
        valkeys.stop(process)
        until(lambda: caplog.text.count("Message Error") > 1)
        assert thread.is_alive()
        process = valkeys.start(socket)  # empty: it keeps nothing
        until(lambda: sent(socket))
    finally:
        valkeys.stop(process)


def test_a_failing_beat_is_logged_and_tries_again(
    valkey: Path,
    start_beat: Callable[..., threading.Thread],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tick, failures = Scheduler.tick, iter([OSError("planted")])

    def failing_once(self: Scheduler) -> float:
        for failure in failures:
            raise failure
        return tick(self)

    monkeypatch.setattr(Scheduler, "tick", failing_once)
    with caplog.at_level(logging.ERROR):
        start_beat(app_on(valkey, hourly=3600.0))
        until(lambda: sent(valkey))
    assert "beat.failed" in caplog.text
    assert "planted" in caplog.text


def test_after_the_clock_was_set_everything_is_due_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, clock, ticks = threading.Event(), [1_000.0], list[int]()

    class Silent:
        schedule: dict[str, object] = {}

        def __init__(self, app: Celery) -> None:
            """Nothing is due."""

        def tick(self) -> float:
            ticks.append(len(ticks))
            if len(ticks) == 3:
                clock[0] -= 3_600.0
            if len(ticks) == 10:
                stopping.set()
            return 0.0

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(beat, "Scheduler", Silent)
    monkeypatch.setattr(beat, "_clock", lambda: clock[0])
    beat._send_what_is_due(Celery("test", set_as_current=False), stopping)
    assert (len(ticks), stopping.is_set()) == (3, False), "another one is built next"


def test_the_first_of_several_workers_runs_beat_and_the_others_do_not() -> None:
    assert ["--beat-thread" in part.argv for part in worker_parts(3, 5, {})] == [True, False, False]


@pytest.mark.long
@pytest.mark.up
@pytest.mark.integration
def test_a_worker_that_was_killed_sends_scheduled_tasks_again(make_stack: Callable[..., Stack]) -> None:
    product = make_stack(env={"MCPADMIN_TIME_SCALE": "0.1"}).start()

    def done() -> str:
        """When the newest run ended; older rows are removed. Only a job that is over lets the schedule request another."""
        sql = "SELECT max(finished_at) FROM servers_backgroundjob WHERE kind = 'housekeeping'"
        return str(product.rows(sql)[0][0] or "")

    until(done)
    before, seen = done(), len(product.lines)
    product.kill_worker()
    product.wait_for(re.compile("worker ready again"), since=seen)
    until(lambda: done() > before)
