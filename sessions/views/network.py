"""The Network tab of a server: the HTTP requests of the session that this user's calls use or, without HTTP, how the
process or socket was started."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.enums import Recording, TransportKind
from servers.kit.filters import ignored
from servers.numbers import whole_number
from sessions.connections import timeline
from sessions.overview import server_page
from sessions.views.server_tabs import server_context
from sessions.wire import reading, rows
from sessions.wire.reading import ExchangeFilter, ExchangeTraffic


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    chosen = ExchangeFilter.of(*(request.GET.get(name, "") for name in ExchangeFilter.NAMES))
    header = server_page.header(server)
    page = reading.exchange_page(server, header.mcp_session, chosen, whole_number(request.GET.get("before", "")))
    carried = reading.carried_by(server, page)
    without_http = server.transport in (TransportKind.STDIO, TransportKind.WEBSOCKET)
    context = server_context(request, header, "network") | {
        "page": page,
        "rows": [
            rows.network_row(
                message, carried.get((message.connection, message.exchange), ExchangeTraffic()), page.connection
            )
            for message in page.messages
        ],
        "chosen": chosen,
        "kinds": [(value, words) for value, words, _ in reading.EXCHANGE_KINDS],
        "outcomes": [(value, words) for value, words, _ in reading.EXCHANGE_OUTCOMES],
        "open": whole_number(request.GET.get("open", "")) or "",
        "recording": Recording(server.recording),
        "timeline": timeline.lines(header.mcp_session) if without_http else None,
        "timeline_most": timeline.SHOWN,
        "without_http": without_http,
        "ignored_filters": ignored(request.GET, {"kind": chosen.kind, "outcome": chosen.outcome}),
    }
    return render(request, "network/index.html", context)
