"""*Storage*: how much space each kind of data takes, how long it is kept, and a dry run of retention."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.enums import JobKind
from servers.exporting import board as exporting
from servers.jobs import board
from servers.requests import WebRequest
from servers.views.jobs import request_job
from sessions.retention import limits, storage
from sessions.retention.forms import LimitsForm


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: WebRequest) -> HttpResponse:
    """POST changes the limits."""
    access.require(request.user, limits.PERMISSION)
    form = LimitsForm(request.POST if request.method == "POST" else None)
    problem, status = "", 200
    if request.method == "POST" and form.is_valid():
        try:
            changed = limits.change(Actor.of(request), request.user, form.wanted(), request.POST.get("seen", ""))
        except limits.Conflict as conflict:
            problem, status = str(conflict), 409
            form = LimitsForm()
        else:
            if changed:
                messages.success(
                    request,
                    "Saved. The next run applies it, within an hour. Start a dry run to see what would be removed.",
                )
            else:
                messages.info(request, "Nothing changed.")
            return redirect("storage:index")
    fields = {kind: (days, mib) for kind, days, mib in form.pairs()}
    now = storage.storage()
    context = {
        "nav": "storage",
        "mark": board.mark(),
        "storage": now,
        "rows": [(row, *fields[row.kind]) for row in now.rows],
        "failing_schedules": exporting.failing(),
        "form": form,
        "seen": request.POST.get("seen", "") if form.is_bound else limits.mark(),
        "problem": problem,
        "jobs": storage.jobs(),
    }
    return render(request, "storage/index.html", context, status=422 if form.errors else status)


@require_POST
def run(request: WebRequest) -> HttpResponse:
    access.require(request.user, limits.PERMISSION)
    request_job(request, JobKind.RETENTION)
    return redirect("storage:index")


@require_POST
def dry_run(request: WebRequest) -> HttpResponse:
    access.require(request.user, limits.PERMISSION)
    request_job(request, JobKind.RETENTION_DRY_RUN)
    return redirect("storage:index")
