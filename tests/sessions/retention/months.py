"""Months that pass in minutes: the clock is simulated, the rows, the ledger and the trimming are real."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from servers.enums import AuditAction, PayloadKind
from servers.models import AuditEvent, AuditHead, Payload
from servers.sql import prepared
from sessions.enums import CallState, StoredKind
from sessions.explorer import fulltext
from sessions.explorer.fulltext import Document
from sessions.models import Attempt, Call, McpSession
from sessions.retention import job, ledger
from tests.benchmarks.audit_rows import Table

_ARGUMENTS = '{"text":"' + "x" * 180 + '"}'
_RESULT = '{"content":[{"type":"text","text":"' + "y" * 400 + '"}]}'
_STEPS = (
    (AuditAction.CALL_REQUEST.value, "pending"),
    (AuditAction.CALL_SEND.value, "pending"),
    (AuditAction.CALL_FINISH.value, "ok"),
)
#: calls that one transaction writes
_CHUNK = 2_000


@dataclass(frozen=True)
class Hour:
    """`fresh`: bytes of calls and contents that came in it. The rest: what is stored after the run at its end."""

    now: datetime
    fresh: int
    calls: int
    contents: int
    oldest_call: datetime | None


def months(session: McpSession, hours: int, per_minute: float) -> Iterator[Hour]:
    """One run of the retention at the end of each hour, in which `per_minute` calls a minute were made."""
    start = timezone.now() - timedelta(hours=hours + 1)
    for hour in range(hours):
        begin = start + timedelta(hours=hour)
        make_calls(session, begin, round(60 * per_minute), timedelta(hours=1))
        now = begin + timedelta(hours=1) + ledger.SETTLED
        before = ledger.total(StoredKind.CALLS).bytes + ledger.total(StoredKind.PAYLOADS).bytes
        ledger.measure_all(now)
        fresh = ledger.total(StoredKind.CALLS).bytes + ledger.total(StoredKind.PAYLOADS).bytes - before
        job.run(_silent, now)  # type: ignore[arg-type]  # called as a progress is
        calls, contents = ledger.total(StoredKind.CALLS), ledger.total(StoredKind.PAYLOADS)
        yield Hour(now, fresh, calls.bytes, contents.bytes, calls.oldest)


def make_calls(session: McpSession, begin: datetime, count: int, span: timedelta, *, whole: bool = False) -> None:
    """`whole`: also with the attempt, the three events and the words in the index that a call leaves. The hashes of these
    events are not real."""
    for start in range(0, count, _CHUNK):
        moments = [begin + span * number / count for number in range(start, min(count, start + _CHUNK))]
        with transaction.atomic():
            _write(session, moments, whole=whole)


def _write(session: McpSession, moments: list[datetime], *, whole: bool) -> None:
    count, times = len(moments), [_stored(Call, "created_at", at) for at in moments]
    uids = [_stored(Call, "uid", uuid4()) for _ in moments]
    call_key, payload_key = keys(Call, count), keys(Payload, 2 * count)
    payload = Payload(salt=os.urandom(16), digest="d" * 64, size=len(_RESULT))
    Table(payload, ("id", "uid", "kind", "text", "created_at")).write(
        (payload_key + 2 * number + half, _stored(Payload, "uid", uuid4()), kind.value, text, at)
        for number, at in enumerate(times)
        for half, kind, text in ((0, PayloadKind.ARGUMENTS, _ARGUMENTS), (1, PayloadKind.RESULT, _RESULT))
    )
    one = Call(
        session=session,
        server=session.server,
        server_name=session.server.name,
        identity=session.identity,
        identity_name="shared",
        user_name="ada",
        target="echo",
        state=CallState.SUCCEEDED,
        deadline=moments[0],
        duration_ms=12,
    )
    Table(one, ("id", "uid", "arguments_id", "result_id", "created_at", "sent_at", "finished_at")).write(
        (call_key + number, uids[number], payload_key + 2 * number, payload_key + 2 * number + 1, at, at, at)
        for number, at in enumerate(times)
    )
    if not whole:
        return
    attempt = keys(Attempt, count)
    Table(Attempt(number=1, reason="first"), ("id", "call_id", "at")).write(
        (attempt + number, call_key + number, at) for number, at in enumerate(times)
    )
    head, _ = AuditHead.objects.get_or_create(chain=1)
    event = AuditEvent(body="b" * 600, actor_name="ada", server_name=session.server.name, subject="echo", way="page")
    Table(event, ("seq", "hash", "at", "action", "outcome", "call_uid")).write(
        (seq := head.seq + 3 * number + step + 1, f"{seq:064x}", at, action, outcome, uids[number])
        for number, at in enumerate(times)
        for step, (action, outcome) in enumerate(_STEPS)
    )
    last = head.seq + 3 * count
    AuditHead.objects.filter(chain=1).update(seq=last, hash=f"{last:064x}")
    words = f"{_ARGUMENTS}\n{_RESULT}"
    fulltext.write("calls", [Document(call_key + number, "user1", "echo\nada", words) for number in range(count)])


def _stored(model: type[Model], name: str, value: Any) -> Any:
    return prepared(model._meta.get_field(name), value, connection)


def keys(model: type[Model], count: int) -> int:
    """The first of so many keys, which nothing else will take."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
            found = cursor.fetchone()
            return 1 + (found[0] if found else 0)
        sequence = f"pg_get_serial_sequence('{table}', 'id')"
        cursor.execute(f"SELECT setval({sequence}, nextval({sequence}) + %s)", [count])  # names of our own models
        return int(cursor.fetchone()[0]) - count


def _silent(done: int, total: int | None = None) -> None:
    pass
