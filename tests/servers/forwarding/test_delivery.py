"""A sink's cursor: one worker at a time, at least once, and what a failure leaves in the row and the audit log."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from servers.audit.proof.cuts import cut
from servers.audit.record import record_many
from servers.enums import AuditAction, SinkKind
from servers.forwarding import board, delivery, sinks
from servers.forwarding.delivery import DIVERGED, Batch, Claimed, Outcome
from servers.forwarding.sinks import SinkSettings
from servers.models import AuditEvent, ExportSchedule, Instance, Sink
from servers.secret import Secret
from tests.servers.audit.proof.log import new_key
from tests.servers.forwarding.conftest import chain_of

pytestmark = pytest.mark.django_db(transaction=True)
DELIVERED = Outcome(True)
REFUSED = Outcome(False, "The receiver answered with HTTP 503.")


def claimed(sink: Sink) -> Claimed:
    with transaction.atomic():
        found = delivery.claim(sink.pk)
    assert found is not None
    return found


def batch_of(claim: Claimed) -> Batch:
    found = delivery.next_batch(claim)
    assert isinstance(found, Batch)
    return found


def ended(claim: Claimed, batch: Batch, outcome: Outcome = DELIVERED) -> delivery.Ended:
    with transaction.atomic():
        end = delivery.ended(claim, batch, outcome)
        record_many(end.events)
    return end


def numbers(batch: Batch) -> list[int]:
    return [record.seq for record in batch.records]


def newest(action: AuditAction) -> dict[str, Any]:
    event = AuditEvent.objects.filter(action=action).latest("seq")
    return dict(json.loads(event.body)["details"])


def test_events_are_forwarded_in_order_and_each_once(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "EVENTS", 4)
    chain_of(10)
    claim: Claimed | None = claimed(sink)
    sent: list[int] = []
    while claim is not None and (batch := delivery.next_batch(claim)) is not None:
        assert isinstance(batch, Batch)
        sent += numbers(batch)
        claim = ended(claim, batch).claimed
    assert sent == list(range(1, 11))
    assert delivery.due() == []
    sink.refresh_from_db()
    assert (sink.cursor, sink.delivered, sink.skipped) == (10, 10, 0)


def test_a_batch_ends_before_it_grows_too_large(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    chain_of(3)
    size = len(AuditEvent.objects.get(seq=1).body)
    monkeypatch.setattr(delivery, "BYTES", int(size * 2.5))
    assert numbers(batch_of(claimed(sink))) == [1, 2]
    monkeypatch.setattr(delivery, "BYTES", 1)
    Sink.objects.update(lease_until=None)
    assert numbers(batch_of(claimed(sink))) == [1]


def test_one_worker_has_a_sink_at_a_time(sink: Sink) -> None:
    chain_of(1)

    def once(_: int) -> bool:
        try:
            with transaction.atomic():
                return delivery.claim(sink.pk) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(once, range(8))) == 1
    assert delivery.due() == []


def test_a_worker_that_died_leaves_its_batch_to_the_next_and_changes_nothing_any_more(sink: Sink) -> None:
    chain_of(3)
    first = claimed(sink)
    batch = batch_of(first)
    Sink.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    second = claimed(sink)
    assert numbers(batch_of(second)) == numbers(batch), "sent again, under the same numbers"
    assert ended(first, batch).claimed is None
    assert Sink.objects.get().cursor == 0
    assert ended(second, batch_of(second)).claimed is not None
    assert Sink.objects.get().cursor == 3


def test_a_failed_attempt_is_repeated_after_a_growing_random_pause(sink: Sink) -> None:
    chain_of(2)
    pauses = []
    for _ in range(9):
        Sink.objects.update(next_attempt_at=None)
        claim = claimed(sink)
        ended(claim, batch_of(claim), REFUSED)
        row = Sink.objects.get()
        assert row.next_attempt_at is not None
        pauses.append((row.next_attempt_at - timezone.now()).total_seconds())
        assert delivery.due() == []
    assert all(2**n / 2 - 0.5 <= pause <= 2**n for n, pause in enumerate(pauses[:6]))
    assert all(29 <= pause <= 60 for pause in pauses[6:])
    row = Sink.objects.get()
    assert (row.cursor, row.failures, row.last_detail) == (0, 9, REFUSED.detail)


def test_a_receiver_that_is_too_slow_for_a_batch_gets_half_of_it_and_twice_as_much_after_each_success(
    sink: Sink,
) -> None:
    chain_of(600)
    sizes = []
    for failures in range(11):
        Sink.objects.update(next_attempt_at=None, failures=failures)
        claim = claimed(sink)
        batch = batch_of(claim)
        sizes.append(len(batch.records))
        ended(claim, batch, REFUSED)
    assert sizes == [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1]
    Sink.objects.update(next_attempt_at=None, failures=4)
    going: Claimed | None = claimed(sink)
    sizes = []
    while going is not None and isinstance(found := delivery.next_batch(going), Batch):
        sizes.append(len(found.records))
        going = ended(going, found).claimed
    assert sizes == [31, 62, 125, 250, 132]
    assert Sink.objects.get().failures == 0


def test_a_receiver_chooses_a_longer_pause() -> None:
    assert delivery.delay(0, 120.0) == timedelta(seconds=120)


def test_a_clock_that_was_set_back_stops_no_sink(sink: Sink) -> None:
    chain_of(1)
    claimed(sink)
    assert delivery.due() == []
    Sink.objects.update(lease_until=timezone.now() + timedelta(days=1))
    assert delivery.due() == [sink.pk]
    claim = claimed(sink)
    ended(claim, batch_of(claim), Outcome(False, "Come back later.", 9_000.0))
    row = Sink.objects.get()
    assert row.next_attempt_at is not None
    assert 295 < (row.next_attempt_at - timezone.now()).total_seconds() <= 300
    assert (delivery.due(), claimed(sink).forward) == ([], False)
    Sink.objects.update(lease_until=None, next_attempt_at=timezone.now() + timedelta(days=1))
    assert (delivery.due(), claimed(sink).forward) == ([sink.pk], True)


def test_standing_still_is_recorded_once_and_so_is_its_end(sink: Sink, settings: Any) -> None:
    chain_of(2)
    for _ in range(2):
        Sink.objects.update(next_attempt_at=None, failing_since=timezone.now() - timedelta(seconds=301))
        claim = claimed(sink)
        ended(claim, batch_of(claim), REFUSED)
    assert AuditEvent.objects.filter(action=AuditAction.SINK_STALL).count() == 1
    details = newest(AuditAction.SINK_STALL)
    assert (details["detail"], details["last"]) == (REFUSED.detail, 0)
    assert "token-1" not in AuditEvent.objects.get(action=AuditAction.SINK_STALL).body, "a path may be a secret"
    Sink.objects.update(next_attempt_at=None)
    claim = claimed(sink)
    ended(claim, batch_of(claim))
    assert AuditEvent.objects.filter(action=AuditAction.SINK_RECOVER).count() == 1
    row = Sink.objects.get()
    assert (row.failures, row.failing_since, row.stalled_at, row.last_detail) == (0, None, None, "")


def test_events_that_the_retention_removed_before_they_were_forwarded_are_reported(
    sink: Sink, settings: Any, tmp_path: Path
) -> None:
    new_key(settings, tmp_path)
    chain_of(6)
    cut(5)
    claim = claimed(sink)
    batch = batch_of(claim)
    assert (numbers(batch)[:2], batch.skipped) == ([5, 6], 4)
    ended(claim, batch)
    assert Sink.objects.get().skipped == 4
    assert newest(AuditAction.SINK_SKIP) == {"address": "https://siem.example.com:443", "first": 1, "last": 4}


def test_a_new_sink_misses_nothing_that_was_removed_before(
    admin: Any, actor: Any, settings: Any, tmp_path: Path
) -> None:
    new_key(settings, tmp_path)
    chain_of(6)
    cut(5)
    given = SinkSettings("SIEM", SinkKind.HTTP, "https://siem.example.com/in")
    sink, _ = sinks.create(admin, actor, given, from_beginning=True)
    waiting = AuditEvent.objects.count()
    assert (sink.cursor, board.row_of(sink).waiting) == (4, waiting)
    claim = claimed(sink)
    batch = batch_of(claim)
    ended(claim, batch)
    assert (numbers(batch)[0], len(batch.records)) == (5, waiting)
    assert Sink.objects.get().skipped == 0
    assert not AuditEvent.objects.filter(action=AuditAction.SINK_SKIP).exists()


def test_what_was_delivered_before_it_was_removed_is_no_loss_when_all_is_forwarded_again(
    sink: Sink, admin: Any, actor: Any, settings: Any, tmp_path: Path
) -> None:
    new_key(settings, tmp_path)
    chain_of(6)
    ended(claim := claimed(sink), batch_of(claim))
    cut(5)
    Sink.objects.update(lease_until=None)
    assert sinks.rewind(admin, actor, Sink.objects.get(), 0) == 5
    batch = batch_of(claimed(Sink.objects.get()))
    assert (numbers(batch)[0], batch.skipped) == (5, 0)


@pytest.mark.usefixtures("tamperable")
def test_a_log_that_was_put_back_or_rebuilt_is_not_forwarded_as_if_nothing_had_happened(sink: Sink) -> None:
    chain_of(3)
    claim = claimed(sink)
    ended(claim, batch_of(claim))
    Sink.objects.update(lease_until=None)
    AuditEvent.objects.filter(seq=3).update(hash="0" * 64)
    chain_of(1)
    assert delivery.next_batch(claimed(sink)) == DIVERGED.format(seq=3)
    Sink.objects.update(lease_until=None, cursor=99)
    assert delivery.due() == [sink.pk], "the log ends before the cursor"
    claim = claimed(sink)
    found = delivery.next_batch(claim)
    assert isinstance(found, str)
    with transaction.atomic():
        delivery.diverged(claim, found)
    assert "restored or replaced" in Sink.objects.get().last_detail
    assert board.needed_from() == 1, "the retention keeps what this sink never got"
    ago = timezone.now() - timedelta(hours=1)
    Sink.objects.update(failing_since=ago, created_at=ago, delivered_at=None)
    assert board.row_of(Sink.objects.get()).stalled


def test_a_paused_sink_is_left_alone_but_can_be_tested(sink: Sink) -> None:
    chain_of(1)
    Sink.objects.update(paused_at=timezone.now())
    assert delivery.due() == []
    Sink.objects.update(test_requested_at=timezone.now())
    assert delivery.due() == [sink.pk]
    claim = claimed(sink)
    assert (claim.test, claim.forward) == (True, False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Trash"}, {"name"}),
        ({"lines": True}, {"lines"}),
        ({"address": "https://siem.example.com/trash"}, {"path"}),
        ({"ca": "-----BEGIN CERTIFICATE-----"}, {"ca"}),
        ({"header": "X-Key", "secrets": sinks.Secrets(value=Secret("canary-1"))}, {"header", "header_value"}),
    ],
)
def test_the_event_of_a_changed_sink_says_what_was_changed_without_what_is_secret(
    sink: Sink, admin: Any, actor: Any, change: dict[str, Any], said: set[str]
) -> None:
    given = SinkSettings("SIEM", SinkKind.HTTP, "https://siem.example.com/in/token-1")
    sinks.change(admin, actor, sink, replace(given, **change))
    details = newest(AuditAction.SINK_CHANGE)
    before, after = details.pop("before"), details.pop("after")
    assert {name for name in before if before[name] != after[name]} | details.keys() == said
    body = AuditEvent.objects.filter(action=AuditAction.SINK_CHANGE).latest("seq").body
    assert not any(word in body for word in ("token-1", "trash", "canary"))


def test_what_another_person_has_done_to_a_sink_already_is_no_second_event(sink: Sink, admin: Any, actor: Any) -> None:
    for _ in range(2):
        sinks.pause(admin, actor, sink)
    paused_at = Sink.objects.get().paused_at
    sinks.pause(admin, actor, sink)
    assert Sink.objects.get().paused_at == paused_at
    for _ in range(2):
        sinks.delete(admin, actor, Sink(pk=sink.pk, name=sink.name, kind=sink.kind, address=sink.address))
    sinks.resume(admin, actor, sink)
    done = AuditEvent.objects.filter(action__startswith="instance:sink:").order_by("seq")
    assert [event.action for event in done] == [AuditAction.SINK_PAUSE, AuditAction.SINK_DELETE]


def test_the_result_of_a_test_is_of_the_sink_and_the_request_for_which_it_was_sent(
    sink: Sink, admin: Any, actor: Any
) -> None:
    def again() -> None:
        Sink.objects.update(test_requested_at=timezone.now())

    def move() -> None:
        sinks.change(admin, actor, Sink.objects.get(), SinkSettings("SIEM", SinkKind.HTTP, "https://o.example.com/"))

    for meanwhile in (again, move):
        Sink.objects.update(test_requested_at=timezone.now(), test_ended_at=None, lease_until=None)
        claim = claimed(sink)
        meanwhile()
        delivery.tested(claim, REFUSED)
        row = Sink.objects.get()
        assert (row.test_ended_at, row.test_detail) == (None, "")
        Sink.objects.update(lease_until=None)
        delivery.tested(claimed(sink), DELIVERED)
        row = Sink.objects.get()
        assert (row.test_ended_at is not None, row.test_ok) == (True, True)


def test_a_held_copy_forwards_nothing(sink: Sink) -> None:
    chain_of(1)
    assert delivery.due() == [sink.pk]
    Instance.objects.update_or_create(pk=1, defaults={"held_at": timezone.now(), "place": {}})
    assert delivery.due() == []


def test_half_a_batch_moves_the_cursor_by_half(sink: Sink) -> None:
    chain_of(5)
    claim = claimed(sink)
    half = batch_of(claim).half()
    end = ended(claim, half)
    assert numbers(half) == [1, 2]
    assert end.claimed is not None
    assert numbers(batch_of(end.claimed)) == [3, 4, 5]


def test_a_page_says_how_many_events_wait_and_since_when(sink: Sink) -> None:
    chain_of(5)
    for cursor, waiting in ((0, 5), (3, 2), (5, 0), (9, 0)):
        Sink.objects.update(cursor=cursor)
        row = board.row_of(sink)
        assert row.waiting == waiting
        oldest = AuditEvent.objects.filter(seq__gt=cursor).order_by("seq").first()
        assert row.waiting_since == (oldest.at if oldest else None)
        assert row.look.word == ("Catching up" if waiting else "Up to date")


def test_what_the_receiver_rejected_counts_and_is_not_sent_again(sink: Sink) -> None:
    chain_of(3)
    claim = claimed(sink)
    ended(claim, batch_of(claim), Outcome(True, "rejected 2 records", rejected=2))
    row = Sink.objects.get()
    assert (row.cursor, row.delivered, row.rejected, row.last_detail) == (3, 3, 2, "rejected 2 records")


def test_forwarding_from_another_event_takes_the_sink_from_the_worker_that_has_it(
    sink: Sink, admin: Any, actor: Any
) -> None:
    chain_of(4)
    claim = claimed(sink)
    batch = batch_of(claim)
    sinks.rewind(admin, actor, sink, 2)
    assert ended(claim, batch).claimed is None, "what was under way does not move the cursor"
    row = Sink.objects.get()
    assert (row.cursor, row.cursor_hash) == (2, AuditEvent.objects.get(seq=2).hash)
    assert numbers(batch_of(claimed(sink)))[:2] == [3, 4]


def test_a_changed_address_or_secret_takes_the_sink_from_the_worker_that_has_it(
    sink: Sink, admin: Any, actor: Any
) -> None:
    chain_of(3)
    moved = SinkSettings("SIEM", SinkKind.HTTP, "https://other.example.com/in")

    def move() -> None:
        sinks.change(admin, actor, Sink.objects.get(), moved)

    for change in (move, lambda: sinks.renew_signing(admin, actor, sink)):
        claim = claimed(sink)
        batch = batch_of(claim)
        change()
        assert ended(claim, batch).claimed is None, "it would go on with what it claimed"
        assert Sink.objects.get().cursor == 0, "the receiver that counts does not have them"
        Sink.objects.update(lease_until=None)
    assert claimed(sink).address == moved.address


@pytest.mark.parametrize("outcome", [DELIVERED, REFUSED])
def test_a_sink_that_is_taken_away_while_an_attempt_ends_stays_as_it_was_set(
    sink: Sink, admin: Any, actor: Any, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL lets others commit between two statements of a transaction."""
    chain_of(4)
    claim = claimed(sink)
    batch = batch_of(claim)
    read = delivery._ours

    def read_and_overtaken(claim: Claimed) -> Any:
        monkeypatch.setattr(delivery, "_ours", read)
        found = read(claim).first()
        sinks.rewind(admin, actor, sink, 2)
        return SimpleNamespace(first=lambda: found)

    monkeypatch.setattr(delivery, "_ours", read_and_overtaken)
    end = delivery.ended(claim, batch, outcome)
    assert (end.claimed, end.events) == (None, [])
    row = Sink.objects.get()
    assert (row.cursor, row.delivered, row.failures, row.next_attempt_at) == (2, 0, 0, None)


