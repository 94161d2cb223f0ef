"""A person's order is stored in the row and in the audit log, and sets the desired state of the session."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone

from servers import access, limits
from servers.connect_limit import TooOften
from servers.enums import AuditAction, ConnectionPolicy, PayloadKind
from servers.models import AuditEvent, Instance, Payload, Server
from sessions.connections import lifecycle
from sessions.enums import Desired, SubscriptionState
from sessions.housekeeping import changed_registrations
from sessions.models import McpSession, ResourceVersion, Subscription, SubscriptionGap
from sessions.subscriptions import subscribing, webhooks
from sessions.subscriptions.settings import Settings, opened
from tests.sessions.host.make import make_hold, make_session
from tests.sessions.subscriptions.world import actor
from tests.sessions.subscriptions.writing import found, listening, store

pytestmark = pytest.mark.django_db(transaction=True)
HOOK = "https://hooks.example.com/services/secret-path"


@pytest.fixture
def session(valkey: Path) -> McpSession:
    return make_session("notes", desired=Desired.CLOSED)


def subscribe(ada: Any, server: Server, uri: str = "note://one") -> Subscription:
    return subscribing.subscribe(actor(ada), ada, server, uri, title="One")


def audited(action: AuditAction) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(action=action).order_by("seq"))


def test_subscribing_twice_is_one_order_and_wants_the_session(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    assert subscribe(ada, session.server) == row
    session.refresh_from_db()
    assert (row.state, row.active, row.title, row.created_by_name) == (SubscriptionState.WAITING, True, "One", "ada")
    assert (session.desired, session.watch_requested) == (Desired.OPEN, 2)
    events = audited(AuditAction.SUBSCRIPTION_CREATE)
    assert [(event.subject, event.actor_name) for event in events] == [("note://one", "ada")]


def test_two_people_who_subscribe_at_once_have_one_subscription(ada: Any, session: McpSession) -> None:
    def once(_: int) -> int:
        try:
            return subscribe(ada, session.server).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(once, range(8)))) == 1
    assert len(audited(AuditAction.SUBSCRIPTION_CREATE)) == 1


def test_a_disabled_server_is_not_opened_and_the_subscription_waits(ada: Any, session: McpSession) -> None:
    Server.objects.filter(pk=session.server_id).update(enabled=False)
    row = subscribe(ada, session.server)
    session.refresh_from_db()
    assert (row.state, session.desired) == (SubscriptionState.WAITING, Desired.CLOSED)


def test_enabling_a_server_opens_it_for_its_subscriptions(ada: Any, session: McpSession) -> None:
    Server.objects.filter(pk=session.server_id).update(connection_policy=ConnectionPolicy.ON_DEMAND)
    subscribe(ada, session.server)
    McpSession.objects.update(desired=Desired.CLOSED)
    changed_registrations.registration_changed(session.server.uid, AuditAction.SERVER_ENABLE)
    assert McpSession.objects.get().desired == Desired.OPEN


def test_a_session_with_subscriptions_does_not_close_when_idle(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    lease = make_hold(session)
    assert not lifecycle.close_when_idle(lease)
    subscribing.unsubscribe(actor(ada), ada, row)
    assert lifecycle.close_when_idle(lease)


@pytest.mark.parametrize(
    "uri",
    ["", "note://a\nb", "note://a\x00", "note://\ud800", "note://" + "x" * 3_000],
    ids=["empty", "line-break", "nul", "surrogate", "long"],
)
def test_what_is_no_uri_is_refused(ada: Any, session: McpSession, uri: str) -> None:
    with pytest.raises(ValidationError):
        subscribe(ada, session.server, uri)
    assert not Subscription.objects.exists()


def test_a_session_has_a_bounded_number_of_subscriptions(
    ada: Any, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(limits.LIMITS, "subscriptions", replace(limits.LIMITS["subscriptions"], fixed=1))
    subscribe(ada, session.server)
    with pytest.raises(ValidationError, match="Limit: 1 subscriptions per server and identity"):
        subscribe(ada, session.server, "note://two")


def test_without_permission_nothing_changes_and_the_refusal_is_recorded(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    bob = get_user_model().objects.create_user("bob")
    for verb in (subscribing.unsubscribe, subscribing.delete, subscribing.send_test):
        with pytest.raises(access.Denied):
            verb(actor(bob), bob, row)
    with pytest.raises(access.Denied):
        subscribing.change(actor(bob), bob, row, Settings())
    row.refresh_from_db()
    assert row.active
    assert {event.actor_name for event in audited(AuditAction.PERMISSION_DENY)} == {"bob"}


# --- ending and resuming ------------------------------------------------------------------------------------------------
def test_unsubscribing_keeps_the_history_and_resuming_marks_the_time_between(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    lease = make_hold(session)
    listening(lease, row)
    store(lease, row, found("one"))
    assert subscribing.unsubscribe(actor(ada), ada, row)
    assert not subscribing.unsubscribe(actor(ada), ada, row)
    row.refresh_from_db()
    assert (row.state, row.active, row.newest) == (SubscriptionState.ENDED, False, 1)
    again = subscribe(ada, session.server)
    assert (again.pk, again.state, again.active) == (row.pk, SubscriptionState.WAITING, True)
    gap = SubscriptionGap.objects.get()
    assert (gap.began_at, gap.ended_at) == (row.state_since, None)
    assert len(audited(AuditAction.SUBSCRIPTION_END)) == 1
    assert len(audited(AuditAction.SUBSCRIPTION_CREATE)) == 2


def test_deleting_takes_versions_and_their_contents_along(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    lease = make_hold(session)
    listening(lease, row)
    for text in ("one", "two"):
        store(lease, row, found(text))
    assert subscribing.delete(actor(ada), ada, row)
    assert not subscribing.delete(actor(ada), ada, row)
    assert not Subscription.objects.exists()
    assert not ResourceVersion.objects.exists()
    assert not Payload.objects.filter(kind=PayloadKind.RESOURCE).exists()
    assert len(audited(AuditAction.SUBSCRIPTION_DELETE)) == 1


def test_changing_a_setting_does_not_open_what_a_person_closed(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    McpSession.objects.update(desired=Desired.CLOSED)
    subscribing.change(actor(ada), ada, row, Settings(notify=False))
    session.refresh_from_db()
    assert (session.desired, session.watch_requested) == (Desired.CLOSED, 2)


# --- settings -----------------------------------------------------------------------------------------------------------
def test_only_what_differs_is_changed_and_recorded(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    assert subscribing.change(actor(ada), ada, row, Settings()).fields == ()
    assert audited(AuditAction.SUBSCRIPTION_CHANGE) == []
    changed = subscribing.change(actor(ada), ada, row, Settings(min_interval_seconds=60, keep_count=3))
    assert set(changed.fields) == {"min_interval_seconds", "keep_count"}
    row.refresh_from_db()
    assert (row.min_interval_seconds, row.keep_count, row.webhook_sealed) == (60, 3, None)
    [event] = audited(AuditAction.SUBSCRIPTION_CHANGE)
    assert json.loads(event.body)["details"]["changes"] == {
        "min_interval_seconds": {"before": 5, "after": 60},
        "keep_count": {"before": 200, "after": 3},
    }


def test_of_two_savers_neither_takes_back_what_the_other_saved(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    read_before = Subscription.objects.get(pk=row.pk)
    assert subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK)).secret is not None
    changed = subscribing.change(actor(ada), ada, read_before, Settings(keep_count=3))
    assert changed.fields == ("keep_count",)
    row.refresh_from_db()
    assert (row.webhook_url, bool(row.webhook_sealed), row.keep_count) == (HOOK, True, 3)


def test_the_secret_of_a_webhook_is_shown_once_and_is_nowhere_in_clear(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    changed = subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK))
    assert changed.secret is not None
    secret = changed.secret.reveal()
    row.refresh_from_db()
    assert secret.startswith("whsec_")
    assert opened(row).reveal() == secret
    assert secret.encode() not in bytes(row.webhook_sealed or b"")
    body = audited(AuditAction.SUBSCRIPTION_CHANGE)[0].body
    assert "hooks.example.com" in body
    assert not any(word in body for word in (secret, "secret-path"))
    assert subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK + "2")).secret is None
    [details] = [json.loads(event.body)["details"] for event in audited(AuditAction.SUBSCRIPTION_CHANGE)[-1:]]
    assert details["webhook_path"] == "replaced"
    renewed = subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK + "2"), renew_secret=True).secret
    assert renewed is not None
    assert renewed.reveal() != secret
    subscribing.change(actor(ada), ada, row, Settings())
    row.refresh_from_db()
    assert (row.webhook_url, row.webhook_sealed, row.webhook_key_id) == ("", None, "")


@pytest.mark.parametrize(
    "change",
    [
        {"min_interval_seconds": 0},
        {"keep_count": 0},
        {"keep_days": 4_000},
        {"keep_bytes": 1},
        {"webhook_url": "ftp://example.com/"},
        {"webhook_url": "https://ada:x@example.com/"},
        {"webhook_url": "https://example.com/" + "x" * 2_000},
    ],
    ids=["interval", "count", "days", "bytes", "scheme", "userinfo", "long"],
)
def test_a_setting_out_of_its_bounds_is_refused_at_its_field(
    ada: Any, session: McpSession, change: dict[str, Any]
) -> None:
    row = subscribe(ada, session.server)
    with pytest.raises(ValidationError) as refused:
        subscribing.change(actor(ada), ada, row, replace(Settings(), **change))
    assert set(refused.value.message_dict) == set(change)


def test_a_test_of_a_webhook_needs_one(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    with pytest.raises(ValidationError, match="Enter the URL"):
        subscribing.send_test(actor(ada), ada, row)
    subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK))
    delivery = subscribing.send_test(actor(ada), ada, row)
    assert delivery.number == webhooks.TEST
    assert delivery.next_attempt_at is not None
    assert delivery.next_attempt_at <= timezone.now() + timedelta(seconds=1)


def test_a_held_copy_tests_no_webhook(ada: Any, session: McpSession) -> None:
    row = subscribe(ada, session.server)
    subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK))
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    with pytest.raises(ValidationError, match="on hold"):
        subscribing.send_test(actor(ada), ada, row)


def test_tests_of_webhooks_are_bounded_a_minute_so_that_no_one_scans_with_them(
    ada: Any, session: McpSession, settings: Any
) -> None:
    settings.TRIES_PER_MINUTE = 3
    row = subscribe(ada, session.server)
    subscribing.change(actor(ada), ada, row, Settings(webhook_url=HOOK))  # a custom address, so it counts
    for _ in range(2):
        subscribing.send_test(actor(ada), ada, row)
    with pytest.raises(TooOften):
        subscribing.send_test(actor(ada), ada, row)
    assert row.deliveries.count() == 2
