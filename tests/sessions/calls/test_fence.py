"""On PostgreSQL a session changes its owner before a call is claimed or after the claim is committed, never in between.
A change of what a call refers to does not make it wait, unless that is deleted."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers.accounts import people
from servers.audit.record import SYSTEM, Actor
from servers.credentials import identities, issuers
from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind, EraChoice, SignsInAs
from servers.models import Server
from servers.registration import registering
from sessions.calls import claims, intents, placing
from sessions.calls.placing import SubmittedArguments
from sessions.enums import CallState
from sessions.models import Call, McpSession
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.sessions.calls.contender import meanwhile
from tests.sessions.host.make import make_call, make_hold, make_session


def taken_over() -> bool:
    """Whether another process can take the session, without a long wait for its row."""
    return bool(meanwhile(lambda: McpSession.objects.update(epoch=F("epoch") + 1)))


@pytest.mark.usefixtures("on_postgres")
def test_no_one_takes_a_session_while_a_claim_of_its_call_is_not_committed() -> None:
    lease = make_hold(make_session())
    pending = claims.read_pending_call(make_call(McpSession.objects.get(), text="hi").uid)
    assert pending is not None
    with transaction.atomic():
        assert claims.claim(pending, lease)
        assert not taken_over()
    assert taken_over()
    assert Call.objects.get().state == CallState.SENT


@pytest.mark.usefixtures("on_postgres")
def test_a_worker_that_lost_the_session_cannot_claim_its_calls_on_postgresql() -> None:
    lease = make_hold(make_session())
    pending = claims.read_pending_call(make_call(McpSession.objects.get(), text="hi").uid)
    assert pending is not None
    assert taken_over()
    assert claims.claim(pending, lease) == []
    assert Call.objects.get().state == CallState.REQUESTED


def _begin_identity(server: Server, user: Any) -> None:
    with identities.begun(SYSTEM, user, server):
        pass


_CHANGES: dict[str, Callable[[Server, Any], object]] = {
    "era": lambda server, user: registering.choose_era(SYSTEM, user, server, EraChoice.LEGACY),
    "disabled": lambda server, user: registering.disable(SYSTEM, user, server),
    "personal identity": _begin_identity,
    "sign-in asked for": lambda server, _: issuers.challenged(server.identities.get().pk, {}),
    "another person's account": lambda _, user: people.disable(
        SYSTEM, user, get_user_model().objects.get(username="bo")
    ),
}


@pytest.mark.usefixtures("on_postgres")
@pytest.mark.parametrize("change", _CHANGES)
def test_on_postgresql_a_call_does_not_wait_for_a_change_of_what_it_refers_to(change: str) -> None:
    server = make_session(signs_in_as=SignsInAs.EITHER).server
    store_listing(server, DefinitionKind.TOOL, [{"name": "echo", "inputSchema": {"type": "object"}}], timezone.now())
    user = get_user_model().objects.create_superuser("ada")
    get_user_model().objects.create_user("bo")
    intent = placing.check(Actor.of_user(user), user, server.uid, "echo", SubmittedArguments(value={}))
    with transaction.atomic():
        _CHANGES[change](server, user)
        assert meanwhile(partial(intents.write, intent)) is not None
