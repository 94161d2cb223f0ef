from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from sessions.domain import overview as reading
from sessions.domain import queries, question_card

SERVERS_SHOWN = 12


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    servers = access.visible_servers(request.user)
    context = {
        "nav": "overview",
        "numbers": reading.numbers(request.user, servers),
        "servers": queries.server_rows(request.user, servers, {"show": "active"})[:SERVERS_SHOWN],
        "calls": reading.latest_calls(request.user, servers),
        "attention": reading.attention(request.user, servers),
        "waiting": question_card.open_count(request.user) if question_card.may_answer(request.user) else 0,
        "rights": access.rights(request.user),
    }
    return render(request, "sessions/overview/overview.html", context)
