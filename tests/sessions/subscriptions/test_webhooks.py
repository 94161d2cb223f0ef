"""Webhook messages: their content, that each attempt is made once, and how deliveries end."""

import asyncio
import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from servers.audit.record import record_many
from servers.enums import AuditAction
from servers.models import AuditEvent
from servers.secret import Secret
from sessions.enums import DeliveryState
from sessions.host.db import Database
from sessions.host.subscriptions.webhook_sender import Webhooks, attempt
from sessions.models import Subscription, WebhookDelivery
from sessions.subscriptions import subscribing, webhooks
from sessions.subscriptions.settings import Settings
from sessions.subscriptions.webhooks import Attempted, Claimed
from tests.peers.peers import closed_port
from tests.servers.conftest import person
from tests.sessions.host.harness import eventually
from tests.sessions.host.make import make_hold, make_session
from tests.sessions.subscriptions.hook import Hook, running_hook
from tests.sessions.subscriptions.world import actor, subscribe
from tests.sessions.subscriptions.writing import found, store

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


@pytest.fixture
def row(valkey: Path, ada: Any) -> Subscription:
    """A subscription with two versions; the second has a pending delivery."""
    session = make_session("notes")
    row = subscribe(ada, session.server)
    lease = make_hold(session)
    subscribing.change(actor(ada), ada, row, Settings(webhook_url="https://hooks.example.com/x"))
    for text in ("one", "two"):
        store(lease, row, found(text))
    return Subscription.objects.get(pk=row.pk)


def claim(pk: int) -> Claimed | None:
    with transaction.atomic():
        return webhooks.claim(pk)


def ended(claimed: Claimed, outcome: Attempted) -> WebhookDelivery:
    with transaction.atomic():
        record_many(webhooks.attempted(claimed, outcome))
    return WebhookDelivery.objects.get(pk=claimed.pk)


def claimed_now() -> Claimed:
    WebhookDelivery.objects.update(next_attempt_at=timezone.now())
    claimed = claim(WebhookDelivery.objects.get().pk)
    assert claimed is not None
    return claimed


# --- rows ---------------------------------------------------------------------------------------------------------------
def test_a_change_is_reported_and_the_first_read_is_not(row: Subscription) -> None:
    delivery = WebhookDelivery.objects.get()
    assert (delivery.number, delivery.state) == (2, DeliveryState.PENDING)
    assert webhooks.due() == [(delivery.pk, row.pk)]


def test_a_message_says_what_changed_and_not_what_it_holds(row: Subscription) -> None:
    claimed = claimed_now()
    first, second = row.versions.order_by("number")
    message = json.loads(claimed.body)
    assert message["version"].pop("at") == second.at.isoformat().replace("+00:00", "Z")
    assert message == {
        "id": str(claimed.uid),
        "type": "resource.updated",
        "subscription": str(row.uid),
        "server": "notes",
        "uri": "note://one",
        "version": {"number": 2, "digest": second.digest, "size": 3, "mimeType": "text/plain"},
        "previousDigest": first.digest,
    }
    assert b"two" not in claimed.body


def test_digests_are_for_the_webhook_of_a_person_who_may_read_contents(row: Subscription, ada: Any) -> None:
    olga = person("olga", "view_server", "manage_subscription")
    subscribing.change(actor(olga), olga, row, Settings(webhook_url="https://olga.example.com/x"))
    message = json.loads(claimed_now().body)
    assert (message["version"]["digest"], message["previousDigest"]) == (None, None)
    assert message["version"]["size"] == 3
    row.refresh_from_db()
    subscribing.change(actor(ada), ada, row, Settings.of(row), renew_secret=True)
    assert json.loads(claimed_now().body)["previousDigest"] == row.versions.get(number=1).digest


def test_an_attempt_is_claimed_once(row: Subscription) -> None:
    pk = WebhookDelivery.objects.get().pk

    def once(_: int) -> bool:
        try:
            return claim(pk) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(once, range(8))) == 1
    assert WebhookDelivery.objects.get().attempts == 1


def test_an_attempt_whose_worker_died_is_made_again_under_the_same_id(row: Subscription) -> None:
    first = claimed_now()
    assert webhooks.due() == []
    second = claimed_now()
    assert (second.uid, second.attempt) == (first.uid, first.attempt + 1)
    assert ended(first, Attempted(500)).last_status is None, "the first attempt is not ours any more"
    assert ended(second, Attempted(204)).state == DeliveryState.DELIVERED


