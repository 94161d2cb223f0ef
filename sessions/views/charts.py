"""Charts of calls: how many, how many failed, how long they took; by server, tool and caller. From roll-ups alone."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from servers import access
from servers.kit.filters import ignored
from servers.models import Server
from servers.requests import WebRequest
from sessions.explorer.language import EARLIEST, LATEST, Term, Value
from sessions.mcp.core.methods import COMPLETE
from sessions.models.statistics import RollupBy
from sessions.overview.activity import FAILED_CALLS
from sessions.statistics import reading
from sessions.statistics.figures import SUCCEEDED, Dimensions, Numbers, Range, Series
from sessions.views.explorer import RANGES, step_words

BARS = 96
ROWS = 20
DEFAULT = "24h"
LONGEST = timedelta(days=10 * 366)
#: a range with fewer rounding units than this cannot be compared with the previous one: both would share units
_COMPARED = 10
_LENGTHS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_GROUPS = {"server": RollupBy.SERVER, "tool": RollupBy.TOOL, "caller": RollupBy.CALLER}
_WORDS = {"server": "Servers", "tool": "Tools, prompts and resources", "caller": "Users"}


@dataclass(frozen=True)
class ChartParameters:
    """`last` is empty for a range with fixed ends."""

    since: datetime
    until: datetime
    last: str
    server: Server | None
    tool: str
    caller: str

    @classmethod
    def of(cls, request: WebRequest) -> "ChartParameters":
        given = request.GET
        now = timezone.now()
        since, until = _moment(given.get("since", "")), _moment(given.get("until", ""))
        last = ""
        if since is None or not since < (until or now) <= since + LONGEST:
            last = given.get("last", DEFAULT)
            last = last if last in dict(RANGES) else DEFAULT
            since, until = now - _LENGTHS[last[-1]] * int(last[:-1]), None
        server = None
        try:
            uid = UUID(given.get("server", ""))
        except ValueError:
            pass
        else:
            server = access.visible_servers(request.user).filter(uid=uid).first()
        tool = given.get("tool", "")[:2_000]
        # There are no roll-ups by both: the one chosen last is the narrower one.
        caller = "" if server or tool else given.get("caller", "")[:150]
        return cls(since, until or now, last, server, tool, caller)

    @property
    def dimensions(self) -> Dimensions:
        return Dimensions(
            server=self.server.uid if self.server else None,
            tool=self.tool or None,
            caller=self.caller or None,
            without_methods=frozenset({COMPLETE}),
        )

    @property
    def span(self) -> Range:
        return Range.of(self.since, self.until)

    @property
    def before(self) -> Range:
        """The preceding range of the same length."""
        return Range.of(self.since - (self.until - self.since), self.since)

    @property
    def ends(self) -> tuple[datetime, datetime | None]:
        """None: up to now, with nothing after it."""
        return self.since, None if self.last else self.until

    @property
    def comparable(self) -> bool:
        least = max(reading.finest(self.before), reading.finest(self.span))
        return least <= 60 or self.span.until - self.span.since >= _COMPARED * least

    @property
    def by(self) -> list[str]:
        """What the current selection can be split by."""
        if self.tool:
            return ["tool"] if self.server is None else []
        if self.server:
            return ["tool"]
        return [] if self.caller else list(_GROUPS)

    def conditions(self, *more: tuple[str, str]) -> str:
        """Without the range, in the explorer's language."""
        given = [("server", self.server.slug if self.server else ""), ("tool", self.tool), ("user", self.caller), *more]
        terms = [Term(field, (Value(value),)).text_form() for field, value in given if value]
        return " ".join(["in:calls", *terms])

    def query(self, *more: tuple[str, str]) -> str:
        return f"{self._range()} {self.conditions(*more)}"

    def _range(self) -> str:
        return f"last:{self.last}" if self.last else between(self.since, self.until)


def _moment(text: str) -> datetime | None:
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    if found is None:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=timezone.get_current_timezone())
    return found if EARLIEST + LONGEST < found < LATEST else None  # the time before is shown too


def between(since: datetime, until: datetime) -> str:
    return " ".join(
        f"{name}:{moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        for name, moment in (("since", since), ("until", until))
    )


