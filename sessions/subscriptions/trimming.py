"""Trimming the history of one subscription: versions by count, age and bytes, but never the newest. A version ages from
when the next one replaced it: until then it was the current content. Contents are deleted with their versions."""

from collections.abc import Collection
from datetime import timedelta
from itertools import accumulate
from typing import Final

from django.utils import timezone

from servers.models import Payload
from sessions.models import ResourceVersion, Subscription

#: rows that one statement deletes
BATCH: Final = 500


def trim(subscription: Subscription) -> int:
    """Delete what the settings do not keep; returns the number of deleted versions. Uses the caller's transaction."""
    rows = ResourceVersion.objects.filter(subscription=subscription).order_by("-number")
    found = list(rows.values_list("pk", "contents_id", "size", "at"))
    oldest = timezone.now() - timedelta(days=subscription.keep_days)
    sums = accumulate(size for _, _, size, _ in found)
    replaced_at = [timezone.now(), *(at for _, _, _, at in found)]
    gone = [
        (pk, contents_id)
        for place, ((pk, contents_id, _, _), total, at) in enumerate(zip(found, sums, replaced_at, strict=False))
        if place and (place >= subscription.keep_count or total > subscription.keep_bytes or at < oldest)
    ]
    _delete(gone)
    return len(gone)


def _delete(versions: list[tuple[int, int]]) -> None:
    for start in range(0, len(versions), BATCH):
        batch = versions[start : start + BATCH]
        ResourceVersion.objects.filter(pk__in=[pk for pk, _ in batch]).delete()
        delete_contents([contents_id for _, contents_id in batch])


def delete_contents(ids: Collection[int]) -> None:
    """Runs in the caller's transaction. The collector reads the rows that it deletes, but not their contents, which may
    be gigabytes."""
    Payload.objects.filter(pk__in=ids).only("pk").delete()
