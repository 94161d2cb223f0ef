"""Fixtures of the background job tests: an unreachable broker, a private key ring, jobs in various states."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome
from servers.jobs import running, work  # noqa: F401  importing work registers its jobs
from servers.models import AuditEvent
from tests.servers.conftest import (  # noqa: F401  fixtures
    _a_writer_of_its_own,
    actor,
    admin,
    on_postgres,
    operator,
    visitor,
)
from tests.tools import broker


@pytest.fixture(autouse=True)
def _no_broker() -> Iterator[None]:
    with broker.away():
        yield


@pytest.fixture(autouse=True)
def _a_worker_that_goes_on() -> Iterator[None]:
    yield
    running._stopping.clear()


@pytest.fixture
def keyring_file(settings: Any, tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    path.write_text(ring_text("k1"))
    path.chmod(0o600)
    settings.KEYRING_FILE = path
    return path


def ring_text(*ids: str) -> str:
    """A key ring with these keys. The last one is current."""
    keys = {key_id: b64encode(key_id.encode().ljust(32, b"-")).decode() for key_id in ids}
    return json.dumps({"current": ids[-1], "keys": keys})


def chain_of(count: int) -> None:
    events = [Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM, subject=f"tool {n}") for n in range(count)]
    record_many(events)


def details(event: AuditEvent) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.body)["details"]
    return found
