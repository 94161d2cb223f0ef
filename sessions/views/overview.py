from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from sessions.inbox import card
from sessions.overview import numbers as reading
from sessions.overview import rows

SERVERS_SHOWN = 12


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    servers = access.visible_servers(request.user)
    context = {
        "nav": "overview",
        "mark": reading.mark(),  # read before what it covers
        "numbers": reading.numbers(request.user, servers),
        "servers": rows.server_rows(request.user, servers, {"show": "active"})[:SERVERS_SHOWN],
        "calls": reading.latest_calls(request.user, servers),
        "attention": reading.attention(request.user, servers),
        "waiting": card.open_count(request.user) if card.may_answer(request.user) else 0,
        "rights": access.rights(request.user),
    }
    return render(request, "overview/overview.html", context)
