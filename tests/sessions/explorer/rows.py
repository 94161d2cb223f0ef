"""Rows for tests of the explorer: calls that ended, with arguments and result, and events."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions.enums import CallState
from sessions.explorer import indexing, language, search
from sessions.models import Call, McpSession


def catch_up() -> None:
    """Index everything, in the caller's connection, also while workers write batches."""
    while (batch := indexing.next_batch()) is not None:
        with transaction.atomic():
            indexing.write(batch)


@transaction.atomic
def ended_call(
    session: McpSession,
    tool: str = "echo",
    *,
    user: Any = None,
    state: CallState = CallState.SUCCEEDED,
    arguments: Any = None,
    result: Any = None,
    ago: timedelta = timedelta(),
    seconds: float = 0.01,
    **fields: Any,
) -> Call:
    """With the event of its end, as the worker leaves it."""
    text = json.dumps(arguments or {})
    kept = payloads.store(PayloadKind.ARGUMENTS, text)
    answer = None if result is None else payloads.store(PayloadKind.RESULT, json.dumps(result))
    at = timezone.now() - ago
    call = Call.objects.create(
        session=session,
        server=session.server,
        server_name=session.server.name,
        identity=session.identity,
        identity_name=session.identity.name,
        user=user,
        user_name=user.username if user else "ada",
        way="page",
        target=tool,
        arguments=kept,
        result=answer,
        preview=payloads.preview(kept, text),
        argument_bytes=kept.size,
        total_bytes=kept.size + (answer.size if answer else 0),
        state=state,
        deadline=at,
        created_at=at,
        sent_at=at,
        finished_at=at + timedelta(seconds=seconds),
        duration_ms=round(seconds * 1000),
        **fields,
    )
    server = ServerRef.of(session.server)
    actor = Actor.of_user(user) if user else SYSTEM
    record(Event(AuditAction.CALL_FINISH, AuditOutcome.OK, actor, server, subject=tool, call_uid=call.uid))
    return call


def event(
    action: AuditAction,
    subject: str = "",
    actor: Actor = SYSTEM,
    outcome: AuditOutcome = AuditOutcome.OK,
    **fields: Any,
) -> int:
    with transaction.atomic():
        return record(Event(action, outcome, actor, subject=subject, **fields))


def query(text: str = "") -> language.Query:
    return language.parse(text, datetime.now(UTC))


def found(user: Any, text: str) -> list[str]:
    """Targets of the rows, newest first."""
    return [row.target for row in search.page(user, query(text)).rows]
