"""The endpoint to which browsers send content security policy reports, and the page that shows them."""

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.accounts import attempts
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.browser_reports import receiving
from servers.enums import AuditAction
from servers.models import BrowserReport
from servers.requests import WebRequest

PERMISSION = "administer"


@csrf_exempt  # browsers send it automatically, without a token; it changes nothing but this list
@login_not_required  # the sign-in page has the policy too
@require_POST
def receive(request: WebRequest) -> HttpResponse:
    """The response is always the same: the sender learns nothing."""
    report = receiving.read(request.body) if len(request.body) <= receiving.MOST_BYTES else None
    if report and attempts.count("browser-report", request.client_ip, receiving.MOST_REPORTS) is None:
        receiving.store(report, request.headers.get("User-Agent", ""))
    return HttpResponse(status=204)


@require_safe
def index(request: WebRequest) -> HttpResponse:
    access.require(request.user, PERMISSION)
    rows = list(BrowserReport.objects.filter(last_at__gte=timezone.now() - receiving.KEPT))
    context = {"nav": "settings", "rows": rows, "full": len(rows) >= receiving.MOST_CAUSES}
    return render(request, "settings/reports.html", context)


@require_POST
def clear(request: WebRequest) -> HttpResponse:
    access.require(request.user, PERMISSION)
    with audited(Actor.of(request)) as trail:
        if count := BrowserReport.objects.all().delete()[0]:
            trail.note(AuditAction.REPORTS_CLEAR, None, "browser reports", {"count": count})
    messages.success(request, "Cleared.")
    return redirect("browser_reports:list")
