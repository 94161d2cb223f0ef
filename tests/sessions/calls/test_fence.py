"""On PostgreSQL a session changes its owner before a call is claimed or after the claim is committed, never in between."""

import pytest
from django.db import transaction
from django.db.models import F

from sessions.calls import claims
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
