"""Sinks in rows, and events to forward."""

import pytest
from django.db import transaction

from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome, SinkKind
from servers.models import Sink
from tests.servers.conftest import (  # noqa: F401  fixtures
    _a_writer_of_its_own,
    actor,
    admin,
    on_postgres,
    visitor,
)


def chain_of(count: int, subject: str = "tool") -> range:
    with transaction.atomic():
        return record_many(
            [Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM, subject=f"{subject} {n}") for n in range(count)]
        )


@pytest.fixture
def sink(db: None) -> Sink:
    return Sink.objects.create(
        name="SIEM", kind=SinkKind.HTTP, address="https://siem.example.com/in/token-1", created_name="ada"
    )
