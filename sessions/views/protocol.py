"""The Protocol tab of a server: what crossed the wire of the session that this user's calls use."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from servers import access
from servers.enums import Recording
from servers.kit.filters import ignored
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.enums import WireDirection
from sessions.overview import server_page
from sessions.views.servers import server_context
from sessions.wire import reading, rows
from sessions.wire.reading import WireFilter


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
    readable = reading.may_read(request.user, found)
    context: dict[str, Any] = {"details": reading.details(found), "row": rows.row(found), "readable": readable}
    if request.htmx:
        return render(request, "protocol/_details.html", context | {"server": server})
    context |= server_context(request, server_page.header(server), "protocol")
    return render(request, "protocol/message.html", context)
