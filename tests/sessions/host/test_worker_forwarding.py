"""A real worker forwards the log to real receivers: HTTP, OTLP and syslog; through outages of the receiver and its own
death, nothing is lost and a repeat shows by its number."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from servers.audit.record import SYSTEM, Actor, Event, record_many
from servers.enums import AuditAction, AuditOutcome, SinkKind
from servers.forwarding import sinks
from servers.forwarding.sinks import Secrets, SinkSettings
from servers.json.canonical import canonical
from servers.models import AuditEvent, Sink
from servers.secret import Secret
from tests.servers.conftest import admin, person  # noqa: F401  fixture
from tests.sessions.host.conftest import ShareWorker, StartWorker
from tests.sessions.host.harness import eventually, scaled
from tests.sessions.host.sending.receivers import syslog_receiver
from tests.sessions.subscriptions.hook import Hook, running_hook

TOKEN = "canary-of-the-sink-51f0"
LOOPBACK = {"MCPADMIN_ALLOW_LOOPBACK": "true"}


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


def create(admin: Any, kind: SinkKind, address: str, **fields: Any) -> Sink:  # noqa: F811  fixture
    given = SinkSettings(str(kind.label), kind, address, header="X-Token", secrets=Secrets(Secret(TOKEN)), **fields)
    if kind == SinkKind.SYSLOG:
        given = SinkSettings(str(kind.label), kind, address, **fields)
    return sinks.create(admin, Actor.of_user(admin), given, from_beginning=True)[0]


def three_events(number: int) -> None:
    """As a call makes them."""
    actions = (AuditAction.CALL_REQUEST, AuditAction.CALL_SEND, AuditAction.CALL_FINISH)
    with transaction.atomic():
        record_many([Event(action, AuditOutcome.OK, SYSTEM, subject=f"call {number}") for action in actions])


def in_log() -> dict[int, str]:
    return dict(AuditEvent.objects.values_list("seq", "hash"))


def received(hook: Hook) -> list[tuple[int, str]]:
    """Number and hash of each record, in the order of arrival; each hash is that of the event beside it."""
    items = [item for request in list(hook.received) for item in request.message]  # type: ignore[attr-defined]  # a list here
    found = [(item["seq"], item["hash"]) for item in items if item["type"] == "audit.event"]
    assert all(hashlib.sha256(canonical(item["event"]).encode()).hexdigest() == item["hash"] for item in items[:50])
    return found


def up_to_date(sink: Sink) -> bool:
    return Sink.objects.get(pk=sink.pk).cursor == AuditEvent.objects.latest("seq").seq


@pytest.mark.usefixtures("valkey")
def test_a_worker_forwards_over_http_signed_and_with_the_sinks_header(
    share_worker: ShareWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    worker = share_worker(**LOOPBACK)
    sink = create(admin, SinkKind.HTTP, hook.url)
    secret = sinks.opened(sink).signing.reveal()
    three_events(1)
    eventually(lambda: up_to_date(sink))
    assert dict(received(hook)) == in_log()
    assert all(request.signed_with(secret) for request in hook.received)
    assert {request.headers["x-token"] for request in hook.received} == {TOKEN}
    assert TOKEN not in worker.output


@pytest.mark.long
@pytest.mark.usefixtures("valkey")
def test_a_batch_that_is_sent_again_has_the_same_id_and_body(
    share_worker: ShareWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    share_worker(**LOOPBACK, **scaled(0.01))
    hook.statuses = [503, 503]
    sink = create(admin, SinkKind.HTTP, hook.url)
    eventually(lambda: up_to_date(sink))
    first, second, third = hook.received[:3]
    assert first.headers["webhook-id"].startswith(f"{sink.uid}.1-{len(received(hook)) // 3}.")
    assert {(one.headers["webhook-id"], one.body) for one in (first, second)} == {
        (third.headers["webhook-id"], third.body)
    }


@pytest.mark.usefixtures("valkey")
def test_a_worker_forwards_otlp_logs_and_reports_what_the_receiver_rejected(
    share_worker: ShareWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    share_worker(**LOOPBACK)
    hook.body = b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}'
    sink = create(admin, SinkKind.OTLP, hook.url)
    eventually(lambda: up_to_date(sink))
    (request, *_) = hook.received
    logs = request.message["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert logs[0]["body"]["stringValue"] == AuditEvent.objects.get(seq=1).body
    row = Sink.objects.get()
    assert (row.rejected, row.last_detail) == (2 * len(hook.received), "The receiver rejected 2 records: too old")


@pytest.mark.usefixtures("valkey")
def test_a_worker_forwards_syslog_over_tls(share_worker: ShareWorker, tmp_path: Path, admin: Any) -> None:  # noqa: F811  a fixture by its name
    share_worker(**LOOPBACK)
    with syslog_receiver(tmp_path) as receiver:
        sink = create(admin, SinkKind.SYSLOG, receiver.address, ca=receiver.ca)
        three_events(1)
        eventually(lambda: up_to_date(sink))
        assert len(receiver.messages) == AuditEvent.objects.count()
        assert all(f'hash="{digest}"'.encode() in b"".join(receiver.messages) for digest in in_log().values())


@pytest.mark.usefixtures("valkey")
def test_a_test_says_what_the_receiver_answers_and_forwards_nothing(
    share_worker: ShareWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    share_worker(**LOOPBACK)
    sink = create(admin, SinkKind.HTTP, hook.url)
    eventually(lambda: up_to_date(sink))
    sinks.pause(admin, Actor.of_user(admin), sink)
    hook.received.clear()
    hook.statuses, hook.body = [403], b"unknown token"
    sinks.request_test(admin, Actor.of_user(admin), sink)
    row = eventually(lambda: Sink.objects.exclude(test_ended_at=None).first())
    assert (row.test_ok, row.test_detail) == (False, "The receiver answered with HTTP 403: unknown token")
    assert [item["type"] for request in hook.received for item in json.loads(request.body)] == ["audit.test"]


@pytest.mark.usefixtures("valkey")
def test_a_receiver_that_takes_only_small_requests_gets_small_ones(
    share_worker: ShareWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    share_worker(**LOOPBACK)
    for number in range(3):
        three_events(number)
    hook.statuses = [413, 413, 200, 413]
    sink = create(admin, SinkKind.HTTP, hook.url)
    eventually(lambda: up_to_date(sink))
    assert Sink.objects.get().failures == 0
    accepted = hook.received[2]
    assert len(json.loads(accepted.body)) == 2, "10 events, halved twice"
    seqs = [seq for seq, _ in received(hook)]
    assert set(seqs) == set(in_log())


# --- the receiver is down -------------------------------------------------------------------------------------------------
class Receiver:
    """Refuses everything while it is down, and keeps what it accepted."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.down = threading.Event()
        hook.statuses = self  # type: ignore[assignment]  # asked like a list
        self.accepted: list[tuple[int, str]] = []
        self.refused = 0

    def __bool__(self) -> bool:
        return True

    def pop(self, _: int) -> int:
        """The status for the newest request."""
        items = json.loads(self.hook.received.pop().body)
        if self.down.is_set():
            self.refused += 1
            return 503
        self.accepted += [(item["seq"], item["hash"]) for item in items]
        return 200


