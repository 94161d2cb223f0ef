"""The host reads the orders of all its sessions often, so it needs two statements and wakes only affected sessions."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from sessions.connections import assignment
from sessions.enums import SubscriptionState
from sessions.host.desired_state import read_desired_states
from sessions.host.launch import load
from sessions.host.logs.writer import LogWriter
from sessions.host.reconnect_delays import Ceilings
from sessions.host.session_supervisor import SessionSupervisor
from sessions.host.shared import Shared
from sessions.host.subscriptions.notification_counts import CountWriter
from sessions.host.wire.writer import WireWriter
from sessions.models import McpSession, Subscription
from tests.sessions.host.make import make_hold, make_session, make_worker

ROOTS = [{"uri": "file:///srv", "name": "Srv"}]


@pytest.mark.django_db
def test_the_orders_of_all_sessions_are_two_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    worker = make_worker()
    for number in range(5):
        make_hold(make_session(f"server-{number}", roots=ROOTS), worker)
    with django_assert_num_queries(2):
        found = read_desired_states(worker.pk)
    assert [(one.open, one.epoch, one.roots) for one in found.values()] == [(True, 1, (("file:///srv", "Srv"),))] * 5


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("session", "server", "wanted", "opened"),
    [
        ({}, {}, True, True),
        ({"paused": True}, {}, True, False),
        ({"desired": "closed"}, {}, False, False),
        ({}, {"enabled": False}, False, False),
        ({}, {"archived_at": timezone.now()}, False, False),
        ({}, {"worker_label": "gpu"}, True, False),
    ],
    ids=["wanted", "paused", "closed", "disabled", "archived", "elsewhere"],
)
def test_what_is_in_the_rows_is_the_order(
    session: dict[str, Any], server: dict[str, Any], wanted: bool, opened: bool
) -> None:
    worker, row = make_worker(), make_session()
    make_hold(row, worker)
    McpSession.objects.filter(pk=row.pk).update(restart_requested=3, **session)
    type(row.server).objects.filter(pk=row.server_id).update(**server)
    (found,) = read_desired_states(worker.pk, uid=row.uid).values()
    assert (found.requested, found.open, found.restart_requested) == (wanted, opened, 3)


@pytest.mark.django_db
def test_a_session_without_subscriptions_is_told_so_when_it_is_opened() -> None:
    row = make_session()
    McpSession.objects.update(watch_requested=4)
    assert load(row.pk).unwatched == 4
    now = timezone.now()
    key = {"server": row.server, "identity": row.identity, "uri": "note://one"}
    Subscription.objects.create(**key, created_at=now, state_since=now, state=SubscriptionState.LISTENING)
    assert load(row.pk).unwatched == -1


@pytest.mark.django_db(transaction=True)
async def test_orders_that_did_not_change_wake_no_one() -> None:
    lease, desired = await _adopted()
    writers: Any = (LogWriter(None), WireWriter(None), CountWriter(None))  # type: ignore[arg-type]  # no database is needed
    shared = Shared(*writers, Ceilings(1.0, 60.0, 1.0), print, print)
    supervisor = SessionSupervisor(lease, desired, None, shared)  # type: ignore[arg-type]  # nor a database here
    supervisor.desired_changed(replace(desired))
    assert not supervisor._news.is_set()
    supervisor.desired_changed(replace(desired, watch_requested=9))
    assert supervisor._news.is_set()
    supervisor._news.clear()
    supervisor.desired_changed(None)
    assert supervisor._news.is_set()


async def _adopted() -> tuple[Any, Any]:
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - used once

    def made() -> tuple[Any, Any]:
        worker = make_worker()
        lease = make_hold(make_session(), worker)
        return lease, read_desired_states(worker.pk)[lease.session_id]

    return await sync_to_async(made)()


def test_a_worker_takes_as_many_descriptors_as_it_may_have() -> None:
    lines = (
        "import resource as r; most = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (256, most))",
        "from servers import open_files; open_files.raise_limit(300)",
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0])",
    )
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "300"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "policy", "ended", "active", "wanted"),
    [
        ("shared", "shared", False, True, True),
        ("shared", "either", False, True, True),
        ("shared", "personal", False, True, False),
        ("personal", "shared", False, True, False),
        ("personal", "either", False, True, True),
        ("personal", "personal", False, True, True),
        ("personal", "either", True, True, False),
        ("personal", "either", False, False, False),
    ],
)
def test_a_session_is_only_held_and_taken_while_its_identity_counts(
    kind: str, policy: str, ended: bool, active: bool, wanted: bool
) -> None:
    worker, row = make_worker(), make_session()
    make_hold(row, worker)
    user = get_user_model().objects.create_user("ada", is_active=active)
    fields = {"kind": kind, "user": user if kind == "personal" else None, "ended_at": timezone.now() if ended else None}
    type(row.identity).objects.filter(pk=row.identity_id).update(**fields)
    type(row.server).objects.filter(pk=row.server_id).update(signs_in_as=policy)
    (found,) = read_desired_states(worker.pk, uid=row.uid).values()
    assert found.open is wanted
    McpSession.objects.filter(pk=row.pk).update(owner=None)
    assert bool(assignment.claim_one(row.uid, worker.pk)) is wanted