@require_safe
def page(request: WebRequest) -> HttpResponse:
    access.require(request.user, "view")
    asked = ChartParameters.of(request)
    span, step = asked.span, reading.step_for(asked.span, BARS)
    series = reading.series(request.user, asked.dimensions, span, step)
    split = request.GET.get("by", "")
    split = split if split in asked.by else next(iter(asked.by), "")
    groups = _groups(request, asked, split) if split else []
    total = reading.total(series.points)
    before = reading.series(request.user, asked.dimensions, asked.before, step) if asked.comparable else None
    rounded = reading.rounding(span, *asked.ends)
    context = {
        "nav": "explorer",
        "asked": asked,
        "ranges": [
            {"last": last, "words": words, "chosen": asked.last == last} for last, words in RANGES if last != "15m"
        ],
        "range_words": dict(RANGES).get(asked.last, ""),
        "ignored_filters": ignored(request.GET, {"server": asked.server, "tool": asked.tool or asked.server}),
        "total": total,
        "changes": _changes(total, reading.total(before.points)) if before is not None else {},
        "behind": series.behind,
        "rounded": step_words(rounded) if rounded else "",
        "step_words": step_words(step),
        "chart_json": json.dumps(_chart(asked, series)),
        "points": _points(asked, series),
        "split": split,
        "splits": [(name, _WORDS[name]) for name in asked.by],
        "groups": groups,
        "most": max((group["numbers"].calls for group in groups), default=1),
        "explorer": explorer_link(asked.query()),
        "errors": explorer_link(f"{asked.query()} {FAILED_CALLS}"),
    }
    return render(request, "explorer/charts.html", context)


def _changes(now: Numbers, before: Numbers) -> dict[str, str]:
    """Changes in words, compared with the previous range; empty if that had no calls."""
    if not before.calls:
        return {}
    found = {"calls": _percent(now.calls, before.calls)}
    for name in ("p50", "p95", "p99"):
        one, other = getattr(now, name), getattr(before, name)
        if one is not None and other:
            found[name] = _percent(one, other)
    return found


def _percent(now: float, before: float) -> str:
    change = round(100 * (now - before) / before)
    return "unchanged" if not change else f"{change:+,}%".replace("-", "−")


def explorer_link(query: str) -> str:
    return f"{_explorer()}?{urlencode({'q': query})}"


@lru_cache(1)
def _explorer() -> str:
    return reverse("explorer:page")  # a page has hundreds of these links


def _groups(request: WebRequest, asked: ChartParameters, split: str) -> list[dict[str, Any]]:
    found = reading.ranking(request.user, asked.dimensions, _GROUPS[split], asked.span, ROWS).rows
    uids = {cell.server_uid for cell, _ in found if cell.server_uid}
    servers = {server.uid: server for server in access.visible_servers(request.user).filter(uid__in=uids)}
    groups = []
    for cell, numbers in found:
        server = servers.get(cell.server_uid) if cell.server_uid else None
        name = server.name if server else cell.server_name
        conditions = [("server", server.slug if server else name)] if name and not asked.server else []
        within = server or asked.server
        narrowed: dict[str, str] = {"server": str(within.uid)} if within else {}
        words, detail = (name, "") if split == "server" else (cell.user_name, "")
        if split == "tool":
            words, detail = cell.target, "" if asked.server else name
            conditions.append(("tool", cell.target))
            narrowed["tool"] = cell.target
        elif split == "caller":
            conditions, narrowed = [("user", cell.user_name)], {"caller": cell.user_name}
        groups.append(
            {
                "words": words or "unknown",
                "detail": detail,
                "numbers": numbers,
                "narrow": narrowed,
                "explorer": explorer_link(asked.query(*conditions)),
                "errors": explorer_link(f"{asked.query(*conditions)} {FAILED_CALLS}"),
            }
        )
    return groups


# --- charts ------------------------------------------------------------------------------------------------------------
def _chart(asked: ChartParameters, series: Series) -> dict[str, Any]:
    others = [point.calls - point.errors - _ok(point) for point in series.points]
    return {
        "start": series.start.timestamp(),
        "step": series.step,
        "since": asked.span.since,
        "until": None if asked.last else asked.span.until,
        "series": [
            {"name": "ok", "label": "OK", "tone": "ok", "counts": [_ok(point) for point in series.points]},
            {"name": "other", "label": "Cancelled or running", "tone": "warn", "counts": others},
            {"name": "error", "label": "Failed", "tone": "bad", "counts": [point.errors for point in series.points]},
        ],
        "lines": [
            {"name": name, "label": name, "values": [getattr(point, name) for point in series.points]}
            for name in ("p50", "p95", "p99")
        ],
        "rest": asked.conditions(),
    }


def _ok(point: Numbers) -> int:
    return sum(point.states.get(state, 0) for state in SUCCEEDED)


def _points(asked: ChartParameters, series: Series) -> list[dict[str, Any]]:
    step = timedelta(seconds=series.step)
    since, until = asked.ends
    found = []
    for place, point in enumerate(series.points):
        start = series.start + step * place
        if point.calls:
            counted = between(max(start, since), min(start + step, until or start + step))
            link = explorer_link(f"{counted} {asked.conditions()}")
            found.append({"at": start, "numbers": point, "explorer": link})
    return found
