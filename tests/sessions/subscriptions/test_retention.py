"""A history is trimmed by count, age and bytes, but always keeps the newest version."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.enums import PayloadKind
from servers.models import Payload, Server
from sessions.enums import DeliveryState
from sessions.models import ResourceVersion, Subscription, SubscriptionGap, SubscriptionHour, WebhookDelivery
from sessions.retention import histories
from sessions.subscriptions import subscribing, trimming
from tests.sessions.host.make import make_hold, make_session
from tests.sessions.subscriptions.world import subscribe, texts
from tests.sessions.subscriptions.writing import found, hold_of, store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def row(valkey: Path, ada: Any) -> Subscription:
    """A subscription with versions 1 to 5 of one byte each."""
    session = make_session("notes")
    row = subscribe(ada, session.server)
    lease = make_hold(session)
    for text in "12345":
        store(lease, row, found(text))
    return Subscription.objects.get(pk=row.pk)


def trimmed(row: Subscription, **settings: int) -> list[str]:
    Subscription.objects.filter(pk=row.pk).update(**settings)
    trimming.trim(Subscription.objects.get(pk=row.pk))
    assert Payload.objects.filter(kind=PayloadKind.RESOURCE).count() == ResourceVersion.objects.count()
    return texts(row)


def test_the_newest_are_kept_by_count(row: Subscription) -> None:
    assert trimmed(row, keep_count=2) == ["4", "5"]


def test_the_newest_are_kept_by_bytes_and_the_newest_whatever_its_size(row: Subscription) -> None:
    assert trimmed(row, keep_bytes=3) == ["3", "4", "5"]
    assert trimmed(row, keep_bytes=0) == ["5"]


def test_old_ones_go_and_the_newest_stays_however_old(row: Subscription) -> None:
    old = timezone.now() - timedelta(days=91)
    ResourceVersion.objects.filter(number__lte=3).update(at=old)
    assert trimmed(row) == ["3", "4", "5"], "the third was current until the fourth replaced it now"
    ResourceVersion.objects.update(at=old)
    assert trimmed(row) == ["5"]


def test_many_versions_are_trimmed_as_they_come(row: Subscription) -> None:
    Subscription.objects.update(keep_count=3)
    lease = hold_of(row.server.sessions.get())
    for number in range(6, 21):
        store(lease, row, found(str(number)))
    assert texts(row) == ["18", "19", "20"]
    assert Subscription.objects.get(pk=row.pk).newest == 20


def test_housekeeping_trims_every_history_and_what_belongs_to_it(row: Subscription) -> None:
    Subscription.objects.update(keep_count=1)
    now = timezone.now()
    SubscriptionHour.objects.create(subscription=row, hour=now - timedelta(days=8), events=1)
    SubscriptionHour.objects.create(subscription=row, hour=now, events=1)
    for number in range(histories.DELIVERIES_KEPT + 5):
        WebhookDelivery.objects.create(
            subscription=row, number=number, created_at=now, state=DeliveryState.DELIVERED if number else "pending"
        )
        SubscriptionGap.objects.create(subscription=row, began_at=now, ended_at=now)
    assert histories.trim_all() == 4
    assert texts(row) == ["5"]
    assert SubscriptionHour.objects.count() == 1
    assert WebhookDelivery.objects.filter(state=DeliveryState.PENDING).count() == 1
    assert WebhookDelivery.objects.count() == histories.DELIVERIES_KEPT + 1


def test_contents_of_a_deleted_server_go_with_the_housekeeping(row: Subscription) -> None:
    Server.objects.all().delete()
    histories.trim_all()
    assert Payload.objects.filter(kind=PayloadKind.RESOURCE).count() == 5, "it may be just being written"
    Payload.objects.update(created_at=timezone.now() - timedelta(hours=2))
    histories.trim_all()
    assert not Payload.objects.filter(kind=PayloadKind.RESOURCE).exists()


def deletes(row: Subscription) -> None:
    subscribing._delete(row.pk)


def trims(row: Subscription) -> None:
    Subscription.objects.update(keep_count=1)
    trimming.trim(Subscription.objects.get())


def tidies(row: Subscription) -> None:
    Server.objects.all().delete()
    Payload.objects.update(created_at=timezone.now() - timedelta(hours=2))
    histories.trim_all()


@pytest.mark.parametrize("way", [deletes, trims, tidies])
def test_contents_are_not_read_to_be_deleted(way: Callable[[Subscription], None], row: Subscription) -> None:
    before = Payload.objects.filter(kind=PayloadKind.RESOURCE).count()
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        way(row)
    assert Payload.objects.filter(kind=PayloadKind.RESOURCE).count() < before
    blob = f'"{Payload._meta.db_table}"."blob"'
    assert [query["sql"] for query in queries if query["sql"].startswith("SELECT") and blob in query["sql"]] == []
