"""Only workers with a server's label claim its sessions, and no worker claims more than its share."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from servers.models import ServerDraft
from sessions.connections import assignment, commands
from sessions.host import tick
from sessions.host.desired_state import read_desired_states
from sessions.models import McpSession, Worker
from tests.sessions.connections.test_commands import a_worker
from tests.sessions.host.make import make_me, make_session, make_worker
from tests.tools.bells import bells

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def labelled(*labels: str, node: str = "gpu@here") -> Worker:
    worker = make_worker(make_me(node=node))
    Worker.objects.filter(pk=worker.pk).update(labels=list(labels))
    return Worker.objects.get(pk=worker.pk)


def test_only_a_worker_that_carries_the_label_claims_the_session() -> None:
    session = make_session(worker_label="gpu")
    plain, other = make_worker(), labelled("disk", node="disk@here")
    for worker in (plain, other):
        assert assignment.claim_some(worker.pk) == []
        assert assignment.claim_one(session.uid, worker.pk) == []
    assert [lease.session_uid for lease in assignment.claim_some(labelled("disk", "gpu").pk)] == [session.uid]


def test_the_least_loaded_worker_of_the_label_is_asked(valkey: Path) -> None:
    session = make_session(worker_label="gpu")
    a_worker("idle@host")
    gpu = a_worker("gpu@host", load=7)
    Worker.objects.filter(pk=gpu.pk).update(labels=["gpu"])
    with bells(valkey, gpu.uid) as heard:
        commands.wake_owner(session.uid)
        assert heard.next()["id"] == str(session.uid)


def test_without_a_worker_of_the_label_no_one_is_asked() -> None:
    make_worker()
    assert not commands.ask_worker("session", uuid4(), "gpu")


def test_a_worker_that_ends_is_not_asked(valkey: Path) -> None:
    session = make_session()
    departing = a_worker("leaver@host")
    other = a_worker("other@host", load=3)
    with bells(valkey, other.uid) as heard:
        commands.wake_owner(session.uid, departing=departing.uid)
        assert heard.next()["verb"] == "session"


def test_a_label_that_the_owner_does_not_carry_sends_the_session_elsewhere() -> None:
    session = make_session()
    owner = labelled("disk")
    assignment.claim_one(session.uid, owner.pk)
    assert read_desired_states(owner.pk)[session.pk].open
    session.server.worker_label = "gpu"
    session.server.save()
    desired = read_desired_states(owner.pk)[session.pk]
    assert (desired.open, desired.requested, desired.elsewhere) == (False, True, True)
    session.server.worker_label = "disk"
    session.server.save()
    assert read_desired_states(owner.pk)[session.pk].open


def test_a_worker_that_holds_more_than_the_others_takes_nothing() -> None:
    busy, idle = make_worker(), make_worker(make_me(node="idle@here"))
    for number in range(6):
        make_session(f"held-{number}")
    McpSession.objects.update(owner=busy)
    for number in range(4):
        make_session(f"free-{number}")
    assert assignment.claim_some(busy.pk) == []
    assert len(assignment.claim_some(idle.pk)) == 4


def test_a_worker_claims_its_share_of_each_of_its_labels() -> None:
    both = labelled("disk", "gpu")
    for label in ("disk", "gpu"):
        for number in range(4):
            make_session(f"{label}-{number}", worker_label=label)
    assert len(assignment.claim_some(both.pk)) == 8


def test_at_most_fifty_sessions_of_all_labels_are_claimed_at_once() -> None:
    both = labelled("disk", "gpu")
    for label in ("disk", "gpu"):
        for number in range(30):
            make_session(f"{label}-{number}", worker_label=label)
    assert len(assignment.claim_some(both.pk)) == assignment.CLAIM_LIMIT


def test_the_share_of_a_label_is_counted_among_those_that_carry_it() -> None:
    gpu = labelled("gpu")
    make_worker(make_me(node="plain@here"))
    for number in range(4):
        make_session(f"gpu-{number}", worker_label="gpu")
    assert len(assignment.claim_some(gpu.pk)) == 4


def test_a_test_of_a_connection_is_for_workers_of_its_label() -> None:
    user = get_user_model().objects.create_user("ada")
    common = {"user": user, "transport": "stdio", "sealed": b"", "key_id": "", "expires_at": timezone.now() + HOUR}
    plain = ServerDraft.objects.create(**common)
    gpu = ServerDraft.objects.create(**common, worker_label="gpu")
    assert tick.waiting_drafts([]) == [plain.uid]
    assert set(tick.waiting_drafts(["gpu"])) == {plain.uid, gpu.uid}
