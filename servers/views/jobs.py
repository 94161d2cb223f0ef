"""Background jobs: those running and their results, and key rotation."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from servers import access, keyring
from servers.audit.record import Actor
from servers.enums import JobKind
from servers.jobs import board, requesting
from servers.jobs.lifecycle import open_job
from servers.keyring import KeySource


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_backgroundjob")
    context = {
        "nav": "jobs",
        "mark": board.mark(),
        "rows": board.rows(),
        "rotation": open_job(JobKind.ROTATION),
        "may_rotate": access.may(request.user, "administer"),
    }
    return render(request, "jobs/index.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def rotate_keys(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "administer")
    if request.method == "POST":
        request_job(request, JobKind.ROTATION)
        return redirect("jobs:list")
    context = {
        "nav": "jobs",
        "source": keyring.source().value,
        "from_file": keyring.source() is KeySource.FILE,
        "values": board.sealed_values(),
        "rotation": open_job(JobKind.ROTATION),
    }
    return render(request, "jobs/rotate_keys.html", context)


def request_job(request: HttpRequest, kind: JobKind) -> None:
    """Request the job. What prevents it from starting at once becomes a message on the next page. Raises Denied."""
    try:
        job = requesting.request(kind, request.user, Actor.of(request))
    except requesting.Busy as busy:
        messages.warning(request, str(busy))
    else:
        job.refresh_from_db()
        if job.detail:
            messages.warning(request, job.detail)
