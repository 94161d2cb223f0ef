"""Fixtures of the subscription tests: a user, notes, and a note server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit import writer
from tests.sessions.host.conftest import share_worker, start_worker, worker_of_file  # noqa: F401  fixtures
from tests.sessions.subscriptions.world import Notes, NoteServer


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    folder = tmp_path / "notes"
    folder.mkdir()
    return Notes(folder)


@pytest.fixture
def ada(db: None) -> Iterator[Any]:
    """A superuser; resets the audit writer of this process afterwards."""
    yield get_user_model().objects.create_superuser("ada", password="x")
    writer.reset()


@pytest.fixture
def note_server(notes: Notes) -> Iterator[NoteServer]:
    server = NoteServer(notes)
    yield server
    server.stop()
