"""The explorer: one list of calls, audit events, log lines and recorded messages. The URL contains the query, the
range, the columns and the open row."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.accounts import own
from servers.audit.record import Actor
from servers.audit.verify import verify
from servers.enums import AuditAction
from servers.jobs import board
from servers.kit.visible import visible_text
from servers.kit.words import format_count
from servers.models import AuditEvent
from servers.numbers import whole_number
from servers.requests import WebRequest, return_to
from servers.views.audit import shown_event
from sessions.calls import visibility
from sessions.calls.operations import texts_of
from sessions.calls.payload_readings import record_reading
from sessions.explorer import columns, language, saved_views, search, statistics, streams, timeline
from sessions.explorer.language import Query, QueryError
from sessions.explorer.rows import Histogram, Row
from sessions.models import Call
from sessions.views.call_answers import readable_arguments
from sessions.views.visible_calls import visible_call

#: the query of a URL without one
DEFAULT = "last:24h in:calls,events"
RANGES = (
    ("15m", "Last 15 minutes"),
    ("1h", "Last hour"),
    ("6h", "Last 6 hours"),
    ("24h", "Last 24 hours"),
    ("7d", "Last 7 days"),
    ("30d", "Last 30 days"),
    ("90d", "Last 90 days"),
)
_RANGE_FIELDS = ("last", "since", "until")
#: fields that only the row of a call has, not its events
_OF_ROWS = ("duration", "size", "session", language.FREE_TEXT)
_NEIGHBOURS = 3
_VERIFIED = 10


@dataclass(frozen=True)
class SearchParameters:
    """What the address asks for. `query` is None if the text cannot be read; `error` says where."""

    text: str
    query: Query | None
    error: QueryError | None
    zone: str
    columns: list[str]

    @classmethod
    def of(cls, request: WebRequest) -> "SearchParameters":
        if not access.may(request.user, "view") and not access.may(request.user, "view_auditevent"):
            access.require(request.user, "view")
        text = request.GET.get("q", DEFAULT).strip()
        zone = _zone(request.GET.get("tz") or _own_zone(request.user))
        shown = columns.chosen(request.GET.get("cols", "").split(","))
        try:
            query = language.parse(text, timezone.now().astimezone(zone))
        except QueryError as problem:
            return cls(text, None, problem, zone.key, shown)
        return cls(text, query, None, zone.key, shown)

    @property
    def ranged(self) -> str:
        """The text without its range."""
        return self.query.without(*_RANGE_FIELDS) if self.query else self.text

    @property
    def exported(self) -> str:
        """The text for an export, which is not read in this zone: every range but `last:` in absolute times."""
        query = self.query
        if query is None:
            return self.text
        parts = [f"last:{query.last}"] if query.last else [f"since:{_iso(query.since)}"] if query.since else []
        if query.until:
            parts.append(f"until:{_iso(query.until)}")
        return " ".join([*parts, self.ranged]).strip()

    def between(self, since: datetime, until: datetime) -> str:
        return f"since:{_iso(since)} until:{_iso(until)} {self.ranged}".strip()


def _own_zone(user: Any) -> str:
    """For a URL without `tz`, such as a typed one: the time zone in which this account's pages show times. Empty if
    that is the browser's, which only the browser knows."""
    chosen = own.preferences(user)
    return "" if chosen.utc else chosen.time_zone


def _zone(name: str) -> ZoneInfo:
    """UTC if there is no such zone."""
    try:
        return ZoneInfo(name or "UTC")
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return ZoneInfo("UTC")


def _iso(moment: datetime) -> str:
    whole = moment.astimezone(UTC)
    return whole.isoformat(timespec="seconds" if not whole.microsecond else "milliseconds").replace("+00:00", "Z")


# --- the page ----------------------------------------------------------------------------------------------------------
@require_safe
def page(request: WebRequest) -> HttpResponse:
    asked = SearchParameters.of(request)
    cursor = request.GET.get("cursor", "")
    context = _frame(request, asked)
    if asked.query is None:
        return render(request, "explorer/page.html", context, status=422)
    found = search.page(request.user, asked.query, cursor)
    context |= _list(request, asked, found, cursor) | {"selected": _selected(request)}
    return render(request, "explorer/page.html", context)


@require_safe
def rows(request: WebRequest) -> HttpResponse:
    """The list alone, for a page that follows it live."""
    asked = SearchParameters.of(request)
    if asked.query is None:
        raise Http404("This query cannot be read.")
    found = search.page(request.user, asked.query)
    return render(request, "explorer/_list.html", _list(request, asked, found, ""))


