"""Writes what a host writes about a subscription, without a host."""

import json
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from sessions.connections.lifecycle import Lease
from sessions.enums import VersionCause
from sessions.models import McpSession, Subscription
from sessions.subscriptions import versions, watches
from sessions.subscriptions.versions import ReadContent, content_of


def found(
    text: str, cause: VersionCause = VersionCause.UPDATED, events: int = 1, began: datetime | None = None, **item: Any
) -> ReadContent:
    """A read that found this text."""
    contents = [{"uri": "note://one", "mimeType": "text/plain", "text": text, **item}]
    content = content_of({"contents": contents}, lambda value: value, json.dumps)
    now = timezone.now()
    return ReadContent(content, cause, events, began or now, now)


def hold_of(session: McpSession) -> Lease:
    """The lease of the worker that owns the session now."""
    server, worker = session.server, session.owner
    assert worker is not None
    names = (server.name, session.identity.name)
    return Lease(session.pk, session.uid, server.pk, server.uid, *names, worker.pk, worker.uid, session.epoch)


def listening(lease: Lease, row: Subscription, at: datetime | None = None) -> None:
    with transaction.atomic():
        watches.settled(lease, [row.pk], {}, at or timezone.now())


def store(lease: Lease, row: Subscription, what: ReadContent) -> bool:
    with transaction.atomic():
        return versions.store(lease, row.pk, what)
