"""A watched resource is polled if its subscription is refused, bursts are merged, and each change is sent to the
webhook."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from servers.configuration import ValueInput
from servers.enums import ValueKind
from servers.models import Server
from servers.registration.values import write_values
from servers.secret import Secret
from sessions.enums import DeliveryState, SubscriptionState, VersionCause
from sessions.models import LogLine, Subscription, WebhookDelivery
from sessions.subscriptions import subscribing
from sessions.subscriptions.settings import Settings
from tests.sessions.host.conftest import ShareWorker, StartWorker
from tests.sessions.host.harness import eventually
from tests.sessions.subscriptions.hook import Hook, running_hook
from tests.sessions.subscriptions.world import (
    PATIENCE,
    Notes,
    NoteServer,
    actor,
    await_state,
    await_text,
    subscribe,
    texts,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


def fresh(row: Subscription) -> Subscription:
    return Subscription.objects.get(pk=row.pk)


def test_a_server_that_cannot_tell_is_read_alternately_and_says_so(
    share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker(MCPADMIN_RESOURCE_POLL_SECONDS="0.5")
    notes.write("first")
    row = subscribe(ada, note_server.register("legacy", "stdio", DEAF="1"))
    refused = await_state(row, SubscriptionState.REFUSED)
    assert "read every 0.5 s instead" in refused.reason
    await_text(row, "first")
    notes.write("second")
    assert await_text(row, "second").cause == VersionCause.POLLED
    assert fresh(row).state == SubscriptionState.REFUSED
    assert not row.gaps.exists()


def test_one_that_the_server_refuses_leaves_the_others_alone(
    share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    notes.write("first")
    server = note_server.register("legacy", "stdio")
    good, bad = subscribe(ada, server), subscribe(ada, server, "note://forbidden")
    await_state(good, SubscriptionState.LISTENING)
    assert "nobody's business" in await_state(bad, SubscriptionState.REFUSED).reason


@ERAS
def test_a_burst_is_counted_whole_and_read_a_few_times(
    era: str, share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    notes.write("start")
    row = subscribe(ada, note_server.register(era, "stdio"), interval=1)
    await_text(row, "start")
    await_state(row, SubscriptionState.LISTENING)
    before = notes.reads
    notes.write("burst 40")
    version = await_text(row, "burst 40")
    eventually(lambda: fresh(row).event_count == 40, PATIENCE, "notifications were not counted whole")
    assert (version.number, row.versions.count()) == (2, 2)
    assert 1 <= version.events <= 40
    assert 1 <= notes.reads - before < 8


def two_watched(era: str, ada: Any, notes: Notes, note_server: NoteServer) -> tuple[Server, Subscription, Subscription]:
    for name in ("one", "two"):
        notes.write("first", name)
    server = note_server.register(era, "stdio")
    one, two = subscribe(ada, server), subscribe(ada, server, "note://two")
    for row in (one, two):
        await_text(row, "first")
        await_state(row, SubscriptionState.LISTENING)
    return server, one, two


@ERAS
def test_what_is_unsubscribed_is_not_told_any_more_and_can_be_resumed(
    era: str, share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    server, one, two = two_watched(era, ada, notes, note_server)
    assert subscribing.unsubscribe(actor(ada), ada, one)
    for name in ("one", "two"):
        notes.write("second", name)
    await_text(two, "second")
    assert texts(one) == ["first"]
    again = subscribe(ada, server)
    assert again.pk == one.pk
    await_text(one, "second")
    gap = eventually(lambda: one.gaps.exclude(ended_at=None).first())
    assert (gap.changed, one.gaps.count()) == (True, 1)


@ERAS
def test_what_ended_and_was_resumed_before_its_worker_looked_is_read_again(
    era: str, share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    server, one, two = two_watched(era, ada, notes, note_server)
    ended = {"active": False, "state": SubscriptionState.ENDED, "state_since": timezone.now()}
    Subscription.objects.filter(pk=one.pk).update(**ended)  # no worker is notified of it
    for name in ("one", "two"):
        notes.write("second", name)
    await_text(two, "second")
    assert subscribe(ada, server).pk == one.pk
    await_text(one, "second")
    eventually(lambda: one.gaps.filter(ended_at__isnull=False, changed=True).exists())
    await_state(one, SubscriptionState.LISTENING)


def test_a_further_resource_is_watched_while_the_session_runs(
    share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    notes.write("first")
    server = note_server.register("modern", "http")
    row = subscribe(ada, server)
    await_text(row, "first")
    other = subscribe(ada, server, "note://other")
    await_state(other, SubscriptionState.LISTENING)
    notes.write("told", "other")
    await_text(other, "told")
    assert fresh(row).state == SubscriptionState.LISTENING
    assert not row.gaps.exists(), "asking for more is no gap for what was asked before"


def test_a_secret_of_the_server_is_in_no_version(
    share_worker: ShareWorker, ada: Any, notes: Notes, note_server: NoteServer
) -> None:
    share_worker()
    notes.write("the key is hunter2-hunter2")
    server = note_server.register("legacy", "stdio")
    write_values(server, [*kept(server), ValueInput(ValueKind.ENVIRONMENT, "API_KEY", True, Secret("hunter2-hunter2"))])
    row = subscribe(ada, server)
    await_text(row, "the key is [redacted]")


def kept(server: Server) -> list[ValueInput]:
    return [ValueInput(ValueKind(value.kind), value.name, False, value.plain) for value in server.values.all()]


def test_each_change_is_reported_to_the_webhook_once_and_again_until_it_takes_it(
    start_worker: StartWorker, ada: Any, notes: Notes, note_server: NoteServer, hook: Hook
) -> None:
    notes.write("first")
    server = note_server.register("modern", "stdio")
    row = subscribe(ada, server)
    secret = subscribing.change(actor(ada), ada, row, Settings(min_interval_seconds=1, webhook_url=hook.url)).secret
    assert secret is not None
    workers = [start_worker(node, MCPADMIN_TIME_SCALE="0.1") for node in ("w1", "w2")]
    await_text(row, "first")
    hook.statuses = [500]
    notes.write("second")
    done = eventually(lambda: WebhookDelivery.objects.filter(state=DeliveryState.DELIVERED).first(), PATIENCE)
    assert (done.attempts, done.last_status, len(hook.received)) == (2, 200, 2)
    first, second = hook.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(done.uid)
    assert all(received.signed_with(secret.reveal()) for received in hook.received)
    assert second.message["version"]["number"] == 2
    subscribing.send_test(actor(ada), ada, row)
    eventually(lambda: len(hook.received) == 3, PATIENCE)
    assert hook.received[2].message["type"] == "webhook.test"
    assert not any(secret.reveal() in worker.output for worker in workers)
    assert not LogLine.objects.filter(text__contains="whsec_").exists()
