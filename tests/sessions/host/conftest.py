"""Workers of the tests stand on the test's own database file, under the name where the product looks for it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from servers.audit import writer
from tests.sessions.host.harness import Effects, WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.log")


@pytest.fixture
def start_worker(transactional_db: None, valkey: Path, tmp_path: Path) -> Iterator[StartWorker]:
    """`start_worker(node, **environment)`: a running worker; all of them are gone before the tables are emptied."""
    _product_database()
    running: list[WorkerProcess] = []

    def start(node: str = "w1", **environment: str) -> WorkerProcess:
        running.append(WorkerProcess(tmp_path, node, **environment))
        return running[-1].ready()

    yield start
    for worker in running:
        if worker.process.poll() is None:
            worker.kill()
    writer.reset()


def _product_database() -> None:
    name = Path(settings.DATA_DIR) / "mcpadmin.sqlite3"
    if not name.is_symlink():
        os.symlink(connection.settings_dict["NAME"], name)
