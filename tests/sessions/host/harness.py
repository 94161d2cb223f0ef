"""Runs a real worker process on the database, key ring and Valkey of the test."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from django.conf import settings
from django.db import connection, transaction

from sessions import hints
from sessions.enums import SessionState
from sessions.models import Call, McpSession, Worker
from tests.sessions.host.make import make_session
from tests.sessions.host.warm_worker import start
from tests.tools.prepared import clean_environment
from tests.tools.processes import is_stopped

T = TypeVar("T")
EFFECT_SERVER = Path(__file__).with_name("effect_server.py")
FAST = {
    "MCPADMIN_HEARTBEAT_SECONDS": "0.4",
    "MCPADMIN_STALE_SECONDS": "3",
    "MCPADMIN_DRAIN_SECONDS": "4",
    "MCPADMIN_RECONNECT_CEILING_SECONDS": "1",
    "MCPADMIN_LOG_FORMAT": "json",
    # A log that a flush empties between two tests would look like an older copy to the checkpoints of the first one.
    "MCPADMIN_CHECKPOINT_SECONDS": "1000000",
    "MCPADMIN_CHECKPOINT_EVENTS": "1000000",
}


def scaled(factor: float, ceiling: float = 1.0) -> dict[str, str]:
    """An environment that scales the times of reconnecting. Heartbeat, stale period and ceiling keep the real
    seconds given here."""
    return {
        "MCPADMIN_TIME_SCALE": str(factor),
        "MCPADMIN_HEARTBEAT_SECONDS": str(0.4 / factor),
        "MCPADMIN_STALE_SECONDS": str(3 / factor),
        "MCPADMIN_RECONNECT_CEILING_SECONDS": str(ceiling / factor),
    }


def eventually(check: Callable[[], T], seconds: float = 60.0, words: str = "it never happened") -> T:
    """Poll until `check` returns a true value, and return it."""
    begin = time.monotonic()
    while not (found := check()):
        waited = time.monotonic() - begin
        assert waited < seconds, words
        time.sleep(0.02 if waited < 1 else 0.05)  # rows of another process must be polled
    return found


def stand_on_test_database() -> dict[str, str]:
    """The environment in which a worker finds the test's database. SQLite gets a symlink under the product's file
    name."""
    found = connection.settings_dict
    if connection.vendor == "postgresql":
        return {"DATABASE_URL": f"postgres://{found['USER']}@{quote(found['HOST'], safe='')}/{found['NAME']}"}
    name = Path(settings.DATA_DIR) / "mcpadmin.sqlite3"
    if not name.is_symlink():
        os.symlink(found["NAME"], name)
    return {}


class WorkerProcess:
    def __init__(self, directory: Path, node: str = "w1", **environment: str) -> None:
        self._output = directory / f"{node}-{time.monotonic_ns()}.log"
        given = FAST | stand_on_test_database()
        whole = clean_environment(
            **(given | environment),
            DJANGO_SETTINGS_MODULE="mcpadmin.settings",
            MCPADMIN_DATA_DIR=str(settings.DATA_DIR),
            CELERY_SKIP_CHECKS="true",  # as `up` starts it
        )
        whole.pop("PYTEST_CURRENT_TEST", None)  # the only variable that differs between two tests
        self.process = start(f"{node}@test", whole, self._output, often=given == FAST and not environment)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def ready(self) -> "WorkerProcess":
        """Wait for the first heartbeat."""
        try:
            eventually(lambda: self.row() or self.process.poll() is not None, 60)
            assert self.process.poll() is None, self.output
        except BaseException:  # leave no process behind after any failure
            self.kill()
            raise
        return self

    def row(self) -> Worker | None:
        return Worker.objects.filter(pid=self.pid).first()

    def freeze(self) -> None:
        """Stop the process outside a commit: SQLite has one write lock, so a process stopped in a commit would block
        everything."""
        with transaction.atomic():
            Worker.objects.filter(pid=self.pid).update(pid=self.pid)
            self.process.send_signal(signal.SIGSTOP)
            eventually(lambda: is_stopped(self.pid), words="it does not stop")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self, seconds: float = 20.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the worker did not stop in {seconds} s:\n{self.output[-4000:]}") from None


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, found in /proc, because a process in a PID namespace knows itself by another
    number."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            for child in children:
                found += [int(child), *descendants(int(child))]
        except OSError:
            continue  # the process ended meanwhile
    return found


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


class Effects:
    """The effects that the effect server logged."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def count(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.lines())


def effect_session(effects: Effects, slug: str = "effects", **fields: Any) -> McpSession:
    """A session, desired open, of a server that logs its effects."""
    environment = {"EFFECT_LOG": str(effects.path)}
    return make_session(slug, command=sys.executable, arguments=[str(EFFECT_SERVER)], environment=environment, **fields)


def is_ready(session: McpSession) -> McpSession | None:
    return McpSession.objects.filter(pk=session.pk, state=SessionState.READY).select_related("owner").first()


def await_ready(session: McpSession, seconds: float = 25.0) -> McpSession:
    return eventually(lambda: is_ready(session), seconds, "the session never became ready")


def wake(call: Call, verb: hints.Verb = "call") -> None:
    """Wake the owner, as the web side does after its commit."""
    owner = McpSession.objects.select_related("owner").get(pk=call.session_id).owner
    assert owner is not None
    hints.wake_worker(owner.uid, verb, call.uid, session=call.session_id)
    assert hints.flush()


def ended(call: Call, seconds: float = 60.0) -> Call:
    def look() -> Call | None:
        row = Call.objects.select_related("result", "late_result").get(pk=call.pk)
        return row if row.finished_at else None

    return eventually(look, seconds, f"the call never ended: {Call.objects.get(pk=call.pk)}")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
