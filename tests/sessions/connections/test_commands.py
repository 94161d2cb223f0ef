"""Orders are stored in the session row and the audit log, and the worker that must act is notified."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone

from servers.audit import writer as writer_module
from servers.audit.record import SYSTEM
from servers.enums import AuditAction, ConnectionPolicy, TransportKind
from servers.models import AuditEvent, Server
from sessions.calls import final_states
from sessions.connections import commands
from sessions.enums import CallState, Desired
from sessions.housekeeping import changed_registrations
from sessions.models import Call, McpSession, Worker
from tests.sessions.host.make import make_call
from tests.tools.bells import bells

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writer_module.reset()


@pytest.fixture
def session() -> McpSession:
    server = Server.objects.create(slug="demo", name="Demo", transport=TransportKind.STDIO, command="true")
    return commands.shared_session(server)


def a_worker(node: str, load: int = 0, age: float = 0.0) -> Worker:
    now = timezone.now()
    beat = now - timedelta(seconds=age)
    return Worker.objects.create(node=node, machine="m", pid=1, started_at=now, heartbeat_at=beat, session_count=load)


def test_an_order_is_in_the_row_and_in_the_log_once(session: McpSession) -> None:
    assert commands.open_session(SYSTEM, session)
    assert not commands.open_session(SYSTEM, session)
    session.refresh_from_db()
    assert session.desired == Desired.OPEN
    assert AuditEvent.objects.filter(action=AuditAction.SESSION_OPEN).count() == 1


def test_closing_and_opening_again_are_two_orders(session: McpSession) -> None:
    commands.open_session(SYSTEM, session)
    commands.close_session(SYSTEM, session)
    session.refresh_from_db()
    assert session.desired == Desired.CLOSED
    assert AuditEvent.objects.filter(action=AuditAction.SESSION_CLOSE).count() == 1


def test_each_reconnect_is_an_order_of_its_own(session: McpSession) -> None:
    version = session.version
    commands.reconnect(SYSTEM, session)
    commands.reconnect(SYSTEM, session)
    session.refresh_from_db()
    assert (session.restart_requested, session.desired) == (2, Desired.OPEN)
    assert session.version == version + 2


def test_the_living_owner_is_rung(session: McpSession, valkey: Path) -> None:
    owner = a_worker("w1@host")
    McpSession.objects.update(owner=owner, desired=Desired.OPEN)
    with bells(valkey, owner.uid) as heard:
        commands.refresh(SYSTEM, session)
        body = heard.next()
    assert body.pop("expires") > 0
    assert body == {"v": 1, "verb": "session", "id": str(session.uid), "session": 0}
    session.refresh_from_db()
    assert session.refresh_requested == 1


def test_without_owner_the_least_loaded_living_worker_is_rung(session: McpSession, valkey: Path) -> None:
    a_worker("busy@host", load=9)
    a_worker("dead@host", load=0, age=60)
    with bells(valkey, a_worker("free@host", load=1).uid) as heard:
        commands.open_session(SYSTEM, session)
        body = heard.next()
    assert body.pop("expires") > 0
    assert body == {"v": 1, "verb": "session", "id": str(session.uid), "session": 0}


def test_an_owner_that_died_is_not_rung(session: McpSession, valkey: Path) -> None:
    dead = a_worker("dead@host", age=60)
    McpSession.objects.update(owner=dead)
    with bells(valkey, a_worker("free@host").uid) as heard:
        commands.open_session(SYSTEM, session)
        assert heard.next()["id"] == str(session.uid)


def test_without_redis_an_order_is_kept_all_the_same(session: McpSession) -> None:
    a_worker("free@host")
    assert commands.open_session(SYSTEM, session)
    session.refresh_from_db()
    assert session.desired == Desired.OPEN


@pytest.mark.parametrize(
    ("change", "reconnect", "policy", "desired", "restarts"),
    [
        (AuditAction.SERVER_REGISTER, False, ConnectionPolicy.ALWAYS_ON, Desired.OPEN, 0),
        (AuditAction.SERVER_REGISTER, False, ConnectionPolicy.ON_DEMAND, Desired.CLOSED, 0),
        (AuditAction.SERVER_ENABLE, False, ConnectionPolicy.ALWAYS_ON, Desired.OPEN, 0),
        (AuditAction.SERVER_CHANGE, True, ConnectionPolicy.ALWAYS_ON, Desired.OPEN, 1),
        (AuditAction.SERVER_CHANGE, True, ConnectionPolicy.ON_DEMAND, Desired.CLOSED, 0),
        (AuditAction.SERVER_CHANGE, False, ConnectionPolicy.ALWAYS_ON, Desired.CLOSED, 0),
    ],
)
def test_a_registration_decides_whether_its_session_is_wanted(
    session: McpSession,
    change: AuditAction,
    reconnect: bool,
    policy: ConnectionPolicy,
    desired: Desired,
    restarts: int,
) -> None:
    Server.objects.update(connection_policy=policy)
    changed_registrations.registration_changed(session.server.uid, change, reconnect=reconnect)
    session.refresh_from_db()
    assert (session.desired, session.restart_requested) == (desired, restarts)


@pytest.mark.parametrize("change", [AuditAction.SERVER_DISABLE, AuditAction.SERVER_ARCHIVE])
def test_a_server_taken_out_of_service_closes_its_session(session: McpSession, change: AuditAction) -> None:
    McpSession.objects.update(desired=Desired.OPEN)
    Server.objects.update(enabled=False)
    changed_registrations.registration_changed(session.server.uid, change)
    session.refresh_from_db()
    assert session.desired == Desired.CLOSED


def waiting_calls(session: McpSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one transaction ends."""
    monkeypatch.setattr(final_states, "BATCH", 2)
    for _ in range(5):
        make_call(session)


def states_of_calls() -> set[str]:
    writer_module.writer().submit_and_wait(lambda: None, lambda _: [])  # after those that were submitted before
    return set(Call.objects.values_list("state", flat=True))


def test_every_waiting_call_of_a_disabled_server_ends(session: McpSession, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_calls(session, monkeypatch)
    Server.objects.update(enabled=False)
    changed_registrations.registration_changed(session.server.uid, AuditAction.SERVER_DISABLE)
    assert states_of_calls() == {CallState.CANCELLED}
    assert AuditEvent.objects.filter(action=AuditAction.CALL_FINISH).count() == 5


def test_every_waiting_call_of_an_ended_identity_ends(session: McpSession, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_calls(session, monkeypatch)
    with transaction.atomic():
        changed_registrations.identity_ended(session.identity_id)
    assert states_of_calls() == {CallState.CANCELLED}
