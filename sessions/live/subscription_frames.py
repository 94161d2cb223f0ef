"""Topics `subscriptions` and `subscription.<uid>`. For reader threads only.

Every page joins `subscriptions`, so its frames contain what a message and a pill need, but none of the content. The
board and the page of one subscription reload their parts with the permissions of their own user.
"""

from typing import Any
from uuid import UUID

from django.db.models import Q
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from servers.enums import IdentityKind
from servers.kit.visible import visible_text
from sessions.live.frames import EVERYBODY, RECENT, Frame, encode, of_owner
from sessions.models import Subscription
from sessions.subscriptions import history

MOST = 100
_TITLE_CHARS = 80
_LAST = 1 << 62  # nothing is newer than a deletion


def board_frames(uids: list[UUID] | None) -> list[Frame]:
    """One frame per named subscription, even if it was deleted. None: those that changed recently."""
    rows = Subscription.objects.select_related("server", "identity")
    if uids is None:
        return [_board_frame(item) for item in rows.filter(_moved_lately()).order_by("-pk")[:MOST]]
    found = {item.uid: item for item in rows.filter(uid__in=uids)}
    return [_board_frame(found[uid]) if uid in found else _gone("subscriptions", None, uid) for uid in uids]


def _moved_lately() -> Q:
    since = timezone.now() - RECENT
    return Q(changed_at__gt=since) | Q(state_since__gt=since) | Q(last_event_at__gt=since)


def _board_frame(item: Subscription) -> Frame:
    row = _row(item)
    text = encode("subscriptions", None, "subscription", [row])
    personal = item.identity.kind == IdentityKind.PERSONAL
    audience = of_owner(item.identity.user_id) if personal else EVERYBODY
    return Frame(text, None, str(item.uid), item.version, moved=row["moved"], audience=audience)


def _gone(topic: str, seq: int | None, uid: UUID) -> Frame:
    row = {"subscription": str(uid), "deleted": True}
    return Frame(encode(topic, seq, "subscription", [row]), None, str(uid), _LAST)


def _row(item: Subscription) -> dict[str, Any]:
    return {
        "subscription": str(item.uid),
        "server": str(item.server.uid),
        "uri": item.uri,
        "version": item.version,
        "state": item.state,
        "pill": render_to_string("subscriptions/_pill.html", {"subscription": item}).strip(),
        "title": visible_text(item.title or item.uri)[:_TITLE_CHARS],
        "server_name": visible_text(item.server.name),
        "url": reverse("subscriptions:detail", args=[item.uid]),
        "newest": item.newest,
        "changed_at": item.changed_at.isoformat() if item.changed_at else None,
        "fresh": item.changed_at is not None and item.changed_at > timezone.now() - RECENT,
        "moved": _moved(item),
        "notify": item.notify and item.active,
    }


def _moved(item: Subscription) -> int:
    moments = (item.changed_at, item.state_since, item.last_event_at)
    return max(int(moment.timestamp() * 1000) for moment in moments if moment)


def frames_of(uid: UUID) -> list[Frame]:
    topic = f"subscription.{uid}"
    item = Subscription.objects.filter(uid=uid).first()
    if item is None:
        return [_gone(topic, None, uid)]
    row = {"subscription": str(uid), "newest": item.newest, "mark": history.mark(item)}
    return [Frame(encode(topic, item.version, "subscription", [row]), None, str(uid), item.version)]
