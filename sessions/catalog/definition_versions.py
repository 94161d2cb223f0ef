"""The versions of one definition: what each changed, and the difference between any two. Read-only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from servers.enums import DefinitionChange
from servers.kit.pages import page_before
from servers.models import Definition, DefinitionVersion, Server
from sessions.differences.alignment import Budget
from sessions.differences.text import TextDifference, compare_texts

PAGE = 50
BADGE_DAYS = 7
#: a larger body is not compared line by line
PRETTY_CHARS = 2 * 1024 * 1024
#: if several changes are recent enough for the badge, the one with the highest weight is shown
_WEIGHT = {
    DefinitionChange.WORDS: 0,
    DefinitionChange.COMPATIBLE: 1,
    DefinitionChange.RETURNED: 2,
    DefinitionChange.BREAKING: 3,
}


@dataclass(frozen=True)
class Version:
    """`number` counts the stored versions from 1, in the order in which they were seen."""

    number: int
    row: DefinitionVersion

    @property
    def described(self) -> bool:
        """A removal has no body."""
        return self.row.change != DefinitionChange.REMOVED


@dataclass(frozen=True)
class Versions:
    """Newest first; `older` is the cursor of the next page."""

    entries: list[Version]
    total: int
    older: int | None
    first: bool


def definition_of(server: Server, kind: str, key: str) -> Definition | None:
    """Includes removed definitions."""
    return server.definitions.filter(kind=kind, key=key, **server.identity_filter).first()


def versions(definition: Definition, before: int | None = None) -> Versions:
    rows = definition.versions.defer("body")
    page = page_before(rows, "id", before, PAGE)
    total = rows.count()
    newest = rows.filter(id__lte=page.rows[0].pk).count() if page.rows else 0
    entries = [Version(newest - place, row) for place, row in enumerate(page.rows)]
    return Versions(entries, total, page.older, page.first)


def version(definition: Definition, pk: int | None) -> Version | None:
    """The version `pk`, or without it the newest one with a body. None if it does not belong to this definition."""
    rows = definition.versions.order_by("-id")
    row = rows.exclude(change=DefinitionChange.REMOVED).first() if pk is None else rows.filter(pk=pk).first()
    return None if row is None else numbered(definition, row)


def before(definition: Definition, than: Version) -> Version | None:
    """The last version with a body before `than`."""
    rows = definition.versions.filter(id__lt=than.row.pk).exclude(change=DefinitionChange.REMOVED)
    row = rows.order_by("-id").first()
    return None if row is None else numbered(definition, row)


def numbered(definition: Definition, row: DefinitionVersion) -> Version:
    return Version(definition.versions.filter(id__lte=row.pk).count(), row)


# --- difference --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """`text` is None if the two cannot be compared line by line. `same`: both have the same digest."""

    old: Version
    new: Version
    same: bool
    text: TextDifference | None


def compare(old: Version, new: Version) -> Comparison:
    if old.row.digest == new.row.digest:
        return Comparison(old, new, True, None)
    one, other = pretty(old.row.body), pretty(new.row.body)
    text = compare_texts(one, other, Budget()) if one is not None and other is not None else None
    return Comparison(old, new, False, text)


def pretty(body: str) -> str | None:
    """Sorted keys, one value per line; None if it is too large."""
    if len(body) > PRETTY_CHARS:
        return None
    try:
        text = json.dumps(json.loads(body), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= 4 * PRETTY_CHARS else None


# --- badges --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Badge:
    change: DefinitionChange
    at: datetime

    @property
    def word(self) -> str:
        return str(self.change.label).lower()


def badges(server: Server, kind: str) -> Mapping[str, Badge]:
    """By key: the most severe change of the last BADGE_DAYS days, for definitions that are offered now. One query."""
    whose = {f"definition__{name}": value for name, value in server.identity_filter.items()}
    rows = DefinitionVersion.objects.filter(
        definition__server=server,
        definition__kind=kind,
        definition__removed_at=None,
        definition__changed_at__gt=timezone.now() - timedelta(days=BADGE_DAYS),
        seen_at__gt=timezone.now() - timedelta(days=BADGE_DAYS),
        change__in=list(_WEIGHT),
        **whose,
    )
    found: dict[str, Badge] = {}
    for key, change, at in rows.order_by("id").values_list("definition__key", "change", "seen_at"):
        badge = Badge(DefinitionChange(change), at)
        if key not in found or _WEIGHT[badge.change] >= _WEIGHT[found[key].change]:
            found[key] = badge
    return found