def test_a_clock_that_was_set_back_holds_no_message_up(row: Subscription) -> None:
    claimed = claimed_now()
    assert (webhooks.due(), claim(claimed.pk)) == ([], None), "an attempt is under way"
    WebhookDelivery.objects.update(next_attempt_at=timezone.now() + timedelta(hours=1))
    assert [due.pk for due in webhooks.due()] == [claimed.pk]
    again = claim(claimed.pk)
    assert again is not None
    WebhookDelivery.objects.update(attempts=6, next_attempt_at=timezone.now() + timedelta(hours=5))
    assert webhooks.due() == [], "its pause is six hours long"
    WebhookDelivery.objects.update(next_attempt_at=timezone.now() + timedelta(hours=7))
    assert [due.pk for due in webhooks.due()] == [claimed.pk]


def test_a_failing_webhook_is_tried_seven_times_with_growing_pauses_then_given_up(row: Subscription) -> None:
    pauses = []
    for _ in webhooks.DELAYS:
        delivery = ended(claimed_now(), Attempted(500, "HTTP 500."))
        assert delivery.next_attempt_at is not None
        pauses.append(round((delivery.next_attempt_at - timezone.now()) / timedelta(seconds=1)))
    assert pauses == [5, 30, 120, 600, 3_600, 21_600]
    last = ended(claimed_now(), Attempted(None, "No answer."))
    assert (last.state, last.attempts, last.next_attempt_at) == (DeliveryState.GIVEN_UP, 7, None)
    event = AuditEvent.objects.get(action=AuditAction.WEBHOOK_FAIL)
    assert "hooks.example.com" in event.body
    assert "/x" not in event.body


def test_a_webhook_that_is_gone_is_given_up_at_once(row: Subscription) -> None:
    assert ended(claimed_now(), Attempted(410)).state == DeliveryState.GIVEN_UP


async def test_without_the_key_ring_an_attempt_fails_and_the_message_is_sent_once_it_is_back(
    row: Subscription, hook: Hook, tmp_path: Path
) -> None:
    await asyncio.to_thread(Subscription.objects.update, webhook_url=hook.url)
    with override_settings(KEYRING_FILE=tmp_path / "gone.json"):
        claimed = await asyncio.to_thread(claimed_now)
        failed = await asyncio.to_thread(ended, claimed, await attempt(claimed))
    assert (failed.state, failed.attempts) == (DeliveryState.PENDING, 1)
    assert failed.next_attempt_at is not None
    assert "gone.json cannot be read" in failed.last_detail
    assert hook.received == []
    claimed = await asyncio.to_thread(claimed_now)
    sent = await asyncio.to_thread(ended, claimed, await attempt(claimed))
    assert (sent.state, len(hook.received)) == (DeliveryState.DELIVERED, 1)


async def test_a_message_that_never_finds_the_key_ring_is_given_up_on_record(row: Subscription, tmp_path: Path) -> None:
    await asyncio.to_thread(WebhookDelivery.objects.update, attempts=len(webhooks.DELAYS))
    with override_settings(KEYRING_FILE=tmp_path / "gone.json"):
        claimed = await asyncio.to_thread(claimed_now)
        last = await asyncio.to_thread(ended, claimed, await attempt(claimed))
    assert last.state == DeliveryState.GIVEN_UP
    event = await asyncio.to_thread(AuditEvent.objects.get, action=AuditAction.WEBHOOK_FAIL)
    assert "gone.json cannot be read" in event.body


def test_a_removed_webhook_ends_what_waits_so_that_the_next_one_does_not_get_it(row: Subscription, ada: Any) -> None:
    subscribing.change(actor(ada), ada, row, Settings())
    subscribing.change(actor(ada), ada, row, Settings(webhook_url="https://other.example.com/in"))
    assert webhooks.due() == []
    assert claim(WebhookDelivery.objects.get().pk) is None
    assert WebhookDelivery.objects.get().last_detail == "The webhook was removed."


