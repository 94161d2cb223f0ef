"""Only the current owner of a session writes versions, gaps and counts."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.secret import MASK
from sessions.connections.lifecycle import Lease
from sessions.enums import SubscriptionState, VersionCause
from sessions.housekeeping import dead_workers
from sessions.models import McpSession, Subscription, SubscriptionGap, Worker
from sessions.subscriptions import versions as resource_versions
from sessions.subscriptions import watches
from sessions.subscriptions.versions import NoContents, content_of
from tests.sessions.host.make import make_hold, make_session, make_worker
from tests.sessions.subscriptions.rows import make_subscription
from tests.sessions.subscriptions.world import subscribe
from tests.sessions.subscriptions.writing import found, hold_of, listening, store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lease(valkey: Path) -> Lease:
    return make_hold(make_session("notes"))


@pytest.fixture
def row(lease: Lease, ada: Any) -> Subscription:
    return subscribe(ada, McpSession.objects.get(pk=lease.session_id).server)


def fresh(row: Subscription) -> Subscription:
    return Subscription.objects.get(pk=row.pk)


def former_owner() -> Lease:
    """A lease that another worker has taken over."""
    old = hold_of(McpSession.objects.get())
    McpSession.objects.update(owner=make_worker(), epoch=old.epoch + 1)
    return old


# --- versions -----------------------------------------------------------------------------------------------------------
def test_equal_content_is_no_version(lease: Lease, row: Subscription) -> None:
    listening(lease, row)
    assert store(lease, row, found("one"))
    assert not store(lease, row, found("one"))
    assert store(lease, row, found("two", events=3))
    versions = list(row.versions.order_by("number"))
    assert [(version.number, version.cause, version.events) for version in versions] == [
        (1, VersionCause.SUBSCRIBED, 1),
        (2, VersionCause.UPDATED, 3),
    ]
    assert (versions[1].size, versions[1].mime_type, versions[1].binary) == (3, "text/plain", False)
    assert json.loads(payloads.read(versions[1].contents) or "")[0]["text"] == "two"
    assert fresh(row).newest == 2


def test_contents_are_compressed_before_the_transaction_that_stores_them(
    lease: Lease, row: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = found("x" * 1_000_000)
    packed = resource_versions.packed(row.pk, read.content)
    assert packed is not None
    with monkeypatch.context() as patched:
        patched.setattr(payloads, "made", None)
        assert store(lease, row, replace(read, contents=packed))
    assert json.loads(payloads.read(row.versions.get().contents) or "")[0]["text"] == "x" * 1_000_000
    assert resource_versions.packed(row.pk, read.content) is None, "the same is not stored again"


def test_an_erased_version_leaves_no_digest_by_which_its_content_can_be_guessed(
    lease: Lease, row: Subscription
) -> None:
    texts = ("one", "two", "three")
    known = {found(text).content.digest for text in texts}
    for text in texts:
        store(lease, row, found(text))
    for version in row.versions.exclude(number=2):
        payloads.erase(version.contents)
    first, second, third = row.versions.order_by("number")
    assert (first.digest, second.digest in known, third.digest in known) == ("", True, False)
    assert [version.contents_digest for version in (first, second, third)] == ["", second.digest, ""]
    assert resource_versions.packed(row.pk, found("three").content) is None
    assert not store(lease, row, found("three")), "what was erased is not stored again by the next read"
    assert store(lease, row, found("four"))


def test_content_that_comes_back_is_a_version_again(lease: Lease, row: Subscription) -> None:
    for text in ("one", "two", "one"):
        assert store(lease, row, found(text))
    assert fresh(row).newest == 3


def test_a_former_owner_writes_nothing(lease: Lease, row: Subscription) -> None:
    store(lease, row, found("one"))
    before = fresh(row)
    former = former_owner()
    assert not store(former, row, found("two"))
    with transaction.atomic():
        watches.settled(former, [row.pk], {}, timezone.now())
        watches.count_notifications([former], {row.pk: (1, timezone.now())})
        watches.read_failed(former, row.pk, "timeout", "no", timezone.now())
        watches.waiting(former, "over", timezone.now())
    assert fresh(row).version == before.version


def test_an_ended_subscription_takes_no_version(lease: Lease, row: Subscription) -> None:
    Subscription.objects.update(active=False)
    assert not store(lease, row, found("one"))


def test_a_version_that_another_stored_meanwhile_is_not_numbered_twice(lease: Lease, row: Subscription) -> None:
    store(lease, row, found("one"))
    stale = fresh(row)
    store(lease, row, found("two"))
    with transaction.atomic():
        assert not resource_versions._note(lease, stale, found("three"), differs=True)
    assert fresh(row).newest == 2


@pytest.mark.parametrize(
    "result",
    [{}, {"contents": "text"}, {"contents": ["text"]}, {"contents": {"uri": "x"}}],
    ids=["nothing", "text", "list-of-text", "object"],
)
def test_an_answer_without_contents_is_said_to_be_one(result: dict[str, Any]) -> None:
    with pytest.raises(NoContents):
        content_of(result, lambda value: value, json.dumps)


def test_binary_content_is_measured_as_what_it_is() -> None:
    content = content_of(
        {"contents": [{"uri": "x", "blob": "AAECAw==", "mimeType": "image/png"}]}, lambda value: value, json.dumps
    )
    assert (content.size, content.binary, content.mime_type) == (4, True, "image/png")


@pytest.mark.parametrize("masked", [MASK, {"contents": MASK}, {"contents": [MASK]}], ids=["result", "array", "item"])
def test_contents_that_a_rule_masks_as_a_whole_are_a_version_that_says_so(masked: Any) -> None:
    content = content_of({"contents": [{"uri": "x", "text": "secret"}]}, lambda value: masked, json.dumps)
    assert (json.loads(content.text), content.size, content.mime_type) == ([MASK], 0, "")


def test_a_read_that_failed_is_shown_until_one_goes_well(lease: Lease, row: Subscription) -> None:
    with transaction.atomic():
        watches.read_failed(lease, row.pk, "rpc_error", "No such note.", timezone.now())
    assert (fresh(row).read_fault, fresh(row).read_detail) == ("rpc_error", "No such note.")
    store(lease, row, found("one"))
    assert (fresh(row).read_fault, fresh(row).read_detail) == ("", "")


# --- state and gaps --------------------------------------------------------------------------------------------------------
def test_a_loss_opens_one_gap_which_a_read_after_the_next_agreement_closes(lease: Lease, row: Subscription) -> None:
    listening(lease, row)
    store(lease, row, found("one"))
    lost_at = timezone.now()
    with transaction.atomic():
        watches.lost(lease, "The stream broke.", lost_at)
        watches.waiting(lease, "Connection lost.", timezone.now())
    gap = SubscriptionGap.objects.get()
    assert (gap.began_at, gap.ended_at, gap.reason) == (lost_at, None, "The stream broke.")
    early = timezone.now()
    listening(lease, row)
    store(lease, row, found("one", began=early - timedelta(seconds=1)))
    assert SubscriptionGap.objects.get().ended_at is None, "a read that began before says nothing about the gap"
    store(lease, row, found("two"))
    closed = SubscriptionGap.objects.get()
    assert (closed.changed, closed.ended_at) == (True, fresh(row).state_since)


def test_what_stays_in_force_when_another_request_fails_is_neither_lost_nor_a_gap(
    lease: Lease, row: Subscription, ada: Any
) -> None:
    listening(lease, row)
    further = subscribe(ada, row.server, "note://two")
    with transaction.atomic():
        watches.requested(lease, [further.pk], timezone.now())
        watches.lost(lease, "Request failed.", timezone.now(), [row.pk])
    assert [fresh(one).state for one in (row, further)] == [SubscriptionState.LISTENING, SubscriptionState.LOST]
    assert not SubscriptionGap.objects.exists()


def test_a_gap_without_a_change_says_so(lease: Lease, row: Subscription) -> None:
    listening(lease, row)
    store(lease, row, found("one"))
    with transaction.atomic():
        watches.waiting(lease, "Connection lost.", timezone.now())
    listening(lease, row)
    store(lease, row, found("one"))
    assert SubscriptionGap.objects.get().changed is False


def test_what_a_dead_worker_listened_to_is_a_gap_since_its_last_heartbeat(lease: Lease, row: Subscription) -> None:
    listening(lease, row)
    store(lease, row, found("one"))
    beat = timezone.now() - timedelta(seconds=60)
    Worker.objects.update(heartbeat_at=beat)
    with transaction.atomic():
        dead_workers.reap(Worker.objects.all())
    assert SubscriptionGap.objects.get().began_at == beat
    assert fresh(row).state == SubscriptionState.WAITING


def test_what_no_one_wrote_down_is_found_by_the_next_life(lease: Lease, row: Subscription) -> None:
    since = timezone.now() - timedelta(hours=1)
    listening(lease, row, since)
    with transaction.atomic():
        watches.left_over(lease, timezone.now())
    gap = SubscriptionGap.objects.get()
    assert gap.began_at == since
    assert "exact start of this gap is unknown" in gap.reason


def test_a_refused_one_says_why_and_is_asked_for_again_in_the_next_session(lease: Lease, row: Subscription) -> None:
    with transaction.atomic():
        watches.requested(lease, [row.pk], timezone.now())
    assert fresh(row).state == SubscriptionState.REQUESTED
    with transaction.atomic():
        watches.settled(lease, [], {row.pk: "Not for\0 you."}, timezone.now())
        watches.requested(lease, [row.pk], timezone.now())
    assert (fresh(row).state, fresh(row).reason) == (SubscriptionState.REFUSED, "Not for\ufffd you.")
    with transaction.atomic():
        watches.waiting(lease, "The session was closed.", timezone.now())
        watches.requested(lease, [row.pk], timezone.now())
    assert fresh(row).state == SubscriptionState.REQUESTED
    assert not SubscriptionGap.objects.exists(), "nobody ever listened"


def test_the_same_state_again_changes_nothing(lease: Lease, row: Subscription) -> None:
    listening(lease, row)
    before = fresh(row)
    listening(lease, row)
    assert (fresh(row).version, fresh(row).state_since) == (before.version, before.state_since)


def test_notifications_are_counted_in_their_hour(lease: Lease, row: Subscription) -> None:
    first = timezone.now().replace(minute=59)
    for number, at in ((2, first), (3, first), (1, first + timedelta(minutes=2))):
        with transaction.atomic():
            watches.count_notifications([lease], {row.pk: (number, at)})
    assert (fresh(row).event_count, fresh(row).last_event_at) == (6, first + timedelta(minutes=2))
    assert list(row.hours.order_by("hour").values_list("events", flat=True)) == [5, 1]


def test_notifications_of_many_resources_and_sessions_are_counted_in_a_few_statements(
    lease: Lease, django_assert_max_num_queries: Any
) -> None:
    other, former = make_session("other"), make_session("former")
    leases = [lease, make_hold(other), make_hold(former)]
    McpSession.objects.filter(pk=former.pk).update(epoch=leases[2].epoch + 1)
    notes = McpSession.objects.get(pk=lease.session_id)
    rows = [make_subscription(one, f"note://{number}") for one in (notes, other) for number in range(40)]
    lost = make_subscription(former)
    at = timezone.now().replace(minute=30)
    counts = {row.pk: (number, at + timedelta(seconds=number)) for number, row in enumerate([*rows, lost], 1)}
    for _ in range(2):
        with django_assert_max_num_queries(10), transaction.atomic():
            watches.count_notifications(leases, counts)
    for number, row in enumerate(rows, 1):
        now = fresh(row)
        assert (now.event_count, now.last_event_at) == (2 * number, at + timedelta(seconds=number))
        assert [hour.events for hour in row.hours.all()] == [2 * number]
    assert (fresh(lost).event_count, lost.hours.count()) == (0, 0)
