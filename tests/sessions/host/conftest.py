"""Workers of the tests: real processes on the database and the Valkey of the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from servers.audit import writer
from tests.sessions.host.harness import Effects, WorkerProcess, eventually

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.log")


@pytest.fixture
def start_worker(transactional_db: None, valkey: Path, tmp_path: Path) -> Iterator[StartWorker]:
    """`start_worker(node, **environment)`: a running worker; all of them are gone before the tables are emptied."""
    running: list[WorkerProcess] = []

    def start(node: str = "w1", **environment: str) -> WorkerProcess:
        running.append(WorkerProcess(tmp_path, node, **environment))
        return running[-1].ready()

    yield start
    for worker in running:
        if worker.process.poll() is None:
            worker.kill()
    writer.reset()


@pytest.fixture(scope="module")
def module_worker(
    django_db_setup: None, django_db_blocker: Any, valkey_server: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    with django_db_blocker.unblock():
        worker = WorkerProcess(tmp_path_factory.mktemp("worker")).ready()
    yield worker
    worker.kill()
    with django_db_blocker.unblock():  # its last heartbeats came after the tables were emptied for the last time
        call_command("flush", verbosity=0, interactive=False)


@pytest.fixture
def shared_worker(module_worker: WorkerProcess, transactional_db: None) -> Iterator[WorkerProcess]:
    """One worker for all tests of a file. The tables are emptied under it: it closes what is gone and lives on."""
    eventually(module_worker.row, 10, module_worker.output)
    yield module_worker
    writer.reset()
