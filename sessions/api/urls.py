"""The versions of the HTTP API. `mount` uses this URLconf, with full paths."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from sessions.api import problems, v1


def nothing_here(request: HttpRequest, rest: str) -> HttpResponse:
    """Tell agents about a misspelled URL, whatever they sent."""
    words = "There is nothing at this address. The OpenAPI document is at /api/v1/openapi.json."
    return problems.answer(problems.Problem(404, "not-found", words))


urlpatterns = [
    path("api/v1/", include((v1.api.urls[0], "api-1"), namespace="api-1")),
    path("api/<path:rest>", nothing_here),
]
