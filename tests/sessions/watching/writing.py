"""What a host writes about a subscription, without a host."""

import json
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from sessions.domain import resource_versions, watches
from sessions.domain.lifecycle import Hold
from sessions.domain.resource_versions import Found, content_of
from sessions.enums import VersionCause
from sessions.models import McpSession, Subscription


def found(
    text: str, cause: VersionCause = VersionCause.UPDATED, events: int = 1, began: datetime | None = None, **item: Any
) -> Found:
    """A read that found this text."""
    contents = [{"uri": "note://one", "mimeType": "text/plain", "text": text, **item}]
    content = content_of({"contents": contents}, lambda value: value, json.dumps)
    now = timezone.now()
    return Found(content, cause, events, began or now, now)


def hold_of(session: McpSession) -> Hold:
    """Of the one worker that holds it now."""
    server, worker = session.server, session.owner
    assert worker is not None
    names = (server.name, session.identity.name)
    return Hold(session.pk, session.uid, server.pk, server.uid, *names, worker.pk, worker.uid, session.epoch)


def listening(hold: Hold, row: Subscription, at: datetime | None = None) -> None:
    with transaction.atomic():
        watches.settled(hold, [row.pk], {}, at or timezone.now())


def store(hold: Hold, row: Subscription, what: Found) -> bool:
    with transaction.atomic():
        return resource_versions.store(hold, row.pk, what)
