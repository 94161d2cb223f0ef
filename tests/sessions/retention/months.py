"""Months that pass in minutes: the clock is simulated, the rows, the ledger and the trimming are real."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind
from servers.models import Payload
from sessions.enums import CallState, StoredKind
from sessions.models import Call, McpSession
from sessions.retention import job, ledger

_ARGUMENTS = '{"text":"' + "x" * 180 + '"}'
_RESULT = '{"content":[{"type":"text","text":"' + "y" * 400 + '"}]}'


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


def make_calls(session: McpSession, begin: datetime, count: int, span: timedelta) -> None:
    moments = [begin + span * number / count for number in range(count)]
    with transaction.atomic():
        kinds = ((PayloadKind.ARGUMENTS, _ARGUMENTS), (PayloadKind.RESULT, _RESULT))
        rows = [payloads.made(kind, text) for _ in moments for kind, text in kinds]
        stored = Payload.objects.bulk_create(rows, batch_size=500)
        for number, row in enumerate(stored):
            row.created_at = moments[number // 2]
        Payload.objects.bulk_update(stored, ["created_at"], batch_size=300)
        calls = [
            Call(
                session=session,
                server=session.server,
                server_name=session.server.name,
                identity=session.identity,
                identity_name="shared",
                user_name="ada",
                target="echo",
                arguments=stored[2 * number],
                result=stored[2 * number + 1],
                state=CallState.SUCCEEDED,
                deadline=at,
                created_at=at,
                sent_at=at,
                finished_at=at,
            )
            for number, at in enumerate(moments)
        ]
        Call.objects.bulk_create(calls, batch_size=300)


def _silent(done: int, total: int | None = None) -> None:
    pass
