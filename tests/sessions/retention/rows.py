"""Rows of a past that is simulated, but real otherwise: each call with its payloads, events, attempt and log line."""

import json
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import SYSTEM, Event, record
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import Payload
from sessions.enums import CallState
from sessions.models import Attempt, Call, LogLine, McpSession


def call_at(session: McpSession, at: datetime, *, size: int = 200, state: CallState = CallState.SUCCEEDED) -> Call:
    """A call that was made and ended at that moment."""
    with transaction.atomic():
        arguments = payloads.store(PayloadKind.ARGUMENTS, json.dumps({"text": "x" * size}))
        result = payloads.store(PayloadKind.RESULT, json.dumps({"content": ["y" * size]}))
        Payload.objects.filter(pk__in=[arguments.pk, result.pk]).update(created_at=at)
        call = Call.objects.create(
            session=session,
            server=session.server,
            server_name=session.server.name,
            identity=session.identity,
            identity_name="shared",
            user_name="ada",
            target="echo",
            arguments=arguments,
            result=result if state.final else None,
            state=state,
            deadline=at + timedelta(minutes=1),
            created_at=at,
            finished_at=at if state.final else None,
        )
        Attempt.objects.create(call=call, number=1, reason="first", at=at)
        digests = {"arguments": arguments.digest, "result": result.digest}
        record(Event(AuditAction.CALL_FINISH, AuditOutcome.OK, SYSTEM, call_uid=call.uid, digests=digests))
    return call


def line_at(session: McpSession, at: datetime, seq: int, text: str = "words") -> LogLine:
    return LogLine.objects.create(server=session.server, seq=seq, at=at, source="server", text=text)


def days_ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)
