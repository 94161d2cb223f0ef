"""Reading is an event, once per person, payload and hour."""

import json
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F

from servers.audit import payloads
from servers.audit.record import Actor
from servers.audit.writer import writer
from servers.enums import AuditAction, PayloadKind
from servers.models import AuditEvent, Payload, PayloadReading
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext

ANN, BOB = Actor(1, "ann"), Actor(2, "bob")
CONTEXT = PayloadContext(subject="echo")


def events() -> list[str]:
    found = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ).order_by("seq")
    return list(found.values_list("actor_name", flat=True))


@pytest.fixture
def payload(db: None) -> Payload:
    return payloads.store(PayloadKind.RESULT, "words")


def test_reading_is_recorded_once_an_hour_for_each_person(payload: Payload) -> None:
    for actor in (ANN, ANN, BOB, ANN):
        payload_readings.record(actor, [payload], CONTEXT)
    assert events() == ["ann", "bob"]
    assert json.loads(AuditEvent.objects.first().body)["details"] == {"kind": "result", "digest": payload.digest}


def test_in_the_next_hour_it_is_recorded_again(payload: Payload) -> None:
    payload_readings.record(ANN, [payload], CONTEXT)
    PayloadReading.objects.update(hour=F("hour") - timedelta(hours=1))
    payload_readings.record(ANN, [payload], CONTEXT)
    assert events() == ["ann", "ann"]


def test_an_erased_payload_cannot_be_read_so_nothing_is_recorded(payload: Payload) -> None:
    payloads.erase(payload)
    assert payload_readings.record(ANN, [payload, None], CONTEXT) == 0
    assert events() == []


def test_old_readings_are_forgotten_but_their_events_stay(payload: Payload) -> None:
    payload_readings.record(ANN, [payload], CONTEXT)
    assert payload_readings.forget_old() == 0
    PayloadReading.objects.update(hour=F("hour") - timedelta(hours=4))
    assert payload_readings.forget_old() == 1
    assert events() == ["ann"]


@pytest.mark.django_db(transaction=True)
def test_two_requests_at_once_record_it_once() -> None:
    payload = payloads.store(PayloadKind.RESULT, "words")
    start = threading.Barrier(4)

    def read() -> None:
        start.wait(10)
        payload_readings.record(ANN, [payload], CONTEXT)
        connection.close()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert events() == ["ann"]


@pytest.mark.django_db(transaction=True)
def test_a_live_page_records_it_by_the_writer() -> None:
    payload = payloads.store(PayloadKind.RESULT, "words")
    for _ in range(2):
        payload_readings.record_soon(ANN, [payload], CONTEXT)
    writer().submit_and_wait(lambda: None)
    assert writer().stop()
    assert events() == ["ann"]


@pytest.mark.django_db(transaction=True)
def test_on_postgres_it_is_the_same(on_postgres: None) -> None:
    payload = payloads.store(PayloadKind.RESULT, "words")
    for actor in (ANN, ANN, BOB):
        payload_readings.record(actor, [payload], CONTEXT)
    assert events() == ["ann", "bob"]


def test_the_product_itself_is_no_reader(payload: Payload) -> None:
    assert payload_readings.record(Actor(None, "mcpadmin"), [payload], CONTEXT) == 0
