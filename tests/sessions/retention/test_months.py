"""A month of calls under a limit of size and one of age: what is stored stays within them, hour by hour."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from servers.audit import writer as writing
from servers.enums import StatementKind
from servers.models import Checkpoint, Payload
from sessions.enums import StoredKind
from sessions.models import Call, RetentionLimit
from tests.sessions.host.make import make_session
from tests.sessions.retention.months import Hour, months

pytestmark = pytest.mark.django_db(transaction=True)
KIB = 1024


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


def kept(hours: int, per_minute: float, *, days: int, contents: int) -> list[Hour]:
    RetentionLimit.objects.create(kind=StoredKind.CALLS, days=days)
    RetentionLimit.objects.create(kind=StoredKind.PAYLOADS, bytes=contents)
    return list(months(make_session("tools"), hours, per_minute))


def holds(found: list[Hour], *, days: int, contents: int) -> None:
    """Nothing beyond the limits after any run; and once they are reached, no more is removed than an hour too much."""
    emptied = 350  # what is left of a payload without its content, until its call goes
    for hour in found:
        assert hour.oldest_call is not None
        assert hour.oldest_call >= hour.now - timedelta(days=days, hours=2)
        assert hour.contents <= contents + emptied * Payload.objects.count()
    assert found[-1].contents >= contents - found[-1].fresh


def test_thirty_hours_hold_their_limits() -> None:
    found = kept(30, 0.5, days=1, contents=500 * KIB)
    holds(found, days=1, contents=500 * KIB)
    assert Call.objects.count() <= 26 * 30
    assert Payload.objects.exclude(erased_at=None).exists()
    assert Checkpoint.objects.filter(kind=StatementKind.REMOVAL).count() == 2, "one for calls and one for payloads"


@pytest.mark.long
def test_thirty_days_hold_their_limits() -> None:
    found = kept(30 * 24 + 48, 1, days=30, contents=20 * KIB * KIB)
    holds(found, days=30, contents=20 * KIB * KIB)
    assert Call.objects.count() <= (30 * 24 + 2) * 60


@pytest.mark.long
def test_hours_at_a_thousand_calls_a_minute_hold_their_size() -> None:
    limit = 75 * KIB * KIB
    found = kept(3, 1000, days=1, contents=limit)
    holds(found, days=1, contents=limit)
