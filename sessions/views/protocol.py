"""The Protocol tab of a server: what crossed the wire of the session that this user's calls use."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from servers import access
from servers.audit.record import Actor
from servers.enums import Recording
from servers.kit.filters import ignored
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.calls.reading import record_reading
from sessions.enums import WireDirection
from sessions.models import Call
from sessions.overview import server_page
from sessions.views.servers import server_context
from sessions.wire import reading, rows
from sessions.wire.reading import WireDetails, WireFilter


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    chosen = WireFilter.of(*(request.GET.get(name, "") for name in ("show", "direction", "text")))
    page = reading.wire_page(server, chosen, whole_number(request.GET.get("before", "")))
    context = server_context(request, server_page.header(server), "protocol") | {
        "page": page,
        "rows": [rows.row(message) for message in page.messages],
        "chosen": chosen,
        "shows": [(value, words) for value, (words, _) in reading.SHOWS.items()],
        "directions": WireDirection.choices,
        "recording": Recording(server.recording),
        "ignored_filters": ignored(request.GET, {"show": chosen.show, "direction": chosen.direction}),
    }
    return render(request, "protocol/index.html", context)


@require_safe
@vary_on_headers("HX-Request")
def message(request: WebRequest, slug: str, seq: int) -> HttpResponse:
    """One message: a page, or its content for the list."""
    server = access.server_for(request.user, slug)
    found = reading.of_server(server).select_related("identity").filter(seq=seq).first()
    if found is None:
        raise Http404("This message is not recorded any more.")
    details, readable = reading.details(found), reading.may_read(request.user, found)
    if readable:
        _record_reading(Actor.of(request), details)
    context: dict[str, Any] = {"details": details, "row": rows.row(found), "readable": readable}
    if request.htmx:
        return render(request, "protocol/_details.html", context | {"server": server})
    context |= server_context(request, server_page.header(server), "protocol")
    return render(request, "protocol/message.html", context)


def _record_reading(actor: Actor, details: WireDetails) -> None:
    """What a message says of a call is what the call's arguments or result say."""
    for message in filter(None, (details.message, details.pair)):
        if message.call_uid is None or not (message.body or message.sealed):
            continue
        call = Call.objects.filter(uid=message.call_uid).select_related("arguments", "result").first()
        if call is not None:
            record_reading(actor, call, call.arguments if message.direction == WireDirection.SENT else call.result)