def outage(start_worker: StartWorker, hook: Hook, admin: Any, *, scale: float, calls: int, kills: bool) -> None:  # noqa: F811  a fixture by its name
    """The receiver is down for ten minutes, `scale` times as long, under `calls` calls. `kills`: the worker dies twice."""
    receiver = Receiver(hook)
    environment = LOOPBACK | scaled(scale)
    worker = start_worker("w1", **environment)
    sink = create(admin, SinkKind.HTTP, hook.url)
    three_events(-1)
    eventually(lambda: up_to_date(sink))
    receiver.down.set()
    over = time.monotonic() + 600 * scale
    for number in range(calls):
        three_events(number)
        if kills and number == calls // 2:
            eventually(lambda: receiver.refused)
            worker.kill()  # while the receiver is down
            Sink.objects.update(lease_until=timezone.now())  # which it may have held for a minute more
            worker = start_worker("w2", **environment)
    before = receiver.refused
    eventually(lambda: receiver.refused > before + 2, words="it is not tried again and again")
    while time.monotonic() < over:
        time.sleep(0.02)  # the outage itself lasts so long
    stalls = AuditEvent.objects.filter(action=AuditAction.SINK_STALL)
    eventually(stalls.count)
    before = len(receiver.accepted)
    receiver.down.clear()
    eventually(lambda: len(receiver.accepted) > before, words="it does not go on")
    if kills:
        worker.kill()  # perhaps between a delivery and its row
        Sink.objects.update(lease_until=timezone.now())
        start_worker("w3", **environment)
    eventually(lambda: AuditEvent.objects.filter(action=AuditAction.SINK_RECOVER).exists(), 60)
    eventually(lambda: up_to_date(sink), 60)
    assert stalls.count() == 1
    seqs = [seq for seq, _ in receiver.accepted]
    assert dict(receiver.accepted) == in_log(), "every event arrived, under its number and hash"
    assert len(in_log()) >= 3 * calls
    firsts = list(dict.fromkeys(seqs))
    assert firsts == sorted(firsts), "a repeat shows by its number, and nothing overtakes"


@pytest.mark.usefixtures("valkey")
def test_a_receiver_that_was_down_misses_nothing(
    start_worker: StartWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    outage(start_worker, hook, admin, scale=0.002, calls=200, kills=False)


@pytest.mark.long
@pytest.mark.usefixtures("valkey")
def test_ten_minutes_of_outage_under_twenty_calls_a_second(
    start_worker: StartWorker,
    hook: Hook,
    admin: Any,  # noqa: F811  a fixture by its name
) -> None:
    outage(start_worker, hook, admin, scale=0.05, calls=12_000, kills=True)
