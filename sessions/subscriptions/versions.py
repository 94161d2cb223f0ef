"""Versions of a watched resource: the content of a read is stored if it differs from the newest version.

Numbers have no gaps: a conditional UPDATE under the session's lease raises the newest number, and only then is a
version written.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import F
from django.utils.crypto import salted_hmac

from servers.audit import payloads
from servers.enums import PayloadKind
from servers.json.canonical import canonical, sha256
from servers.models import Payload
from servers.storable import storable
from sessions.connections.lifecycle import Lease
from sessions.enums import SubscriptionState, VersionCause
from sessions.models import ResourceVersion, Subscription, SubscriptionGap
from sessions.subscriptions import trimming, watches, webhooks

MIME_CHARS: Final = 200
#: trimming the history each time would mean reading all its sizes
TRIM_EVERY: Final = 10


class NoContents(ValueError):
    """The response to a read has no contents; the message is suitable for a page."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a read, masked. `text` is the JSON array `contents`; `size` counts its decoded bytes."""

    text: str
    digest: str
    size: int
    mime_type: str
    binary: bool


@dataclass(frozen=True, slots=True)
class ReadContent:
    """A read and its reason. `began`: before its request was sent. `events`: number of notifications that it covers.
    `contents`: from `packed`."""

    content: Content
    cause: VersionCause
    events: int
    began: datetime
    at: datetime
    contents: Payload | None = None


def content_of(result: Mapping[str, Any], masked: Callable[[Any], Any], dumped: Callable[[Any], str]) -> Content:
    """`masked`: a result as it may be stored. Slow for large contents: do not call in an event loop. Raises
    NoContents."""
    contents = result.get("contents")
    if not isinstance(contents, list) or not all(isinstance(item, dict) for item in contents):
        raise NoContents("The server's response has no contents.")
    stored = _contents_in(masked({"contents": contents}))
    return Content(
        text=dumped(stored),
        digest=sha256(canonical(stored)),
        size=sum(map(_size, stored)),
        mime_type=next((storable(item["mimeType"], MIME_CHARS) for item in stored if _is_text(item, "mimeType")), ""),
        binary=any(_is_text(item, "blob") for item in stored),
    )


def _contents_in(masked: Any) -> list[Any]:
    """The masked items. A rule may mask a whole item, or all of them at once."""
    contents = masked["contents"] if isinstance(masked, dict) else masked
    return contents if isinstance(contents, list) else [contents]


def _is_text(item: Any, name: str) -> bool:
    return isinstance(item, dict) and isinstance(item.get(name), str)


def _size(item: Any) -> int:
    if _is_text(item, "blob"):
        blob = item["blob"]
        return max(0, len(blob) * 3 // 4 - blob[-2:].count("="))
    return len(item["text"].encode("utf-8", "surrogatepass")) if _is_text(item, "text") else 0


def packed(pk: int, content: Content) -> Payload | None:
    """The row of the contents, compressed and encrypted but not written; None if the newest version has the same. Call
    it before `store`: compressing in the writer's transaction would block all writers. Raises SealError."""
    newest = (
        ResourceVersion.objects.filter(subscription=pk).order_by("-number").values_list("digest", flat=True).first()
    )
    return None if _is_of(newest, content) else payloads.made(PayloadKind.RESOURCE, content.text)


def store(lease: Lease, pk: int, found: ReadContent) -> bool:
    """Record a read, in the caller's transaction. True if it is a new version."""
    row = watches.mine(lease).filter(pk=pk).first()
    if row is None:
        return False
    newest = ResourceVersion.objects.filter(subscription=row).order_by("-number").first()
    differs = newest is None or not _is_of(newest.digest, found.content)
    if not _note(lease, row, found, differs=differs):
        return False
    _close_gap(row, found, differs=differs)
    if differs:
        _keep(row, found, previous=newest)
    watches.announce([pk], "version" if differs else "subscription")
    return differs


def _note(lease: Lease, row: Subscription, found: ReadContent, *, differs: bool) -> bool:
    """False if another version was stored in the meantime."""
    fields: dict[str, Any] = {"last_read_at": found.at, "read_fault": "", "read_detail": ""}
    if differs:
        fields |= {"newest": row.newest + 1, "changed_at": found.at}
    rows = watches.mine(lease).filter(pk=row.pk, newest=row.newest)
    return rows.update(version=F("version") + 1, **fields) == 1


def _keep(row: Subscription, found: ReadContent, previous: ResourceVersion | None) -> None:
    content = found.content
    contents = found.contents or payloads.made(PayloadKind.RESOURCE, content.text)  # another version came in between
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
        contents=payloads.insert(contents),
    )
    if previous is not None:
        webhooks.announce(row, version)
    if version.number % TRIM_EVERY == 0:
        trimming.trim(row)


def erased(payload_ids: Collection[int]) -> None:
    """Runs in the transaction of the erasure. An unsalted digest of small contents would confirm a guess. The newest
    version keeps a keyed digest, so that the next read does not store the erased contents again."""
    rows = ResourceVersion.objects.filter(contents__in=payload_ids).exclude(digest__startswith=ResourceVersion.KEYED)
    for pk, digest, number, newest in rows.values_list("pk", "digest", "number", "subscription__newest"):
        kept = _keyed(digest) if digest and number == newest else ""
        ResourceVersion.objects.filter(pk=pk).update(digest=kept)


def _is_of(digest: str | None, content: Content) -> bool:
    return digest in (content.digest, _keyed(content.digest))


def _keyed(digest: str) -> str:
    key = salted_hmac("mcpadmin.resource_version", digest, algorithm="sha256").hexdigest()
    return ResourceVersion.KEYED + key[1:]


def _close_gap(row: Subscription, found: ReadContent, *, differs: bool) -> None:
    """A gap ends when the server confirms the subscription again. Only a read that began after that shows whether the
    gap hid a change."""
    if row.state != SubscriptionState.LISTENING or found.began < row.state_since:
        return
    for gap in SubscriptionGap.objects.filter(subscription=row, ended_at=None):
        read_in_it = row.versions.filter(at__gte=gap.began_at).exists()
        changed = (differs or read_in_it) if row.newest else None
        rows = SubscriptionGap.objects.filter(pk=gap.pk, ended_at=None)
        rows.update(ended_at=max(row.state_since, gap.began_at), changed=changed)
