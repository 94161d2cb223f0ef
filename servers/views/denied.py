"""The 403 response. A refusal because of a missing permission is recorded in the audit log first."""

from django.http import HttpRequest, HttpResponse
from django.views import defaults

from servers.access import Denied
from servers.audit.record import Actor
from servers.permissions import record_denial


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403 of the URLconf. A refusal that its verb already recorded is not recorded again."""
    if isinstance(exception, Denied) and not exception.recorded:
        record_denial(Actor.of(request), exception, method=request.method, path=request.path)
    return defaults.permission_denied(request, exception)
