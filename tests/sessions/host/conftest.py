"""Workers of the tests: real processes on the database and the Valkey of the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from servers.audit import writer
from servers.models import Server
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


@pytest.fixture(scope="module")
def shared_worker(
    django_db_setup: None, django_db_blocker: Any, valkey_server: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """One worker for all tests of a file, which may use the database without asking for it."""
    with django_db_blocker.unblock():
        stand_on_test_database()
        worker = WorkerProcess(tmp_path_factory.mktemp("worker")).ready()
        yield worker
        worker.kill()
        writer.reset()
        call_command("flush", verbosity=0, interactive=False)


@pytest.fixture
def tidy_worker(shared_worker: WorkerProcess) -> Iterator[WorkerProcess]:
    """The shared worker, rid of the test's servers afterwards."""
    yield shared_worker
    Server.objects.all().delete()
