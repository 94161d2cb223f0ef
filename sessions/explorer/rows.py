"""What the explorer shows: the values that the search returns to pages and tests."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Row:
    """One call, event or log line. `key` is unique in its stream. `kind`, `who`, `way`, `identity`, `outcome` and
    `status` are what the query language compares; `label` and `status_label` are the words for pages.

    `preview` begins the arguments of a call; it is empty for a reader who may not read them. `tone` is one of the kit.
    `url`: its own page; empty if this reader has no such page.
    """

    stream: str
    key: int
    at: datetime
    server_uid: str
    server_name: str
    target: str
    kind: str
    label: str
    who: str
    way: str
    identity: str
    outcome: str
    status: str
    status_label: str
    tone: str
    duration_ms: int | None
    bytes: int | None
    preview: str
    url: str
    call_uid: str = ""
    own: bool = False

    @property
    def sel(self) -> str:
        """The row's identifier in the URL of a page that shows it."""
        return f"{self.stream}.{self.key}"


@dataclass(frozen=True)
class Unindexed:
    """The newest events, which free text does not find yet: how many, and when the first of them was recorded."""

    events: int
    since: datetime


@dataclass(frozen=True)
class ResultPage:
    """Newest first. `older` and `newer` are cursors, empty if there is nothing more. `newest` is for `newer_count`.

    `ascending`: the search of this page went from older to newer rows. `searched_to`: it reached its work limit and
    found nothing more up to this time; `older`, or `newer` if ascending, continues it. `hidden`: streams that this
    person may not see. `unindexed`: what a search by free text missed.
    `removed`: the range reaches back to calls from before this time, which the retention removed.
    """

    rows: list[Row]
    older: str
    newer: str
    newest: str
    ascending: bool = False
    searched_to: datetime | None = None
    hidden: list[str] = field(default_factory=list)
    unindexed: Unindexed | None = None
    removed: datetime | None = None


@dataclass(frozen=True)
class Histogram:
    """`series`: outcome -> count of each bucket, the first bucket beginning at `start`. `partial`: only the newest rows
    of the range are counted. `removed`: calls that the retention removed are counted too. `rounded`: in counts of
    calls, the ends of the range are rounded to this many seconds, 0 if they are not. `behind`: the newest calls are not
    counted yet."""

    start: datetime
    step_seconds: float
    series: dict[str, list[int]]
    partial: bool = False
    removed: bool = False
    rounded: int = 0
    behind: bool = False


@dataclass(frozen=True)
class Facet:
    """`values`: (value for the query language, words, count), most frequent first. `partial`: counted over the newest
    rows only. `behind`: without the newest calls, which are not counted yet."""

    field: str
    label: str
    values: list[tuple[str, str, int]]
    partial: bool = False
    behind: bool = False


@dataclass(frozen=True)
class TimelineEntry:
    """`kind`: request, send, question, attempt, cancel, end, late, log. `url` leads to its own page, if it has one."""

    at: datetime
    kind: str
    label: str
    detail: str = ""
    who: str = ""
    tone: str = ""
    seq: int | None = None
    url: str = ""


@dataclass(frozen=True)
class Completion:
    """`insert` replaces the query text from `start` up to the cursor."""

    insert: str
    label: str
    detail: str
    start: int
