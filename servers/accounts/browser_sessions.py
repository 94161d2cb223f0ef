"""Where people are signed in: one row of allauth.usersessions per browser session, and how to end them."""

import re
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from allauth.usersessions.models import UserSession
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.models import Session
from django.db import DatabaseError, transaction
from django.db.models import BigIntegerField, Exists, OuterRef, QuerySet
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from servers.audit.batches import Batches
from servers.audit.record import client_ip
from servers.signals import sign_ins_ended

log = structlog.get_logger("mcpadmin.sign_ins")

SEEN_SECONDS = 60
#: an expired session may still be in use by a request that began earlier
_SETTLED = timedelta(hours=1)
_REMEMBERED = 10_000
_seen: dict[str, float] = {}  # session key -> when this process last wrote that it was seen
_guard = threading.Lock()
_NOWHERE = "0.0.0.0"  # noqa: S104  # what the column needs for a peer without an address, such as a Unix socket
_BROWSERS = (
    ("Edge", r"Edg(?:e|A|iOS)?/"),
    ("Opera", r"OPR/"),
    ("Firefox", r"(?:Firefox|FxiOS)/"),
    ("Chrome", r"(?:Chrome|Chromium|CriOS|HeadlessChrome)/"),
    ("Safari", r"Safari/"),
)
_SYSTEMS = (
    ("iPhone", r"iPhone"),
    ("iPad", r"iPad"),
    ("Android", r"Android"),
    ("Windows", r"Windows"),
    ("macOS", r"Mac OS X|Macintosh"),
    ("ChromeOS", r"CrOS"),
    ("Linux", r"Linux"),
)


@dataclass(frozen=True)
class SignedInBrowser:
    id: int
    browser: str
    user_agent: str
    ip: str
    started_at: datetime
    seen_at: datetime
    current: bool


def note(request: HttpRequest, user: Any) -> None:
    """Update "last seen" of this browser's session, at most once a minute. A session from an older release is added.

    A page does not fail because this cannot be written: a database that is locked or unavailable is only logged.
    """
    key = request.session.session_key
    if key is None or not _due(key):
        return
    try:
        _write(request, user, key)
    except DatabaseError as problem:
        log.warning("a sign-in could not be recorded", problem=type(problem).__name__)


def _write(request: HttpRequest, user: Any, key: str) -> None:
    agent = request.META.get("HTTP_USER_AGENT", "")[: UserSession._meta.get_field("user_agent").max_length]
    facts = {"ip": client_ip(request) or _NOWHERE, "user_agent": agent, "last_seen_at": timezone.now()}
    if not UserSession.objects.filter(session_key=key, user_id=user.pk).update(**facts):
        UserSession.objects.update_or_create(session_key=key, defaults=facts | {"user_id": user.pk})


def _due(key: str) -> bool:
    now = time.monotonic()
    with _guard:
        if now - _seen.get(key, -SEEN_SECONDS) < SEEN_SECONDS:
            return False
        if len(_seen) >= _REMEMBERED:
            _seen.clear()
        _seen[key] = now
        return True


@receiver(user_logged_in, dispatch_uid="accounts.sign_in_noted")
def _signed_in(sender: Any, user: Any, request: HttpRequest | None = None, **_: Any) -> None:
    if request is not None and hasattr(request, "session"):
        if not request.session.session_key:
            request.session.save()
        note(request, user)


def browsers(user: Any, current_key: str | None = None) -> list[SignedInBrowser]:
    """Most recently used first. Also removes rows of expired sessions."""
    rows = UserSession.objects.purge_and_list(user)
    found = [
        SignedInBrowser(
            id=row.pk,
            browser=browser_words(row.user_agent),
            user_agent=row.user_agent,
            ip="" if row.ip == _NOWHERE else row.ip,
            started_at=row.created_at,
            seen_at=row.last_seen_at,
            current=row.session_key == current_key,
        )
        for row in rows
    ]
    return sorted(found, key=lambda row: row.seen_at, reverse=True)


def browser_words(agent: str) -> str:
    """A User-Agent header as "Firefox on Linux"."""
    browser = next((name for name, pattern in _BROWSERS if re.search(pattern, agent)), "Unknown browser")
    system = next((name for name, pattern in _SYSTEMS if re.search(pattern, agent)), "")
    return f"{browser} on {system}" if system else browser


def numbered(number: int) -> list[int]:
    """A number from a URL, as `end` expects it. Empty if it exceeds the column, which SQLite refuses to compare."""
    return [number] if number <= BigIntegerField.MAX_BIGINT else []


def end(user: Any, ids: Collection[int] | None = None, keep_key: str = "") -> int:
    """End some browser sessions of a user, or all but `keep_key`, in the caller's transaction. Their sockets close after
    the commit. Returns how many there were."""
    rows = UserSession.objects.filter(user_id=user.pk).exclude(session_key=keep_key)
    if ids is not None:
        rows = rows.filter(pk__in=list(ids))
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    rows.filter(session_key__in=keys).delete()
    send = partial(sign_ins_ended.send_robust, sender=get_user_model(), user_id=user.pk, keys=keys)
    transaction.on_commit(send, robust=True)
    return len(keys)


def delete_expired() -> int:
    """Remove expired sessions and the rows about their use, in small transactions: Django leaves them. Returns the
    number of sessions removed."""
    before = timezone.now() - _SETTLED
    gone = _forget(Session.objects.filter(expire_date__lt=before))
    theirs = Session.objects.filter(session_key=OuterRef("session_key"))
    _forget(UserSession.objects.filter(~Exists(theirs), last_seen_at__lt=before))
    return gone


def _forget(rows: "QuerySet[Session] | QuerySet[UserSession]") -> int:
    batches, gone = Batches(), 0
    while keys := list(rows.order_by("pk").values_list("pk", flat=True)[: batches.size]):
        batches.each(keys, lambda some: rows.filter(pk__in=some).delete())
        gone += len(keys)
    return gone
