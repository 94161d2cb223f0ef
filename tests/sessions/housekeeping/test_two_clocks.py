"""Whether a worker lives is judged by the database's clock, also on a machine whose own clock is wrong. On a real PostgreSQL."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from servers.audit.record import Actor
from servers.enums import JobKind, JobState
from servers.jobs import requesting, running
from servers.models import BackgroundJob
from sessions import tasks  # noqa: F401  registers the work of each kind of job
from sessions.calls.operations import operation_of
from sessions.calls.targets import find_target
from sessions.connections import assignment
from sessions.mcp.core.methods import RESOURCES_READ
from sessions.models import McpSession, Worker
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.servers.jobs.conftest import ring_text
from tests.sessions.host.make import make_me, make_session, make_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("on_postgres")]


@pytest.fixture(params=[timedelta(minutes=1), timedelta(minutes=-1)], ids=["ahead", "behind"])
def _wrong(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + request.param)


def beaten(name: str, *, silent_for: float = 0) -> Worker:
    """`silent_for` by the database's clock."""
    worker = make_worker(replace(make_me(node=name), machine=name))
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=worker.heartbeat_at - timedelta(seconds=silent_for))
    return Worker.objects.get(pk=worker.pk)


@pytest.mark.usefixtures("_wrong")
def test_a_living_worker_is_known_from_a_dead_one_whatever_the_clock_of_this_machine() -> None:
    living, dead = beaten("here"), beaten("there", silent_for=30)
    assert [worker.pk for worker in Worker.objects.living()] == [living.pk]
    assert (living.alive, dead.alive) == (True, False)


@pytest.mark.usefixtures("_wrong")
def test_a_call_finds_the_owner_of_its_session_whatever_the_clock_of_this_machine() -> None:
    session, owner = make_session(), beaten("here")
    McpSession.objects.update(owner=owner)
    caller = get_user_model().objects.create_superuser("root")
    target = find_target(caller, Actor.of_user(caller), session.server.uid, operation_of(RESOURCES_READ), "file:///a")
    assert target.owner_uid == owner.uid


@pytest.mark.usefixtures("_wrong")
def test_a_worker_shares_with_the_others_whatever_the_clock_of_this_machine() -> None:
    for number in range(4):
        make_session(f"server-{number}")
    mine = beaten("here")
    beaten("there")
    assert len(assignment.claim_some(mine.pk)) == 2


@pytest.mark.usefixtures("_wrong")
def test_keys_of_one_machine_are_not_rotated_while_another_ones_worker_lives(settings: Any, tmp_path: Path) -> None:
    settings.KEYRING_FILE = tmp_path / "keyring.json"
    settings.KEYRING_FILE.write_text(ring_text("k1"))
    beaten("here"), beaten("there")
    job = requesting.request_scheduled(JobKind.ROTATION)
    assert job is not None
    running.run(str(job.uid))
    assert BackgroundJob.objects.get().state == JobState.FAILED
    assert settings.KEYRING_FILE.read_text() == ring_text("k1")
