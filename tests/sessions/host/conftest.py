"""Workers of the tests: real processes on the database and the Valkey of the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.audit import writer
from tests.sessions.host.harness import Effects, WorkerProcess, stand_on_test_database

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.log")


@pytest.fixture
def start_worker(transactional_db: None, valkey: Path, tmp_path: Path) -> Iterator[StartWorker]:
    """`start_worker(node, **environment)`: a running worker; all of them are gone before the tables are emptied."""
    stand_on_test_database()
    running: list[WorkerProcess] = []

    def start(node: str = "w1", **environment: str) -> WorkerProcess:
        running.append(WorkerProcess(tmp_path, node, **environment))
        return running[-1].ready()

    yield start
    for worker in running:
        if worker.process.poll() is None:
            worker.kill()
    writer.reset()
