"""A small log with everything that a verification covers: administration, calls with payloads, checkpoints."""

import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.audit.proof import checkpoints, file, key
from servers.audit.proof.export import ExportLines
from servers.audit.proof.notes import stamp
from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record_many
from servers.enums import AuditAction, AuditOutcome, PayloadKind, StatementKind
from servers.models import AuditEvent, Checkpoint, Payload, Server
from sessions.enums import CallState
from sessions.models import Call

_TIMES = {
    AuditAction.CALL_REQUEST: "created_at",
    AuditAction.CALL_SEND: "sent_at",
    AuditAction.CALL_FINISH: "finished_at",
}


def new_key(settings: Any, directory: Path) -> None:
    """A key and a checkpoint file of the test's own."""
    settings.CHECKPOINT_KEY_FILE = directory / "key.json"
    settings.CHECKPOINT_FILE = directory / "outside" / "checkpoints.jsonl"
    private = b64encode(os.urandom(32)).decode()
    settings.CHECKPOINT_KEY_FILE.write_text(f'{{"name": "test.example/audit-1", "private": "{private}"}}')


def fill(calls: int = 6, checkpoint_every: int = 2) -> None:
    """Three events a call and one of administration, a checkpoint after every second call, the newest also in the file."""
    user, server = caller_and_server()
    for number in range(calls):
        one_call(user, server, number)
        if number % checkpoint_every == checkpoint_every - 1:
            sign()


def caller_and_server() -> tuple[Any, Server]:
    user, _ = get_user_model().objects.get_or_create(username="ada")
    server, _ = Server.objects.get_or_create(
        slug="orders", defaults={"name": "orders", "transport": "streamable_http", "url": "http://127.0.0.1:9/mcp"}
    )
    return user, server


@transaction.atomic
def one_call(user: Any, server: Server, number: int) -> Call:
    call = begin(user, server, number)
    end(call)
    record_many(
        [
            Event(
                AuditAction.SERVER_CHANGE, AuditOutcome.OK, Actor.of_user(user), ServerRef.of(server), subject="orders"
            ),
        ]
    )
    return call


@transaction.atomic
def begin(user: Any, server: Server, number: int, *, sent: bool = True) -> Call:
    now = timezone.now()
    arguments = payloads.store(PayloadKind.ARGUMENTS, f'{{"order":{number},"note":"é{number}"}}')
    call = Call.objects.create(
        server=server, server_name=server.name, identity_name="Shared", user=user, user_name=user.username,
        target=f"tool_{number}", arguments=arguments, state=CallState.REQUESTED, deadline=now, created_at=now,
    )  # fmt: skip
    record_many([_event(call, AuditAction.CALL_REQUEST, AuditOutcome.PENDING)])
    if sent:
        send(call)
    return call


@transaction.atomic
def send(call: Call) -> None:
    call.state, call.epoch, call.sent_at = CallState.SENT, 7, timezone.now()
    call.save()
    record_many([_event(call, AuditAction.CALL_SEND, AuditOutcome.PENDING, attempt=1, epoch=7)])


@transaction.atomic
def end(call: Call) -> None:
    """With a result, or cancelled if it was not sent."""
    call.finished_at = timezone.now()
    if call.sent_at is None:
        call.state = CallState.CANCELLED
    else:
        number = int(call.target.removeprefix("tool_"))
        call.state = CallState.SUCCEEDED if number % 3 else CallState.TOOL_ERROR
        call.result = payloads.store(PayloadKind.RESULT, f'{{"content":"result {number}"}}')
    call.save()
    record_many([_event(call, AuditAction.CALL_FINISH, AuditOutcome.OK, state=str(call.state))])


@transaction.atomic
def end_late(call: Call) -> None:
    """A result that arrives after the end."""
    call.late_result = payloads.store(PayloadKind.RESULT, '{"content":"late"}')
    call.save()
    digests = {"arguments": call.arguments.digest, "result": call.late_result.digest}
    late = _event(call, AuditAction.CALL_FINISH, AuditOutcome.OK, late=True, answer="succeeded")
    record_many([replace(late, digests=digests)])


@transaction.atomic
def erase(payload: Payload) -> None:
    """At the request of a person."""
    payloads.erase(payload)
    record_many([Event(AuditAction.PAYLOAD_ERASE, AuditOutcome.OK, SYSTEM, digests={"erased": payload.digest})])


def _event(call: Call, action: AuditAction, outcome: AuditOutcome, **details: Any) -> Event:
    digests = {"arguments": call.arguments.digest} | ({"result": call.result.digest} if call.result else {})
    step = _TIMES[action]
    times = {step: stamp(getattr(call, step))} if names_times(call) else {}
    more = {"method": "tools/call", **details}
    return Event(
        action,
        outcome,
        Actor.of_user(call.user, "192.0.2.7"),
        ServerRef.of(call.server) if call.server else None,
        "Shared",
        call.target,
        call.uid,
        more,
        digests,
        times,
    )


def names_times(call: Call) -> bool:
    """Whether its events name the times of its row: those of older versions do not."""
    return int(call.target.removeprefix("tool_")) % 2 == 1


def sign() -> Checkpoint:
    """A checkpoint of the log's end, in the database and in the file."""
    with transaction.atomic():
        made = checkpoints.sign(StatementKind.REGULAR, *checkpoints.head())
    file.append(made.kind, made.note)
    return made


def export_to(path: Path, meanwhile: Callable[[], None] = lambda: None, **options: Any) -> Path:
    """`meanwhile` happens after the export has begun, before it reads the events."""
    lines = ExportLines(**{"filtered": False, "payloads": True} | options)
    events = AuditEvent.objects.order_by("seq").filter(seq__lte=lines.last_seq)
    if after := options.get("after"):
        events = events.filter(seq__gt=after)
    with path.open("w", encoding="utf-8") as out:
        out.writelines(lines.head())
        meanwhile()
        out.writelines(lines.lines(list(events)))
        out.writelines(lines.end())
    return path


def public_key() -> str:
    return key.load().public.text


def later(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)
