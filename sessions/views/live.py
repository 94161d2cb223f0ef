from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from sessions.live import tickets


@require_POST
def ticket(request: HttpRequest) -> JsonResponse:
    """Issues a ticket that proves to the socket that the page could send a POST with our CSRF token."""
    response = JsonResponse(
        {"ticket": tickets.issue(request.session.session_key or ""), "expires": tickets.LIFETIME_SECONDS}
    )
    response.headers["Cache-Control"] = "no-store"
    return response
