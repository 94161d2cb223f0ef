"""The table of a long result, page by page, and as CSV. Each request parses the text again: result_files keeps the
data of displayed results, and rows would take many times the memory of the text."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from servers.kit.json_table import PAGE
from servers.kit.long_table import ROWS, LongTable, long_table
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.calls import result_files
from sessions.models import Call
from sessions.views.call_answers import as_file, result_object, result_payload
from sessions.views.visible_calls import visible_call

#: One request at a time per process, so that many readers of large results do not add up to too much memory.
_one_at_a_time = Lock()


@require_safe
def page(request: WebRequest, uid: UUID, part: str) -> HttpResponse:
    """`?from=`: the first row. `?sort=`: the number of a column, descending with `&order=desc`. The response to the
    first request, which has neither, also includes the head of the table."""
    call = visible_call(request, uid)
    with _table(request, call, part) as table:
        if table is None:
            return HttpResponse('<p class="muted m0">No table: this JSON has no list of similar objects.</p>')
        rows, start = len(table.starts), whole_number(request.GET.get("from", "")) or 0
        start = min(start, rows - 1) // PAGE * PAGE
        column, descending = _sorting(request, table)
        numbers = range(rows) if column is None else table.order(column, descending=descending)
        context = {
            "call": call,
            "part": part,
            "table": table,
            "html": mark_safe(table.page(numbers, start)),  # noqa: S308  # escapes all text
            "first": start + 1,
            "last": min(start + PAGE, rows),
            "before": start - PAGE if start else None,
            "next": start + PAGE if start + PAGE < rows else None,
            "column": column,
            "descending": descending,
            "sorting": "" if column is None else f"&sort={column}{'&order=desc' if descending else ''}",
            "most": ROWS,
        }
    started = {"from", "sort"} & request.GET.keys()
    return render(request, "calls/_long_rows.html" if started else "calls/_long_table.html", context)


@require_safe
def csv(request: WebRequest, uid: UUID, part: str) -> HttpResponse:
    """All rows, sorted as in `page`. `?hidden=`, repeatable: the number of a column to leave out."""
    call = visible_call(request, uid)
    with _table(request, call, part) as table:
        if table is None:
            raise Http404("This content has no table.")
        column, descending = _sorting(request, table)
        numbers = range(len(table.starts)) if column is None else table.order(column, descending=descending)
        hidden = [number for word in request.GET.getlist("hidden") if (number := whole_number(word)) is not None]
        text = table.csv(numbers, hidden)
    return as_file(text.encode("utf-8", "surrogatepass"), "text/csv; charset=utf-8", f"call-{call.pk}-{part}.csv")


@contextmanager
def _table(request: WebRequest, call: Call, part: str) -> Iterator[LongTable | None]:
    with _one_at_a_time:
        yield long_table(_text(request, call, part))


def _text(request: WebRequest, call: Call, part: str) -> str:
    """`part`: the position of a content, or `structured`."""
    if part == "structured":
        value = result_object(request, call)
        return json.dumps(value["structuredContent"], ensure_ascii=False) if "structuredContent" in value else ""
    items = result_files.recent.of(result_payload(request, call), call.method) or []
    position = whole_number(part)
    text = result_files.text_of(items[position]) if position is not None and position < len(items) else None
    if text is None:
        raise Http404("This result has no such text.")
    return text


def _sorting(request: WebRequest, table: LongTable) -> tuple[int | None, bool]:
    column = whole_number(request.GET.get("sort", ""))
    known = column is not None and column < len(table.columns)
    return (column if known else None), request.GET.get("order") == "desc"
