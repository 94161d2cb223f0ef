"""A session that its worker closes because it is idle, and a call that is placed in the same moment."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.utils import timezone

from servers.audit import writer
from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from sessions.calls import intents, placing
from sessions.calls.intents import Intent
from sessions.calls.placing import SubmittedArguments
from sessions.connections import lifecycle
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState, Desired
from sessions.models import Call, McpSession, ServerTask
from sessions.models.server_task import FOLLOWED_FOR
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.sessions.calls.contender import meanwhile
from tests.sessions.host.harness import eventually
from tests.sessions.host.make import make_call, make_hold, make_session

TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writer.reset()


def requested() -> tuple[Lease, Intent]:
    """A session that is open, and a call of it that passed every check and is not written yet."""
    session = make_session()
    lease = make_hold(session)
    store_listing(session.server, DefinitionKind.TOOL, [TOOL], timezone.now())
    user = get_user_model().objects.create_superuser("ada")
    return lease, placing.check(Actor.of_user(user), user, session.server.uid, "echo", SubmittedArguments(value={}))


def desired() -> str:
    return McpSession.objects.get().desired


def place(intent: Intent) -> None:
    writer.writer().submit_and_wait(partial(intents.write, intent), partial(intents.requested, intent), 20.0)


@pytest.mark.django_db(transaction=True)
def test_a_call_that_was_checked_before_the_session_closed_opens_it_again() -> None:
    lease, intent = requested()
    with transaction.atomic():
        assert lifecycle.close_when_idle(lease)
    place(intent)
    assert (desired(), Call.objects.count()) == (Desired.OPEN, 1)


@pytest.mark.django_db(transaction=True)
def test_a_session_whose_task_outlived_its_call_stays_open_as_long_as_the_task_is_followed() -> None:
    session = make_session()
    lease, now = make_hold(session), timezone.now()
    call = make_call(session)
    Call.objects.update(state=CallState.OUTCOME_UNKNOWN)
    ServerTask.objects.create(
        call=call, session=session, task_id="t", status="working", begun_at=now, changed_at=now, seen_at=now
    )
    with transaction.atomic():
        assert not lifecycle.close_when_idle(lease)
    ServerTask.objects.update(begun_at=now - FOLLOWED_FOR)
    with transaction.atomic():
        assert lifecycle.close_when_idle(lease)


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


@pytest.mark.usefixtures("on_postgres")
def test_on_postgresql_a_call_waits_for_a_close_that_is_under_way_and_opens_the_session_again() -> None:
    lease, intent = requested()
    placed = threading.Thread(target=place, args=[intent])
    with transaction.atomic():
        assert lifecycle.close_when_idle(lease)
        placed.start()
        eventually(waits_for_a_lock)
    placed.join()
    assert (desired(), Call.objects.count()) == (Desired.OPEN, 1)


def closed(lease: Lease) -> bool | None:
    """None if it had to wait."""
    return meanwhile(partial(lifecycle.close_when_idle, lease))


@pytest.mark.usefixtures("on_postgres")
def test_on_postgresql_no_session_closes_while_its_call_is_not_committed() -> None:
    lease, intent = requested()
    with transaction.atomic():
        intents.write(intent)
        assert closed(lease) is None
    assert closed(lease) is False
    assert desired() == Desired.OPEN
    with transaction.atomic():
        intents.request_session(lease.session_id)
        assert closed(lease) is None
