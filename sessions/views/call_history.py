"""The history of a server: its calls."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.kit.filters import ignored
from servers.numbers import whole_number
from sessions.overview import server_page
from sessions.views.server_tabs import server_context


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    context = server_context(request, server_page.header(server), "history")
    method = request.GET.get("method", "")
    context |= {"page": server_page.history(request.user, server, whole_number(request.GET.get("before", "")), method)}
    known = method if method in dict(server_page.HISTORY_METHODS) else ""
    context |= {"method": known, "methods": server_page.HISTORY_METHODS}
    context |= {"ignored_filters": ignored(request.GET, {"method": known})}
    return render(request, "catalog/history.html", context)
