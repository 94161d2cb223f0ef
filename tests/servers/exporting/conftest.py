"""A broker that is away, a checkpoint key, a data directory of the test's own, and exports run to their end."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.audit.record import Actor
from servers.enums import ExportFormat, JobKind
from servers.exporting import requesting, work
from servers.jobs import running
from servers.models import Export, ExportSchedule
from tests.servers.audit.proof.log import new_key
from tests.servers.conftest import (  # noqa: F401  fixtures
    _a_writer_of_its_own,
    actor,
    admin,
    on_postgres,
    visitor,
)
from tests.tools import broker


@pytest.fixture(autouse=True)
def _surroundings(settings: Any, tmp_path: Path) -> Iterator[None]:
    new_key(settings, tmp_path)
    settings.DATA_DIR = tmp_path / "data"
    before = dict(running._work)
    running.does(JobKind.EXPORT, lambda progress: work.run(no_store, progress))
    with broker.away():
        yield
    running._work.clear()
    running._work.update(before)
    running._stopping.clear()


def no_store(schedule: ExportSchedule, path: Path, name: str, given_up: threading.Event) -> str:
    raise work.UploadFailed("There is no store in this test.")


def exported(user: Any, actor: Actor, kind: ExportFormat = ExportFormat.JSONL, **options: Any) -> Export:  # noqa: F811  a fixture by its name
    return run(requesting.request(user, actor, kind, **options))


def run(export: Export) -> Export:
    assert export.job is not None
    running.run(str(export.job.uid))
    return Export.objects.select_related("job").get(pk=export.pk)