def test_a_webhook_that_never_answers_gathers_a_bounded_number_of_messages(
    row: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PENDING", 2)
    for version in row.versions.all():
        webhooks.announce(row, version)
    states = WebhookDelivery.objects.order_by("pk").values_list("state", flat=True)
    assert list(states) == [DeliveryState.GIVEN_UP, DeliveryState.PENDING, DeliveryState.PENDING]


def test_a_subscription_with_many_messages_keeps_no_other_from_its_turn(row: Subscription) -> None:
    other = subscribe(get_user_model().objects.get(), row.server, "note://two")
    for _ in range(webhooks.DUE + 5):
        message_of(row)
    last = message_of(other)
    assert [pk for pk, subscription in webhooks.due() if subscription == other.pk] == [last.pk]
    assert len(webhooks.due()) == webhooks.TURNS + 1


def message_of(subscription: Subscription) -> WebhookDelivery:
    now = timezone.now()
    fields = {"number": webhooks.TEST, "created_at": now, "next_attempt_at": now}
    return WebhookDelivery.objects.create(subscription=subscription, **fields)


async def test_a_receiver_that_does_not_answer_delays_no_other(row: Subscription, hook: Hook) -> None:
    def arrange() -> int:
        WebhookDelivery.objects.all().delete()
        other = subscribe(get_user_model().objects.get(), row.server, "note://two")
        slow, quick = Settings(webhook_url=f"{hook.url}/slow"), Settings(webhook_url=hook.url)
        for which, settings in ((row, slow), (other, quick)):
            subscribing.change(actor(get_user_model().objects.get()), get_user_model().objects.get(), which, settings)
        for _ in range(20):
            message_of(row)
        return message_of(other).pk

    quick = await asyncio.to_thread(arrange)
    hook.slow_paths = {"/hook/slow"}
    hook.may_answer.clear()
    db = Database()
    sender = Webhooks(db)
    try:
        sender.look()
        await asyncio.to_thread(
            eventually, lambda: WebhookDelivery.objects.filter(pk=quick, state=DeliveryState.DELIVERED).exists(), 8
        )
        sent = WebhookDelivery.objects.filter(subscription=row, attempts__gt=0)
        assert await asyncio.to_thread(sent.count) == webhooks.TURNS
        hook.may_answer.set()
        waiting = WebhookDelivery.objects.filter(state=DeliveryState.PENDING)
        await asyncio.to_thread(eventually, lambda: not waiting.exists(), 20)
    finally:
        await sender.close()
        db.stop()


# --- one attempt, to a real receiver ------------------------------------------------------------------------------------
def to(url: str, body: bytes = b'{"type":"webhook.test"}') -> Claimed:
    return Claimed(1, uuid.uuid4(), 1, url, body, Secret(SECRET))


async def test_a_message_is_signed_as_standard_webhooks_say(hook: Hook) -> None:
    claimed = to(hook.url)
    outcome = await attempt(claimed)
    assert outcome.delivered
    (received,) = hook.received
    headers = received.headers
    signed = f"{claimed.uid}.{headers['webhook-timestamp']}.".encode() + claimed.body
    digest = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert (headers["webhook-id"], headers["content-type"]) == (str(claimed.uid), "application/json")
    assert SECRET not in str(headers)


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_is_not_followed(hook: Hook, status: int) -> None:
    hook.statuses = [status]
    outcome = await attempt(to(hook.url))
    assert (outcome.status, outcome.delivered, len(hook.received)) == (status, False, 1)
    assert "not followed" in outcome.detail


async def test_a_long_answer_is_not_read_to_its_end(hook: Hook) -> None:
    hook.body = b"x" * 50_000_000
    assert (await attempt(to(hook.url))).delivered


async def test_a_webhook_that_does_not_answer_in_time_has_failed(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.host.subscriptions.webhook_sender.SECONDS", 0.2)
    hook.may_answer.clear()
    outcome = await attempt(to(hook.url))
    assert (outcome.status, "did not answer" in outcome.detail) == (None, True)


async def test_a_status_counts_although_the_body_behind_it_is_slow(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.host.subscriptions.webhook_sender.SECONDS", 2.0)
    hook.body = b"queued"
    hook.may_end.clear()
    outcome = await attempt(to(hook.url))
    assert (outcome.status, outcome.delivered) == (200, True)


async def test_a_receiver_that_does_not_listen_is_named_as_such(hook: Hook) -> None:
    outcome = await attempt(to(f"http://127.0.0.1:{closed_port()}/"))
    assert outcome.status is None
    assert "Could not connect" in outcome.detail


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"],
)
async def test_the_guard_refuses_without_saying_what_it_found(hook: Hook, settings: Any, host: str) -> None:
    settings.ALLOW_LOOPBACK = False
    url = hook.url.replace("127.0.0.1", host)
    outcome = await attempt(to(url))
    assert outcome.status is None
    assert any(words in outcome.detail for words in ("guard blocks", "not a valid http")), outcome.detail
    assert hook.received == []
