"""Worker fixtures: real processes on the database and the Valkey of the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.audit import writer
from sessions.models import Worker
from tests.sessions.host.harness import Effects, WorkerProcess, eventually

StartWorker = Callable[..., WorkerProcess]
ShareWorker = Callable[..., WorkerProcess]
MOST_OF_OUTPUT = 8_000


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.log")


class WorkerOfFile:
    """At most one worker process per test file, reused for as long as consecutive tests ask for the same settings."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment: dict[str, str] = {}
        self._worker: WorkerProcess | None = None

    @property
    def output(self) -> str:
        return self._worker.output if self._worker is not None else ""

    def running(self, environment: dict[str, str]) -> WorkerProcess:
        if self._worker is None or self._environment != environment or self._worker.process.poll() is not None:
            self.end()
            self._worker, self._environment = WorkerProcess(self._directory, **environment).ready(), environment
        return self._worker

    def end(self) -> None:
        if self._worker is None:
            return
        self._worker.kill()
        Worker.objects.filter(pid=self._worker.pid).delete()  # its last heartbeats came after the tables were emptied
        self._worker = None


@pytest.fixture(scope="module")
def worker_of_file(
    django_db_setup: None, django_db_blocker: Any, valkey_server: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerOfFile]:
    kept = WorkerOfFile(tmp_path_factory.mktemp("worker"))
    yield kept
    with django_db_blocker.unblock():
        kept.end()


@pytest.fixture
def start_worker(
    worker_of_file: WorkerOfFile, transactional_db: None, valkey: Path, tmp_path: Path
) -> Iterator[StartWorker]:
    """`start_worker(node, **environment)` returns a running worker. All of them are killed before the tables are
    emptied. For tests that end or freeze a worker or need several; other tests use `share_worker`."""
    worker_of_file.end()
    running: list[WorkerProcess] = []

    def start(node: str = "w1", **environment: str) -> WorkerProcess:
        running.append(WorkerProcess(tmp_path, node, **environment))
        return running[-1].ready()

    yield start
    for worker in running:
        if worker.process.poll() is None:
            worker.kill()
    writer.reset()


@pytest.fixture
def share_worker(worker_of_file: WorkerOfFile, transactional_db: None) -> Iterator[ShareWorker]:
    """`share_worker(**environment)` returns the file's worker with these settings. Call it before the test makes a
    session. The tables are emptied while the worker runs: it closes the deleted sessions and keeps running. Settings
    that differ from the previous test's start another worker, so neighbouring tests should use the same ones."""

    def share(**environment: str) -> WorkerProcess:
        worker = worker_of_file.running(environment)
        eventually(worker.row, 10, worker.output)
        return worker

    yield share
    print(worker_of_file.output[-MOST_OF_OUTPUT:])  # shown where the test failed
    writer.reset()


@pytest.fixture
def shared_worker(share_worker: ShareWorker) -> WorkerProcess:
    return share_worker()
