"""What a receiver's answer means for a sink, whatever it says."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from servers.audit import writer
from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome, SinkKind
from servers.forwarding import delivery
from servers.forwarding.delivery import Batch, Claimed, Outcome
from servers.models import AuditEvent, Sink
from servers.secret import Secret
from sessions.host.db import Database
from sessions.host.forwarding import Forwarding, partial_success
from sessions.host.sending.failure import NotDelivered

TOKEN = Secret("canary-of-the-sink-51f0")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}', (2, "too old")),
        (b'{"partialSuccess":{"rejectedLogRecords":1e999}}', (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":-1}}', (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":99999999999999999999}}', (3, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"a\\u0000b\\ud800"}}', (1, "a\ufffdb\ufffd")),
        (b'{"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"canary-of-the-sink-51f0?"}}', (1, "[redacted]?")),
        (b'{"partialSuccess":[]}', (0, "")),
        (b"<html>", (0, "")),
        (b"", (0, "")),
    ],
)
def test_what_an_otlp_receiver_rejected_is_within_what_was_sent_and_can_be_stored(
    answer: bytes, found: tuple[int, str]
) -> None:
    assert partial_success(answer, 3, TOKEN) == found


@pytest.fixture
def sink() -> Iterator[Sink]:
    with transaction.atomic():
        record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM, subject=f"tool {n}") for n in range(20)])
    yield Sink.objects.create(
        name="SIEM", kind=SinkKind.HTTP, address="https://siem.example.com/in", created_name="ada"
    )
    writer.reset()


async def forwarded(sink: Sink) -> None:
    db = Database()
    try:
        await Forwarding(db)._serve(sink.pk)
    finally:
        db.stop()


def taking_one_at_a_time(sizes: list[int], meanwhile: Callable[[], object]) -> Any:
    """A receiver that finds every larger batch too large, and its slowness."""

    async def sent(claimed: Claimed, batch: Batch) -> Outcome:
        sizes.append(len(batch.records))
        await asyncio.to_thread(meanwhile)
        if len(batch.records) > 1:
            raise NotDelivered("The receiver answered with HTTP 413.", 413)
        return Outcome(True)

    return sent


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_is_halved_for_longer_than_the_lease_stays_with_its_worker(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> None:
        """Each attempt takes as long as the lease lasts."""
        assert Sink.objects.filter(lease_until__gte=timezone.now()).exists(), "another worker could take it"
        Sink.objects.update(lease_until=timezone.now())
        connection.close()

    sizes: list[int] = []
    monkeypatch.setattr("sessions.host.forwarding._sent", taking_one_at_a_time(sizes, slow))
    monkeypatch.setattr(delivery, "EVENTS", 8)
    asyncio.run(forwarded(sink))
    assert sizes[:4] == [8, 4, 2, 1]
    assert Sink.objects.get().cursor == AuditEvent.objects.latest("seq").seq


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_sink_was_taken_while_it_halved_a_batch_sends_no_more(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken() -> None:
        Sink.objects.update(fence=F("fence") + 1)
        connection.close()

    sizes: list[int] = []
    monkeypatch.setattr("sessions.host.forwarding._sent", taking_one_at_a_time(sizes, taken))
    asyncio.run(forwarded(sink))
    assert (sizes, Sink.objects.get().cursor) == ([20], 0)


@pytest.mark.django_db(transaction=True)
def test_a_sink_stays_with_the_worker_whose_test_takes_as_long_as_the_lease_lasts(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leased(batch: Batch | None) -> bool:
        found = Sink.objects.filter(lease_until__gt=timezone.now()).exists()
        if batch is None:
            Sink.objects.update(lease_until=timezone.now())
        connection.close()
        return found

    async def sent(claimed: Claimed, batch: Batch | None) -> Outcome:
        assert await asyncio.to_thread(leased, batch), "another worker could take it"
        return Outcome(True)

    Sink.objects.update(test_requested_at=timezone.now())
    monkeypatch.setattr("sessions.host.forwarding._sent", sent)
    asyncio.run(forwarded(sink))
    row = Sink.objects.get()
    assert (row.test_ok, row.cursor) == (True, AuditEvent.objects.latest("seq").seq)