def test_a_claim_names_no_secret(sink: Sink) -> None:
    sinks._seal(sink, "value", Secret("canary-of-the-sink"))
    sink.save()
    claim = claimed(sink)
    assert claim.secrets.value.reveal() == "canary-of-the-sink"
    assert "canary" not in f"{claim!r} {claim.secrets!r} {vars(claim)!r}"


def test_the_retention_learns_what_a_sink_or_a_schedule_still_needs(sink: Sink) -> None:
    chain_of(50)
    assert board.needed_from() == 1
    Sink.objects.create(name="Other", kind="http", address="https://x.example.com/", created_name="ada", cursor=40)
    assert board.needed_from() == 1
    Sink.objects.filter(pk=sink.pk).update(paused_at=timezone.now())
    assert board.needed_from() == 41, "a paused one holds nothing up"
    schedule = ExportSchedule.objects.create(name="Archive", interval="daily", next_at=timezone.now(), cursor=20)
    assert board.needed_from() == 21, "a schedule of exports needs it too"
    Sink.objects.all().delete()
    assert board.needed_from() == 21
    ExportSchedule.objects.filter(pk=schedule.pk).update(paused_at=timezone.now())
    assert board.needed_from() is None


def test_the_cursor_works_on_postgresql(on_postgres: None) -> None:
    sink = Sink.objects.create(name="SIEM", kind="http", address="https://siem.example.com/", created_name="ada")
    with transaction.atomic():
        chain_of(5)
    assert delivery.due() == [sink.pk]
    claim = claimed(sink)
    assert delivery.due() == []
    end = ended(claim, batch_of(claim))
    assert end.claimed is not None
    assert delivery.next_batch(end.claimed) is None
    with transaction.atomic():
        delivery.release(end.claimed)
    assert delivery.due() == []
    assert Sink.objects.get().delivered == 5
