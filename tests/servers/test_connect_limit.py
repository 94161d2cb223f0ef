"""mcpadmin cannot be used to scan a network: a person may try only so many addresses per minute."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers import connect_limit
from servers.audit.record import Actor, Event, record_many
from servers.connect_limit import TooOften
from servers.credentials.authorizations import begin
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent, ServerAuthorization, ServerDraft
from servers.registration import registering
from tests.servers.cast import create_draft, over_http
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db


@pytest.fixture
def tried(actor: Actor) -> Callable[..., None]:
    """`tried(count)` records that many attempts, just now."""

    def record(count: int, action: AuditAction = AuditAction.CONNECTION_TEST, by: Actor = actor) -> None:
        begun = AuditOutcome.PENDING if action == AuditAction.CONNECTION_TEST else AuditOutcome.OK
        record_many([Event(action=action, outcome=begun, actor=by, server=None) for _ in range(count)])

    return record


def test_the_eleventh_address_in_a_minute_is_refused_with_the_time_to_wait(
    admin: Any, actor: Actor, tried: Callable[..., None]
) -> None:
    tried(9)
    create_draft(actor, admin, over_http())
    tried(1)
    with pytest.raises(TooOften, match=r"Try again in \d+ s") as refused:
        create_draft(actor, admin, over_http())
    assert 0 < refused.value.seconds <= 60
    assert ServerDraft.objects.count() == 1


@pytest.mark.usefixtures("tamperable")
def test_a_minute_later_it_goes_on(admin: Any, actor: Actor, tried: Callable[..., None]) -> None:
    tried(10)
    AuditEvent.objects.update(at=timezone.now() - timedelta(seconds=61))
    create_draft(actor, admin, over_http())


def test_what_others_try_does_not_count(admin: Any, actor: Actor, tried: Callable[..., None]) -> None:
    tried(50, by=Actor.of_user(person("bea", "add_server")))
    tried(50, AuditAction.CALL_REQUEST)
    create_draft(actor, admin, over_http())


def test_sign_ins_and_connection_tests_are_counted_together(
    admin: Any, actor: Actor, tried: Callable[..., None]
) -> None:
    server = registering.register(actor, admin, over_http(url="https://mcp.example.com/mcp"))
    tried(5)
    tried(5, AuditAction.SIGN_IN_BEGIN)
    with pytest.raises(TooOften):
        begin(actor, admin, server, "browser")
    assert not ServerAuthorization.objects.exists()


@pytest.mark.parametrize("action", [AuditAction.SERVER_REGISTER, AuditAction.SERVER_CHANGE])
def test_servers_count_for_the_next_import_and_for_nothing_else(
    admin: Any, actor: Actor, tried: Callable[..., None], action: AuditAction
) -> None:
    tried(10, action)
    connect_limit.require(admin)
    with pytest.raises(TooOften):
        connect_limit.require(admin, *connect_limit.IMPORTED)


def test_an_operator_chooses_how_many(admin: Any, tried: Callable[..., None], settings: Any) -> None:
    settings.TRIES_PER_MINUTE = 2
    tried(2)
    with pytest.raises(TooOften):
        connect_limit.require(admin)
    settings.TRIES_PER_MINUTE = 0
    connect_limit.require(admin)
