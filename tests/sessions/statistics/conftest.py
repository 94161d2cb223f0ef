"""Calls for roll-ups, by bulk insertion."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind
from sessions.enums import CallState
from sessions.models import Call, McpSession
from tests.servers.conftest import on_postgres

__all__ = ["on_postgres"]


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.django_db(transaction=True)), "postgresql"])
def database(request: pytest.FixtureRequest) -> None:
    """Both databases, one after the other."""
    if request.param == "postgresql":
        request.getfixturevalue("on_postgres")


def make_calls(
    session: McpSession, count: int, at: datetime | None = None, *, milliseconds: float | None = 40, **fields: Any
) -> list[Call]:
    """Final unless `state` says otherwise. `milliseconds` None: never sent."""
    at = at or timezone.now() - timedelta(minutes=5)
    arguments = payloads.store(PayloadKind.ARGUMENTS, '{"a":1}')
    state = fields.pop("state", CallState.SUCCEEDED)
    sent = None if milliseconds is None else at
    over = (at + timedelta(milliseconds=milliseconds or 0)) if CallState(state).final else None
    base = {
        "session": session,
        "server": session.server,
        "server_name": session.server.name,
        "identity": session.identity,
        "identity_name": session.identity.name,
        "user_name": "ada",
        "target": "echo",
        "arguments": arguments,
        "deadline": at + timedelta(minutes=1),
        "state": state,
        "created_at": at,
        "sent_at": sent,
        "finished_at": over,
        "duration_ms": None if over is None else round(milliseconds or 0),
        "total_bytes": 7,
    }
    Call.objects.bulk_create([Call(**(base | fields)) for _ in range(count)])
    return list(Call.objects.order_by("-pk")[:count])