@require_safe
def newer(request: WebRequest) -> JsonResponse:
    asked = SearchParameters.of(request)
    if asked.query is None:
        raise Http404("This query cannot be read.")
    count = search.newer_count(request.user, asked.query, request.GET.get("newest", ""))
    return JsonResponse({"count": count, "more": count >= search.NEWER})


@require_safe
def histogram(request: WebRequest) -> HttpResponse:
    asked = SearchParameters.of(request)
    if asked.query is None:
        raise Http404("This query cannot be read.")
    counted = statistics.histogram(request.user, asked.query)
    return render(request, "explorer/_histogram.html", _chart(asked, counted))


@require_safe
def facets(request: WebRequest) -> HttpResponse:
    asked = SearchParameters.of(request)
    if asked.query is None:
        raise Http404("This query cannot be read.")
    query = asked.query
    found = [
        {
            "label": facet.label,
            "field": facet.field,
            "partial": facet.partial,
            "behind": facet.behind,
            "values": [
                {
                    "words": words,
                    "count": f"{count:,}",
                    "with": query.having(facet.field, value),
                    "without": query.having(facet.field, value, negated=True),
                    "chosen": _has(query, facet.field, value),
                    "cleared": query.without(facet.field),
                }
                for value, words, count in facet.values
            ],
        }
        for facet in statistics.facets(request.user, query)
        if facet.values
    ]
    context = {"facets": found, **{name: any(one[name] for one in found) for name in ("partial", "behind")}}
    return render(request, "explorer/_facets.html", context)


@require_safe
def complete(request: WebRequest) -> JsonResponse:
    SearchParameters.of(request)
    text = request.GET.get("q", "")[: language.TEXT_CHARS]
    at = whole_number(request.GET.get("at", ""))
    found = language.complete(request.user, text, len(text) if at is None else min(at, len(text)))
    return JsonResponse(
        {
            "completions": [
                {
                    "insert": one.insert,
                    "shown": visible_text(one.insert),
                    "label": visible_text(one.label),
                    "detail": visible_text(one.detail),
                    "start": one.start,
                }
                for one in found
            ]
        }
    )


def _frame(request: WebRequest, asked: SearchParameters) -> dict[str, Any]:
    """Everything around the list."""
    query = asked.query
    return {
        "nav": "explorer",
        "asked": asked,
        "marked": _marked(asked),
        "fields": language.FIELDS.values(),
        "conditions": _conditions(query) if query else [],
        "streams": _streams(query) if query else [],
        "ranges": [
            {"words": words, "q": f"last:{last} {asked.ranged}".strip(), "chosen": bool(query and query.last == last)}
            for last, words in RANGES
        ]
        + [{"words": "Any time", "q": asked.ranged, "chosen": bool(query and not (query.since or query.until))}],
        "range_words": dict(RANGES).get(query.last, f"Last {query.last}") if query and query.last else "",
        "all_columns": columns.COLUMNS.items(),
        "always": columns.ALWAYS,
        "columns_text": columns.text_form(asked.columns),
        "ready_views": saved_views.READY,
        "own_views": saved_views.own(request.user),
        "shared_views": saved_views.shared_by_others(request.user),
        "verification": board.verification() if access.may(request.user, "verify_chain") else None,
        "own_requests": _own_requests(query) if query else None,
    }


def _list(request: WebRequest, asked: SearchParameters, found: search.ResultPage, cursor: str) -> dict[str, Any]:
    query = asked.query
    return {
        "asked": asked,
        "page": found,
        "columns": [(name, columns.COLUMNS[name]) for name in asked.columns],
        "first": not cursor,
        "live": not cursor and query is not None and query.until is None,
        "polled": query is not None and _hints_miss(request, query),
        "sel": request.GET.get("sel", ""),
        "slowest": max((row.duration_ms or 0 for row in found.rows), default=0),
        "wider": _wider(asked) if not found.rows else [],
        "unindexed": format_count(found.unindexed.events, "event") if found.unindexed else "",
        "hidden_streams": [streams.STREAMS[name].label.lower() for name in found.hidden],
        "removed_steps": _steps(request, query) if found.removed and query is not None else "",
    }


def _hints_miss(request: WebRequest, query: Query) -> bool:
    """Whether the hints of the overview, which come with audit events, miss some of the rows, or do not reach this
    reader."""
    unaudited = any(isinstance(stream, streams.OfSessions) for stream in streams.chosen(query))
    return unaudited or not access.may(request.user, "view")


