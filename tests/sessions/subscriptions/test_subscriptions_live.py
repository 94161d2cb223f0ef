"""A subscription survives the loss of worker, broker and server, in both eras, on servers of the official SDKs."""

from pathlib import Path
from typing import Any

import pytest

from sessions.enums import SubscriptionState, VersionCause
from sessions.models import Subscription
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import eventually
from tests.sessions.subscriptions.world import Notes, NoteServer, await_state, await_text, subscribe, texts
from tests.tools.valkey import flush

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
EVERYWHERE = pytest.mark.parametrize(
    ("era", "transport"),
    [
        ("legacy", "stdio"),
        pytest.param("legacy", "http", marks=pytest.mark.long),
        pytest.param("modern", "stdio", marks=pytest.mark.long),
        ("modern", "http"),
    ],
    ids=["legacy-stdio", "legacy-http", "modern-stdio", "modern-http"],
)


def gap(subscription: Subscription) -> Any:
    """The newest gap, once it is closed."""
    return eventually(lambda: (row := subscription.gaps.first()) and row.ended_at and row, 20, "no gap was closed")


@EVERYWHERE
def test_a_subscription_survives_worker_broker_and_server(
    era: str,
    transport: str,
    start_worker: StartWorker,
    valkey: Path,
    ada: Any,
    notes: Notes,
    note_server: NoteServer,
) -> None:
    notes.write("first")
    server = note_server.register(era, transport)
    row = subscribe(ada, server)
    worker = start_worker()
    first = await_text(row, "first")
    assert (first.number, first.cause) == (1, VersionCause.SUBSCRIBED)
    await_state(row, SubscriptionState.LISTENING)

    notes.write("second")
    second = await_text(row, "second")
    assert (second.number, second.cause, second.events >= 1) == (2, VersionCause.UPDATED, True)

    worker.kill()
    flush(valkey)
    notes.write("third, while nobody listened")
    start_worker()
    third = await_text(row, "third, while nobody listened")
    assert third.cause == VersionCause.AFTER_GAP
    hole = gap(row)
    assert (hole.changed, "worker" in hole.reason) == (True, True)
    await_state(row, SubscriptionState.LISTENING)

    note_server.restart()
    eventually(lambda: row.gaps.count() == 2, 20, "the end of the server left no gap")
    assert gap(row).changed is False
    await_state(row, SubscriptionState.LISTENING)
    for text in ("four", "five", "six"):
        notes.write(text)
        await_text(row, text)
    eventually(lambda: Subscription.objects.get(pk=row.pk).event_count >= 4, 20, "notifications are missing")
    row.refresh_from_db()
    assert texts(row) == ["first", "second", "third, while nobody listened", "four", "five", "six"]
    assert [version.number for version in row.versions.order_by("number")] == [1, 2, 3, 4, 5, 6]
    assert row.newest == 6
    assert row.event_count == sum(hour.events for hour in row.hours.all())
