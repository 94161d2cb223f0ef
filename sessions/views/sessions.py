"""*Sessions*: which worker owns which sessions, and which have no owner."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from sessions.connections import worker_board


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view")
    context = {
        "nav": "sessions",
        "mark": worker_board.mark(),  # read before the board, so that changes in between have a different mark
        "board": worker_board.board(request.user),
        "permissions": access.permissions(request.user),
    }
    return render(request, "sessions/index.html", context)