def _steps(request: WebRequest, query: Query) -> str:
    """The query for events of calls that were removed, one per call. Empty if it would find none."""
    if not access.may(request.user, "view_auditevent") or any(query.of(field) for field in _OF_ROWS):
        return ""
    ended = query.of("outcome") or query.of("status")
    step = AuditAction.CALL_FINISH if ended else AuditAction.CALL_REQUEST
    return f"{query.without('in', 'kind')} in:events kind:{step}".strip()


def _marked(asked: SearchParameters) -> dict[str, str]:
    """The text before, at and after the place of the error."""
    if asked.error is None:
        return {}
    start, end = asked.error.start, max(asked.error.end, asked.error.start)
    return {"before": asked.text[:start], "at": asked.text[start:end] or " ", "after": asked.text[end:]}


def _conditions(query: Query) -> list[dict[str, str]]:
    """Each condition with the text of the query without it."""
    terms = [*query.placed, *query.terms]
    shown = [term for term in terms if term.field not in (*_RANGE_FIELDS, "in")]
    return [
        {"words": term.text_form(), "without": " ".join(other.text_form() for other in terms if other is not term)}
        for term in shown
    ]


def _streams(query: Query) -> list[dict[str, Any]]:
    rest = query.without("in")
    choices = {"calls,events": "Calls and events"} | {name: stream.label for name, stream in streams.STREAMS.items()}
    found = [
        {"label": label, "q": f"{rest} in:{names}".strip(), "chosen": query.streams == set(names.split(","))}
        for names, label in choices.items()
    ]
    return [*found, {"label": "All", "q": rest, "chosen": not query.streams}]


def _own_requests(query: Query) -> dict[str, Any]:
    """mcpadmin's own requests, which are hidden at first."""
    shown = bool(query.of("own"))
    return {"shown": shown, "q": query.without("own") if shown else query.having("own", "show")}


def _wider(asked: SearchParameters) -> list[dict[str, str]]:
    """Longer ranges than the one in which nothing was found."""
    query = asked.query
    if query is None or query.until is not None or query.since is None:
        return []
    reach = timezone.now() - query.since
    longer = [(last, words) for last, words in RANGES if _LENGTH[last[-1]] * int(last[:-1]) > reach]
    found = [{"words": words, "q": f"last:{last} {asked.ranged}".strip()} for last, words in longer[:2]]
    return [*found, {"words": "Any time", "q": asked.ranged}]


_LENGTH = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def _has(query: Query, field: str, value: str) -> bool:
    return any(
        not term.negated and any(one.text.lower() == value.lower() for one in term.values) for term in query.of(field)
    )


def _chart(asked: SearchParameters, counted: Histogram) -> dict[str, Any]:
    """For the chart, and for the table with the same numbers."""
    step = timedelta(seconds=counted.step_seconds)
    since, until = (asked.query.since, asked.query.until) if asked.query else (None, None)
    names = [name for name in streams.OUTCOMES if name in counted.series]
    starts = [counted.start + step * place for place in range(len(next(iter(counted.series.values()), [])))]
    bars: list[dict[str, Any]] = [
        {
            "at": start,
            "counts": [counted.series[name][place] for name in names],
            "figures": [
                (streams.OUTCOMES[name][0], counted.series[name][place])
                for name in names
                if counted.series[name][place]
            ],
            "total": sum(counted.series[name][place] for name in names),
            "q": asked.between(max(start, since or start), min(start + step, until or start + step)),
        }
        for place, start in enumerate(starts)
    ]
    total = sum(bar["total"] for bar in bars)
    data = {
        "start": counted.start.timestamp(),
        "step": counted.step_seconds,
        "since": since.timestamp() if since else None,
        "until": until.timestamp() if until else None,
        "series": [
            {"name": name, "label": streams.OUTCOMES[name][0], "tone": streams.OUTCOMES[name][1], "counts": counts}
            for name, counts in ((name, counted.series[name]) for name in names)
        ],
        "rest": asked.ranged,
    }
    return {
        "chart_json": json.dumps(data),
        "outcomes": [(name, *streams.OUTCOMES[name]) for name in names],
        "bars": [bar for bar in bars if bar["total"]],
        "step_words": step_words(counted.step_seconds),
        "total": total,
        "total_words": f"{total:,}",
        "partial": counted.partial,
        "behind": counted.behind,
        "removed": counted.removed,
        "rounded": step_words(counted.rounded) if counted.rounded else "",
        "asked": asked,
    }


