"""The lists of what a server offers, as its pages show them: searched by text and limited in length."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from django.db import connection
from django.db.models import Q, QuerySet

from servers.enums import DefinitionKind
from servers.models import Definition, Server
from servers.storable import storable
from sessions.models import Subscription

#: entries of one kind in all parts of its list
ENTRIES: Final = 2_000
#: entries in one part
PART: Final = 100
FIND_CHARS: Final = 200
Row = TypeVar("Row", Definition, Subscription)


@dataclass(frozen=True)
class Part:
    """The position of a part in its list. `listed`: the number of entries in all parts; more may match. `parameter`:
    the query parameter of the page that names the start.
    """

    start: int
    listed: int
    matching: int
    size: int
    parameter: str

    @classmethod
    def at(cls, start: int, matching: int, parameter: str = "from") -> "Part":
        """The part with the entry number `start`."""
        listed = min(matching, ENTRIES)
        return cls(min(start, max(0, listed - 1)) // PART * PART, listed, matching, PART, parameter)

    @property
    def before(self) -> int | None:
        return self.start - self.size if self.start else None

    @property
    def after(self) -> int | None:
        return self.start + self.size if self.start + self.size < self.listed else None

    @property
    def following(self) -> int:
        """The number of entries in the next part."""
        return min(self.size, self.listed - self.start - self.size)

    @property
    def cut(self) -> bool:
        """Whether more entries match than all parts contain."""
        return self.listed < self.matching


@dataclass(frozen=True)
class Listed(Generic[Row]):
    """The first `rows` of those that match, or the rows of one `part`."""

    rows: list[Row]
    matching: int
    part: Part | None = None


@dataclass(frozen=True)
class ListHead:
    """The head of a list that comes in parts. `total`: how many the server offers, regardless of the search."""

    find: str
    shown: int
    matching: int
    total: int

    @property
    def asks(self) -> bool:
        """Whether the server must search for the text, because the page does not have everything that could match."""
        return self.shown < self.total

    @property
    def query(self) -> str:
        """The part of the query string that every link of the list keeps."""
        return f"&find={quote(self.find, safe='')}" if self.find else ""


def words_of(data: Mapping[str, Any]) -> str:
    """The search text of `?find=`."""
    return storable(str(data.get("find", "")).strip(), FIND_CHARS)


def listing(find: str, counts: Mapping[str, int], *lists: Listed[Any]) -> ListHead:
    """`counts`: how many of each kind the server offers."""
    shown, found = sum(len(one.rows) for one in lists), sum(one.matching for one in lists)
    return ListHead(find, shown, found, sum(counts.values()))


def part_of(
    server: Server, kind: DefinitionKind, find: str, key: str, start: int | None, parameter: str = "from"
) -> Listed[Definition]:
    """In the server's order: the part that starts at `start`, or contains `key`, or the first part."""
    rows = matching(server, kind, find)
    if start is None:
        keys = list(rows.values_list("key", flat=True)[:ENTRIES]) if key else []
        start = keys.index(key) if key in keys else 0
    part = Part.at(start, rows.count(), parameter)
    return Listed(list(rows[part.start : min(part.start + part.size, part.listed)]), part.matching, part)


def matching(server: Server, kind: DefinitionKind, find: str = "") -> QuerySet[Definition]:
    rows = server.definitions.filter(kind=kind, removed_at=None, **server.identity_filter).order_by("position", "id")
    return rows.filter(containing(find, "key", "title", "description"))


def chosen(server: Server, kind: DefinitionKind, key: str, found: Listed[Definition]) -> Definition | None:
    """The definition with this key. Without a key, the first match, or the first of all if the search found nothing."""
    rows = matching(server, kind)
    if key:
        return rows.filter(key=key).first()
    return found.rows[0] if found.rows else rows.first()


def watched(server: Server, find: str = "") -> Listed[Subscription]:
    rows = server.subscriptions.filter(active=True, **server.identity_filter).order_by("title", "id")
    return _first(rows.filter(containing(find, "uri", "title")))


def removed(server: Server, *kinds: DefinitionKind | str, find: str = "", most: int) -> Listed[Definition]:
    """What the server no longer offers, latest removal first."""
    rows = server.definitions.filter(kind__in=kinds, removed_at__isnull=False, **server.identity_filter).defer("body")
    return _first(rows.filter(containing(find, "key", "title")).order_by("-removed_at", "-id"), most)


def containing(find: str, *fields: str) -> Q:
    """Rows with the text in one of the fields, ignoring case; SQLite's LIKE ignores the case of ASCII letters only."""
    lookup, text = "icontains", find
    if connection.vendor == "sqlite" and not find.isascii():
        lookup, text = "iregex", re.escape(find)
    found = Q()
    for field in fields if find else ():
        found |= Q(**{f"{field}__{lookup}": text})
    return found


def _first(rows: QuerySet[Row], most: int = 0) -> Listed[Row]:
    most = most or ENTRIES
    found = list(rows[: most + 1])
    return Listed(found[:most], len(found) if len(found) <= most else rows.count())
