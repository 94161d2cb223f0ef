"""Versions of a watched resource: what a read found is kept when it differs from the newest one.

Numbers have no gaps: the newest number moves by a conditional UPDATE under the session's hold, and only with it a
version is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import F

from servers.audit import payloads
from servers.audit.canonical import canonical, sha256
from servers.enums import PayloadKind
from sessions.domain import retention, watches, webhooks
from sessions.domain.lifecycle import Hold, storable
from sessions.enums import SubscriptionState, VersionCause
from sessions.models import ResourceVersion, Subscription, SubscriptionGap

MIME_CHARS: Final = 200
#: cutting the history each time would cost a look at all its sizes
TRIM_EVERY: Final = 10


class NoContents(ValueError):
    """The answer to a read holds no contents; the message is fit for a page."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a read found, without secrets. `text` is the JSON array `contents`; `size` counts its decoded bytes."""

    text: str
    digest: str
    size: int
    mime_type: str
    binary: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A read and why it was made. `began`: before its request left; `events`: notifications that it answers."""

    content: Content
    cause: VersionCause
    events: int
    began: datetime
    at: datetime


def content_of(result: Mapping[str, Any], redacted: Callable[[Any], Any], dumped: Callable[[Any], str]) -> Content:
    """Takes its time with large contents: not in a loop. Raises NoContents."""
    contents = redacted(result.get("contents"))
    if not isinstance(contents, list) or not all(isinstance(item, dict) for item in contents):
        raise NoContents("The server's answer holds no list of contents.")
    return Content(
        text=dumped(contents),
        digest=sha256(canonical(contents)),
        size=sum(_size(item) for item in contents),
        mime_type=next((storable(item["mimeType"], MIME_CHARS) for item in contents if _is_text(item, "mimeType")), ""),
        binary=any(_is_text(item, "blob") for item in contents),
    )


def _is_text(item: Mapping[str, Any], name: str) -> bool:
    return isinstance(item.get(name), str)


def _size(item: Mapping[str, Any]) -> int:
    if _is_text(item, "blob"):
        blob = item["blob"]
        return max(0, len(blob) * 3 // 4 - blob[-2:].count("="))
    return len(item["text"].encode("utf-8", "surrogatepass")) if _is_text(item, "text") else 0


def store(hold: Hold, pk: int, found: Found) -> bool:
    """Keep what was read, in the caller's transaction. True when it is a new version."""
    row = watches.mine(hold).filter(pk=pk).first()
    if row is None:
        return False
    newest = ResourceVersion.objects.filter(subscription=row).order_by("-number").first()
    differs = newest is None or newest.digest != found.content.digest
    if not _note(hold, row, found, differs=differs):
        return False
    _close_gap(row, found, differs=differs)
    if differs:
        _keep(row, found, previous=newest)
    watches.announce([pk], "version" if differs else "subscription")
    return differs


def _note(hold: Hold, row: Subscription, found: Found, *, differs: bool) -> bool:
    """Whether nobody else stored a version meanwhile."""
    fields: dict[str, Any] = {"last_read_at": found.at, "read_fault": "", "read_detail": ""}
    if differs:
        fields |= {"newest": row.newest + 1, "changed_at": found.at}
    rows = watches.mine(hold).filter(pk=row.pk, newest=row.newest)
    return rows.update(version=F("version") + 1, **fields) == 1


def _keep(row: Subscription, found: Found, previous: ResourceVersion | None) -> None:
    content = found.content
    version = ResourceVersion.objects.create(
        subscription=row,
        number=row.newest + 1,
        at=found.at,
        cause=found.cause if row.newest else VersionCause.SUBSCRIBED,
        events=found.events,
        digest=content.digest,
        size=content.size,
        mime_type=content.mime_type,
        binary=content.binary,
        contents=payloads.store(PayloadKind.RESOURCE, content.text),
    )
    if previous is not None:
        webhooks.announce(row, version)
    if version.number % TRIM_EVERY == 0:
        retention.trim(row)


def _close_gap(row: Subscription, found: Found, *, differs: bool) -> None:
    """A gap ended when the server agreed to tell again; only a read that began after that says what it hid."""
    if row.state != SubscriptionState.LISTENING or found.began < row.state_since:
        return
    for gap in SubscriptionGap.objects.filter(subscription=row, ended_at=None):
        read_in_it = row.versions.filter(at__gte=gap.began_at).exists()
        changed = (differs or read_in_it) if row.newest else None
        rows = SubscriptionGap.objects.filter(pk=gap.pk, ended_at=None)
        rows.update(ended_at=max(row.state_since, gap.began_at), changed=changed)
