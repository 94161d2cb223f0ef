"""Reading another person's payload is an event: once per person, payload and hour.

Reading one's own arguments and results is not: the call itself implies it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog
from django.utils import timezone

from servers.audit.acts import audited
from servers.audit.record import Actor, Event, ServerRef
from servers.audit.writer import WriterBusy, writer
from servers.enums import AuditAction, AuditOutcome
from servers.models import Payload, PayloadReading
from servers.sql import database

log = structlog.get_logger(__name__)
_KEPT = timedelta(hours=2)
_INSERT = f"INSERT INTO {PayloadReading._meta.db_table} (user_id, payload_id, hour) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"  # noqa: S608  # our own model


@dataclass(frozen=True)
class PayloadContext:
    """What a payload belongs to, for the event. `subject`: the tool, prompt or resource."""

    server: ServerRef | None = None
    identity_name: str = ""
    subject: str = ""
    call_uid: UUID | None = None


def record(actor: Actor, found: Iterable[Payload | None], context: PayloadContext) -> int:
    """Record the reading before the contents are shown. Returns the number of events. Skips erased payloads.

    Not on the path of a call: a person waits for it at most once an hour.
    """
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    shown = {payload.pk: payload for payload in found if payload is not None and payload.erased_at is None}
    if actor.id is None or not shown:
        return 0
    known = PayloadReading.objects.filter(user_id=actor.id, payload_id__in=shown, hour=hour)
    new = shown.keys() - set(known.values_list("payload_id", flat=True))
    if not new:
        return 0
    with audited(actor) as trail:
        trail.events += _new_events(actor, actor.id, [shown[key] for key in sorted(new)], context, hour)
    return len(trail.events)


def record_soon(actor: Actor, found: Iterable[Payload | None], context: PayloadContext) -> None:
    """Like `record`, from an event loop that shows them now. Written when the writer has nothing more urgent."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    shown = [payload for payload in found if payload is not None and payload.erased_at is None]
    if actor.id is None or not shown:
        return
    try:
        writer().submit(partial(_new_events, actor, actor.id, shown, context, hour), list, low_priority=True)
    except WriterBusy as problem:
        log.error("privacy.reading_not_recorded", user=actor.id, call=str(context.call_uid), problem=str(problem))


def _new_events(
    actor: Actor, user_id: int, found: Iterable[Payload], context: PayloadContext, hour: datetime
) -> list[Event]:
    """Runs in the caller's transaction."""
    return [
        Event(
            AuditAction.PAYLOAD_READ,
            AuditOutcome.OK,
            actor,
            context.server,
            identity_name=context.identity_name,
            subject=context.subject[:300],
            call_uid=context.call_uid,
            details={"kind": payload.kind, "digest": payload.digest},
        )
        for payload in found
        if _first(user_id, payload.pk, hour)
    ]


def _first(user_id: int, payload_id: int, hour: datetime) -> bool:
    """Whether this is the first reading in the hour: of two simultaneous requests, only one records it."""
    connection = database()
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [user_id, payload_id, connection.ops.adapt_datetimefield_value(hour)])
        return bool(cursor.rowcount == 1)


def forget_old() -> int:
    """Delete old rows: they only prevent a second event in the same hour."""
    return PayloadReading.objects.filter(hour__lt=timezone.now() - _KEPT).delete()[0]
