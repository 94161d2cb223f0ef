"""The versions of one definition: what each changed, and the difference of any two. Reading only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from servers.enums import DefinitionChange
from servers.models import Definition, DefinitionVersion, Server
from sessions.domain.alignment import Budget
from sessions.domain.text_difference import TextDifference, compare_texts

PAGE = 50
BADGE_DAYS = 7
#: a larger body is not laid out line by line
PRETTY_CHARS = 2 * 1024 * 1024
#: the greater one is told where several fell into the time of the badge
_WEIGHT = {
    DefinitionChange.WORDS: 0,
    DefinitionChange.COMPATIBLE: 1,
    DefinitionChange.RETURNED: 2,
    DefinitionChange.BREAKING: 3,
}


@dataclass(frozen=True)
class Version:
    """`number` counts from 1 in the order in which they were seen."""

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
    first_page: bool


def definition_of(server: Server, kind: str, key: str) -> Definition | None:
    """Removed ones too."""
    return server.definitions.filter(kind=kind, key=key, **server.seen_through).first()


def versions(definition: Definition, before: int | None = None) -> Versions:
    rows = definition.versions.defer("body")
    page = rows if before is None else rows.filter(id__lt=before)
    found = list(page.order_by("-id")[: PAGE + 1])
    total = rows.count()
    newest = rows.filter(id__lte=found[0].pk).count() if found else 0
    entries = [Version(newest - place, row) for place, row in enumerate(found[:PAGE])]
    return Versions(entries, total, found[PAGE - 1].pk if len(found) > PAGE else None, before is None)


def version(definition: Definition, pk: int | None) -> Version | None:
    """The one named, else the newest that says something; None when it is not one of this definition."""
    rows = definition.versions.order_by("-id")
    row = rows.exclude(change=DefinitionChange.REMOVED).first() if pk is None else rows.filter(pk=pk).first()
    return None if row is None else _numbered(definition, row)


def before(definition: Definition, than: Version) -> Version | None:
    """The last description before that version."""
    rows = definition.versions.filter(id__lt=than.row.pk).exclude(change=DefinitionChange.REMOVED)
    row = rows.order_by("-id").first()
    return None if row is None else _numbered(definition, row)


def _numbered(definition: Definition, row: DefinitionVersion) -> Version:
    return Version(definition.versions.filter(id__lte=row.pk).count(), row)


# --- difference --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """`text` is None when the two cannot be laid out line by line; `same` when they say the same."""

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
    """Canonical order, one value a line; None for what is too large."""
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
    """By key: the gravest change of the last days, of what is offered now. One query."""
    whose = {f"definition__{name}": value for name, value in server.seen_through.items()}
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
