"""The log of a server."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.kit.filters import ignored
from servers.numbers import whole_number
from sessions.connections import log_page
from sessions.connections.log_page import LogFilter
from sessions.enums import LogSource
from sessions.mcp.core.capabilities import declares
from sessions.overview import server_page
from sessions.views.server_tabs import server_context


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    chosen = LogFilter.of(*(request.GET.get(name, "") for name in ("level", "source", "text")))
    header = server_page.header(server)
    understood = {"level": chosen.level, "source": chosen.source}
    context = server_context(request, header, "logs") | {
        "logs_offered": header.mcp_session is not None and declares(header.mcp_session.server_capabilities, "logging"),
        "page": log_page.log_page(server, chosen, whole_number(request.GET.get("before", ""))),
        "chosen": chosen,
        "levels": log_page.LEVELS,
        "sources": LogSource.choices,
        "ignored_filters": ignored(request.GET, understood),
    }
    return render(request, "catalog/logs.html", context)
