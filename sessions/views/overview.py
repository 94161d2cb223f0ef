"""First what needs attention, then the servers' activity: calls, errors and latency over time, each linked to its
calls."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.kit.filters import ignored
from servers.kit.visible import visible_text
from sessions.enums import CallState
from sessions.inbox import card
from sessions.inbox.tags import inbox_count
from sessions.overview import activity as activities
from sessions.overview import numbers as reading
from sessions.overview import server_list
from sessions.overview.activity import FAILED_CALLS, Activity, ServerLine
from sessions.statistics.figures import Numbers
from sessions.views.charts import between, explorer_link
from sessions.views.explorer import step_words

#: range in the URL -> (length, label, seconds per bar). Longer ones are on the charts page.
RANGES = {
    "1h": (timedelta(hours=1), "last hour", 60),
    "24h": (timedelta(hours=24), "last 24 hours", 3_600),
}
DEFAULT = "24h"


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("last", "")
    last = asked if asked in RANGES else DEFAULT
    length, words, step = RANGES[last]
    servers = access.visible_servers(request.user)
    mark, servers_mark = reading.mark(), server_list.mark()  # read before what they cover
    activity = activities.activity(request.user, servers, length, step)
    unknown = activity.total.states.get(CallState.OUTCOME_UNKNOWN.value, 0)
    waiting = inbox_count(request.user)
    links = Links(f"last:{last}")
    context = {
        "nav": "overview",
        "mark": mark,
        "servers_mark": servers_mark,
        "last": last,
        "range_words": words,
        "ranges": [(name, words) for name, (_, words, _) in RANGES.items()],
        "ignored_filters": ignored(request.GET, {"last": asked == last}),
        "numbers": reading.numbers(request.user, servers),
        "total": activity.total,
        "running": reading.running_calls(request.user, servers),
        "behind": activity.series.behind,
        "lines": [line_context(line, links) for line in activity.lines],
        "drawn": [line_context(line, links) for line in activity.drawn],
        "others": activity.total.calls > sum(line.numbers.calls for line in activity.drawn),
        "charts": charts(activity),
        "points": points(activity),
        "step_words": step_words(step),
        "links": links,
        "calls": reading.latest_calls(request.user, servers),
        "attention": reading.attention(request.user, servers),
        "alarming": [line_context(line, links) for line in activity.lines if line.alarming],
        "unknown": unknown,
        "unknown_link": links.to("outcome:unknown"),
        "waiting": waiting if card.may_answer(request.user) else 0,
        "inbox_count": waiting,  # for the side bar
        "permissions": access.permissions(request.user),
    }
    return render(request, "overview/overview.html", context)


@dataclass(frozen=True)
class Links:
    """Links to the explorer, with the page's time range."""

    range: str

    def to(self, *conditions: str) -> str:
        return explorer_link(" ".join([self.range, "in:calls", *conditions]))

    @property
    def calls(self) -> str:
        return self.to()

    @property
    def failed(self) -> str:
        return self.to(FAILED_CALLS)


def line_context(line: ServerLine, links: Links) -> dict[str, Any]:
    server = f"server:{line.server.slug}"
    return {
        "line": line,
        "server": line.server,
        "mcp_session": line.mcp_session,
        "numbers": line.numbers,
        "colour": line.colour,
        "calls_link": links.to(server),
        "failed_link": links.to(server, FAILED_CALLS),
    }


# --- charts ------------------------------------------------------------------------------------------------------------
def charts(activity: Activity) -> dict[str, str]:
    """The data of each chart as JSON; see static/js/time-chart.js. Times and links are made in the browser."""
    series = activity.series
    base = {"start": series.start.timestamp(), "step": series.step, "since": int(activity.since.timestamp())}
    drawn = [
        (f"s{line.colour}", visible_text(line.server.name), series.servers[line.server.uid]) for line in activity.drawn
    ]
    lines = [("all", "All servers", series.total), *drawn]
    return {
        "calls": json.dumps(base | {"series": _stacked(drawn, series.total, _calls), "rest": "in:calls"}),
        "errors": json.dumps(
            base | {"series": _stacked(drawn, series.total, _errors), "rest": f"in:calls {FAILED_CALLS}"}
        ),
        "latency": json.dumps(
            base
            | {
                "lines": [
                    {"name": name, "label": label, "values": [_rounded(one.p95) for one in points]}
                    for name, label, points in lines
                ],
                "rest": "in:calls",
            }
        ),
    }


def _calls(numbers: Numbers) -> int:
    return numbers.calls


def _errors(numbers: Numbers) -> int:
    return numbers.errors


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 1)


def _stacked(
    drawn: list[tuple[str, str, list[Numbers]]], total: list[Numbers], count: Callable[[Numbers], int]
) -> list[dict[str, Any]]:
    """One series for each server that has something to show, and one for all others combined."""
    found = [
        {"name": name, "label": label, "counts": [count(point) for point in points]} for name, label, points in drawn
    ]
    others = [
        max(0, count(together) - sum(count(points[place]) for _, _, points in drawn))
        for place, together in enumerate(total)
    ]
    return [*found, {"name": "rest", "label": "Other servers", "counts": others}]


def points(activity: Activity) -> list[dict[str, Any]]:
    """The same as a table, without the empty bars."""
    series = activity.series
    step = timedelta(seconds=series.step)
    found = []
    for place, numbers in enumerate(series.total):
        start = series.start + step * place
        if numbers.calls:
            links = Links(between(max(start, activity.since), start + step))
            found.append({"at": start, "numbers": numbers, "calls_link": links.calls, "failed_link": links.failed})
    return found