def step_words(seconds: float) -> str:
    seconds = round(seconds) if seconds >= 1 else seconds
    for length, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= length and not seconds % length:
            count = int(seconds // length)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds:.0f} seconds" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


# --- one row -----------------------------------------------------------------------------------------------------------
@require_safe
def row(request: WebRequest, stream: str, key: int) -> HttpResponse:
    """The details beside the list."""
    SearchParameters.of(request)
    found = search.one(request.user, stream, key)
    if found is None:
        raise Http404("This row does not exist, or you don't have access to it.")
    return render(request, "explorer/_drawer.html", {"selected": _shown(request, found)})


def _selected(request: WebRequest) -> dict[str, Any] | None:
    stream, _, number = request.GET.get("sel", "").partition(".")
    key = whole_number(number)
    found = search.one(request.user, stream, key) if key is not None else None
    return _shown(request, found) if found else None


def _shown(request: WebRequest, found: Row) -> dict[str, Any]:
    shown: dict[str, Any] = {"row": found, "link": _permalink(request, found)}
    if found.stream == "calls":
        return shown | _call(request, UUID(found.call_uid))
    if found.stream == "events":
        event = access.audit_events(request.user).get(seq=found.key)
        return shown | {"audited": shown_event(request, event)}
    return shown


def _permalink(request: WebRequest, found: Row) -> str:
    """A link to this row alone, whatever the list shows later."""
    since, until = found.at - timedelta(minutes=5), found.at + timedelta(minutes=5)
    text = f"since:{_iso(since)} until:{_iso(until)} in:{found.stream}"
    address = f"{reverse('explorer:page')}?{urlencode({'q': text, 'sel': found.sel})}"
    return request.build_absolute_uri(address)


def _call(request: WebRequest, uid: UUID) -> dict[str, Any]:
    call = visible_call(request, uid)
    may_read = visibility.may_read(request.user, call)
    if may_read:
        record_reading(Actor.of(request), call, call.arguments, call.result or call.late_result)
    return {
        "call": call,
        "may_read": may_read,
        "arguments": readable_arguments(call) if may_read else None,
        "permissions": access.permissions(request.user),
        "words": texts_of(call.method),
        "timeline": timeline.timeline(request.user, call),
        "neighbours": _neighbours(request, call),
        "proof": _proof(request, call),
    }


def _neighbours(request: WebRequest, call: Call) -> list[dict[str, Any]]:
    """The calls of the same session just before and after, newest first, with the call itself."""
    if call.session_id is None or call.server_id is None:
        return []
    same = Call.objects.filter(visibility.visible_q(request.user), server=call.server_id, session=call.session_id)
    after = list(same.filter(pk__gt=call.pk).order_by("pk")[:_NEIGHBOURS])[::-1]
    before = list(same.filter(pk__lt=call.pk).order_by("-pk")[:_NEIGHBOURS])
    around = [*after, call, *before] if after or before else []
    return [{"call": other, "sel": f"calls.{other.pk}"} for other in around]


def _proof(request: WebRequest, call: Call) -> dict[str, Any] | None:
    """Whether the call's events are linked into the chain as they were written. None without permission to know."""
    if not access.may(request.user, "view_auditevent"):
        return None
    seqs = list(AuditEvent.objects.filter(call_uid=call.uid).order_by("seq").values_list("seq", flat=True)[:_VERIFIED])
    verdicts = [verify(seq, seq) for seq in seqs]
    broken = next((verdict for verdict in verdicts if not verdict.ok), None)
    return {"seqs": seqs, "broken": broken}


# --- saved views -------------------------------------------------------------------------------------------------------
@require_POST
def save_view(request: WebRequest) -> HttpResponse:
    SearchParameters.of(request)
    given = request.POST
    try:
        view = saved_views.save(
            request.user,
            given.get("name", ""),
            given.get("q", ""),
            given.get("cols", ""),
            shared="shared" in given,
        )
    except saved_views.Unsaved as problem:
        messages.error(request, str(problem))
    else:
        words = f"View “{view.name}” saved{' and shared' if view.shared else ''}."
        messages.success(request, words)
    return redirect(return_to(request, reverse("explorer:page")))


@require_http_methods(["GET", "HEAD", "POST"])
def delete_view(request: WebRequest, uid: UUID) -> HttpResponse:
    """GET asks, for a view that others use as well; POST deletes."""
    SearchParameters.of(request)
    view = saved_views.deletable(request.user, uid)
    back = return_to(request, reverse("explorer:page"))
    if request.method != "POST":
        return render(request, "explorer/delete_view.html", {"nav": "explorer", "view": view, "keep": back})
    saved_views.delete(Actor.of(request), view)
    messages.success(request, f"View “{view.name}” deleted.")
    return redirect(back)
