"""Exports and forwarding: their common page, a new export and its file, and schedules. Sinks have their own module."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.enums import ExportFormat, ExportTarget
from servers.exporting import board, files, requesting, schedules, selection
from servers.exporting.forms import ExportForm, ScheduleForm
from servers.forwarding import board as forwarding
from servers.models import ExportSchedule

_PIECE = 256 * 1024
_TYPES = {ExportFormat.CSV: "text/csv; charset=utf-8", ExportFormat.JSONL: "application/x-ndjson"}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    administers = access.may(request.user, "administer")
    context = {
        "nav": "exports",
        "mark": board.mark(),
        "exports": board.rows(request.user),
        "most": board.SHOWN,
        "administers": administers,
        "schedules": board.schedule_rows() if administers else [],
        "sinks": forwarding.rows() if administers else [],
        "directories": schedules.directories(),
    }
    return render(request, "exports/index.html", context)


# --- one export ---------------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """`?query=` fills in the field, as in the explorer's link."""
    access.require(request.user, "view_auditevent")
    data = request.POST if request.method == "POST" else None
    form = ExportForm(request.user, data, query=request.GET.get("query", ""))
    if request.method == "POST" and form.is_valid():
        try:
            requesting.request(
                request.user,
                Actor.of(request),
                ExportFormat(form.cleaned_data["format"]),
                query=form.cleaned_data["query"],
                payloads=form.cleaned_data.get("payloads", False),
            )
        except selection.QueryNotUnderstood as problem:
            form.add_error("query", str(problem))
        except requesting.TooMany as problem:
            form.add_error(None, str(problem))
        else:
            return redirect("exports:list")
    context = {"nav": "exports", "form": form, "fields": selection.fields()}
    return render(request, "exports/add.html", context, status=422 if form.errors else 200)


@require_safe
def download(request: HttpRequest, uid: UUID) -> HttpResponse | StreamingHttpResponse:
    access.require(request.user, "view_auditevent")
    export = requesting.downloadable(request.user, Actor.of(request), uid)
    if export is None:
        raise Http404("This export does not exist, has expired, or belongs to someone else.")
    try:
        file = files.path_of(export).open("rb")
    except OSError:
        messages.error(request, f"The file of this export is not on this machine. A worker wrote it on {export.host}.")
        return redirect("exports:list")
    found = os.fstat(file.fileno()).st_size
    if request.method == "GET":  # HEAD downloads nothing
        requesting.note_download(Actor.of(request), export, found)
    if found != export.size:
        file.close()
        words = f"it has {found:,} bytes instead of {export.size:,}"
        messages.error(request, f"The file of this export is damaged: {words}. Delete it and export again.")
        return redirect("exports:list")
    response = StreamingHttpResponse(_pieces(file), content_type=_TYPES[ExportFormat(export.format)])
    response.headers["Content-Length"] = str(export.size)
    response.headers["Content-Disposition"] = f'attachment; filename="{files.name_of(export)}"'
    response.headers["Cache-Control"] = "private, no-store"
    return response


async def _pieces(file: Any) -> AsyncIterator[bytes]:
    """Asynchronous: with a synchronous iterator, ASGI would read everything before sending anything."""
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


@require_POST
def delete(request: HttpRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    done = requesting.delete(request.user, Actor.of(request), uid)
    if not done:
        raise Http404("This export does not exist, or belongs to someone else.")
    messages.success(request, f"Export {done}.")
    return redirect("exports:list")


# --- schedules ------------------------------------------------------------------------------------------------------------
def _schedule(request: HttpRequest, uid: UUID) -> ExportSchedule:
    access.require(request.user, "administer")
    found = ExportSchedule.objects.filter(uid=uid).select_related("owner").first()
    if found is None:
        raise Http404("This schedule does not exist.")
    return found


@sensitive_post_parameters("secret_key")
@require_http_methods(["GET", "HEAD", "POST"])
def add_schedule(request: HttpRequest) -> HttpResponse:
    """`?target=` selects the fields."""
    access.require(request.user, "administer")
    usual = ExportTarget.DIRECTORY if schedules.directories() else ExportTarget.S3
    wanted = request.GET.get("target", "")
    target = ExportTarget(wanted) if wanted in ExportTarget.values else usual
    form = ScheduleForm(target, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            made = schedules.create(request.user, Actor.of(request), form.settings())
        except (schedules.NameTaken, schedules.SecretNeeded) as problem:
            _refuse(form, problem)
        else:
            messages.success(request, f"{made.name} added. The first export contains the whole log.")
            return redirect("exports:schedule", made.uid)
    context = {
        "nav": "exports",
        "form": form,
        "target": target,
        "targets": list(ExportTarget),
        "directories": schedules.directories(),
    }
    return render(request, "exports/add_schedule.html", context, status=422 if form.errors else 200)


@sensitive_post_parameters("secret_key")
@require_http_methods(["GET", "HEAD", "POST"])
def schedule(request: HttpRequest, uid: UUID) -> HttpResponse:
    found = _schedule(request, uid)
    form = ScheduleForm(ExportTarget(found.target), request.POST if request.method == "POST" else None, schedule=found)
    if request.method == "POST" and form.is_valid():
        try:
            schedules.change(request.user, Actor.of(request), found, form.settings())
        except (schedules.NameTaken, schedules.SecretNeeded) as problem:
            _refuse(form, problem)
        else:
            messages.success(request, "Saved.")
            return redirect("exports:schedule", uid)
    shown = ExportSchedule.objects.get(uid=uid)  # not what was entered
    context = {
        "nav": "exports",
        "mark": board.mark(),
        "schedule": shown,
        "where": schedules.where(shown),
        "cursor": shown.cursor,
        "runs": board.runs(shown),
        "most": board.SHOWN,
        "failing_since": board.failing_since(shown),
        "form": form,
    }
    return render(request, "exports/schedule.html", context, status=422 if form.errors else 200)


@require_POST
def run_schedule(request: HttpRequest, uid: UUID) -> HttpResponse:
    try:
        if schedules.run_now(request.user, Actor.of(request), _schedule(request, uid)) is None:
            messages.warning(request, "An export is already waiting or running. Try again when it has finished.")
    except schedules.OnHold as problem:
        messages.warning(request, str(problem))
    return redirect("exports:schedule", uid)


@require_POST
def pause_schedule(request: HttpRequest, uid: UUID) -> HttpResponse:
    schedules.pause(request.user, Actor.of(request), _schedule(request, uid), paused="pause" in request.POST)
    return redirect("exports:schedule", uid)


@require_http_methods(["GET", "HEAD", "POST"])
def delete_schedule(request: HttpRequest, uid: UUID) -> HttpResponse:
    found = _schedule(request, uid)
    if request.method == "POST":
        schedules.delete(request.user, Actor.of(request), found)
        messages.success(request, f"{found.name} deleted.")
        return redirect("exports:list")
    context = {"nav": "exports", "schedule": found, "where": schedules.where(found)}
    return render(request, "exports/delete_schedule.html", context)


def _refuse(form: ScheduleForm, problem: Exception) -> None:
    if isinstance(problem, schedules.NameTaken):
        form.add_error("name", "This name is taken.")
    else:
        form.add_error(
            "secret_key", "Enter the key again: it is kept only if the endpoint and access key ID stay the same."
        )
