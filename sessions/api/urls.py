"""The versions of the HTTP API, mounted at /api/"""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from sessions.api import problems, v1


@csrf_exempt  # an agent that misspelt an address is told so, whatever it sent
@login_not_required
def nothing_here(request: HttpRequest, rest: str) -> HttpResponse:
    words = "There is nothing at this address. The OpenAPI document is at /api/v1/openapi.json."
    return problems.answer(problems.Problem(404, "not-found", words))


urlpatterns = [
    path("v1/", include((v1.patterns(), "api-1"), namespace="api-1")),
    path("<path:rest>", nothing_here),
]
