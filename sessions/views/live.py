from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from sessions.domain import tickets


@require_POST
def ticket(request: HttpRequest) -> JsonResponse:
    """What a page shows to its socket: proof that it could send a POST with our CSRF token (security W1)."""
    response = JsonResponse(
        {"ticket": tickets.issue(request.session.session_key or ""), "expires": tickets.LIFETIME_SECONDS}
    )
    response.headers["Cache-Control"] = "no-store"
    return response
