"""Calls, errors and latency of the last hours, in total and by server, from roll-ups: what the overview draws."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from servers import access
from servers.models import Server
from sessions.mcp.core.methods import COMPLETE
from sessions.models import McpSession
from sessions.overview import rows
from sessions.statistics import reading
from sessions.statistics.figures import Counts, Dimensions, Numbers, Range, ServerSeries

#: servers with their own color: those with the most calls, and those with the most errors
_BUSIEST, _WORST = 4, 2
DRAWN: Final = _BUSIEST + _WORST
LISTED: Final = 12
#: completions, which forms request while someone types, are not counted
WITHOUT_COMPLETIONS: Final = Dimensions(without_methods=frozenset({COMPLETE}))
#: the explorer's condition for what counts as an error here
FAILED_CALLS: Final = "outcome:error,unknown,not_sent,denied"
#: minimum number of calls for a meaningful error rate
_MEANINGFUL_CALLS: Final = 10
_ALARMING_PERCENT: Final = 50


@dataclass(frozen=True)
class ServerLine:
    """`colour`: its color number in the charts, 0 for a server that is not drawn."""

    server: Server
    mcp_session: McpSession | None
    numbers: Numbers
    colour: int

    @property
    def alarming(self) -> bool:
        """At least half of a meaningful number of calls failed."""
        percent = self.numbers.error_percent
        return percent is not None and self.numbers.calls >= _MEANINGFUL_CALLS and percent >= _ALARMING_PERCENT


@dataclass(frozen=True)
class Activity:
    """`lines`: the servers with the most calls, then others by name; at most LISTED."""

    since: datetime
    until: datetime
    series: ServerSeries
    total: Numbers
    lines: list[ServerLine]

    @property
    def drawn(self) -> list[ServerLine]:
        return sorted((line for line in self.lines if line.colour), key=lambda line: line.colour)


def activity(user: access.User, servers: QuerySet[Server], length: timedelta, step: int) -> Activity:
    """`step`: seconds of one bar."""
    until = timezone.now()
    since = until - length
    span = Range.of(since, until)
    active = servers.filter(archived_at=None)
    found: dict[UUID, Server] = {}

    def choose(counts: dict[UUID, Counts]) -> list[UUID]:
        candidates = _candidates(counts)
        there = set(active.filter(uid__in=candidates).order_by().values_list("uid", flat=True))
        chosen = [uid for uid in candidates if uid in there][:LISTED]
        read = rows.with_session(Server.objects.filter(uid__in=chosen), user)
        found.clear()
        found.update({server.uid: server for server in read})
        return [uid for uid in chosen if uid in found]

    if not access.may(user, "view"):
        empty = ServerSeries(since, step, [], {}, {}, behind=False)
        return Activity(since, until, empty, Numbers(), [])
    series = reading.by_server(user, WITHOUT_COMPLETIONS, span, step, choose)
    lines = [
        _line(found[uid], series.servers[uid], colour if colour <= DRAWN else 0)
        for colour, uid in enumerate(series.servers, start=1)
    ]
    lines.sort(key=lambda line: (-line.numbers.calls, line.server.name))
    if len(lines) < LISTED:
        quiet = rows.with_session(active.exclude(uid__in=series.servers), user)
        lines += [_line(server, [], 0) for server in quiet[: LISTED - len(lines)]]
    return Activity(since, until, series, reading.total(series.total), lines)


def _candidates(counts: dict[UUID, Counts]) -> list[UUID]:
    """First those to draw, then those to list. More than fit, because some may be deleted or archived."""
    busiest = sorted(counts, key=lambda uid: -counts[uid].calls)[: 2 * LISTED]
    failing = [uid for uid in counts if counts[uid].errors]
    worst = sorted(failing, key=lambda uid: -counts[uid].errors)[: 2 * LISTED]
    return list(dict.fromkeys([*busiest[:_BUSIEST], *worst[:_WORST], *busiest, *worst]))


def _line(server: Server, points: list[Numbers], colour: int) -> ServerLine:
    return ServerLine(server, rows.session_of(server), reading.total(points), colour)


# --- the last day of a page's servers ---------------------------------------------------------------------------
_DAY: Final = 86_400
_HOUR: Final = 3_600
_STRIP_HEIGHT: Final = 16


@dataclass(frozen=True)
class LastDay:
    """One server's totals for 24 hours, and its calls and errors in each hour, oldest first."""

    numbers: Numbers
    calls: list[int]
    errors: list[int]

    @property
    def calls_path(self) -> str:
        """Bars for an SVG of 25 by 16 units (24 hours and a part of one)."""
        return self._path(self.calls)

    @property
    def errors_path(self) -> str:
        return self._path(self.errors)

    def _path(self, counts: list[int]) -> str:
        most = max(self.calls, default=0)
        heights = [max(1, round(_STRIP_HEIGHT * count / most)) if count else 0 for count in counts]
        return "".join(
            f"M{place} {_STRIP_HEIGHT}v-{height}h.8v{height}z" for place, height in enumerate(heights) if height
        )


def last_days(user: access.User, servers: Collection[Server]) -> dict[UUID, LastDay]:
    """By server uid; a server without calls has empty numbers."""
    if not servers:
        return {}
    wanted = Dimensions(
        servers=frozenset(server.uid for server in servers), without_methods=WITHOUT_COMPLETIONS.without_methods
    )
    found = reading.of_servers(user, wanted, _last_day(), _HOUR)
    return {
        uid: LastDay(bars.total, [one.calls for one in bars.steps], [one.errors for one in bars.steps])
        for uid, bars in found.servers.items()
    }


def counts_of_last_day(user: access.User) -> dict[UUID, Counts]:
    return reading.server_counts(user, WITHOUT_COMPLETIONS, _last_day())


def _last_day() -> Range:
    now = int(time.time())
    return Range(now - _DAY, now + 1)
