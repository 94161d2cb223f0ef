"""Saved calls of a server: the page with its checklist, saving, running, renaming, deleting."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.requests import WebRequest
from sessions.calls.operations import texts_of
from sessions.calls.placing import AlreadyPlaced, AuditUnavailable, Rejected, SubmittedArguments
from sessions.calls.repeating import ConfirmationReasons
from sessions.models import Call, SavedCall
from sessions.overview import server_page
from sessions.saved_calls import reading, running, saving
from sessions.saved_calls.saving import Unsaved
from sessions.views.call_answers import asked_for, card_answer, not_placed, see_other
from sessions.views.server_tabs import server_context
from sessions.views.visible_calls import scripted, visible_call


@require_safe
def index(request: WebRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    context = server_context(request, server_page.header(server), "tools")
    return render(request, "saved_calls/page.html", context | {"entries": reading.entries(request.user, server)})


# --- saving ----------------------------------------------------------------------------------------------------------
@require_POST
def save_form(request: WebRequest, slug: str) -> HttpResponse:
    """The form of a tool, prompt or resource under the name in its field `_name`."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    method, target = request.GET.get("method", ""), request.GET.get("target", "")
    fields = {name: [str(value) for value in values] for name, values in request.POST.lists()}
    given = SubmittedArguments(form=fields, as_task="_task" in request.POST, anyway=True)
    name, shared = request.POST.get("_name", ""), "_shared" in request.POST
    try:
        if "_filled" not in request.POST:
            raise Unsaved("Not saved: saving a form needs JavaScript. Run it, then save its call.")
        saved = saving.save_form(Actor.of(request), request.user, server, method, target, given, name, shared=shared)
    except Unsaved as problem:
        return _refused(request, str(problem), reverse("servers:saved", args=[server.slug]))
    return _saved(request, saved)


@require_POST
def save_call(request: WebRequest, uid: UUID) -> HttpResponse:
    call = visible_call(request, uid)
    name, shared = request.POST.get("_name", ""), "_shared" in request.POST
    try:
        saved = saving.save_call(Actor.of(request), request.user, call, name, shared=shared)
    except Unsaved as problem:
        return _refused(request, str(problem), reverse("calls:detail", args=[uid]))
    return _saved(request, saved)


def _refused(request: WebRequest, message: str, back: str) -> HttpResponse:
    if scripted(request):
        return JsonResponse({"message": message}, status=422)
    messages.error(request, message)
    return HttpResponseRedirect(back, status=303)


def _saved(request: WebRequest, saved: SavedCall) -> HttpResponse:
    url = reverse("servers:saved", args=[saved.server.slug])
    if scripted(request):
        return JsonResponse({"message": f"Saved as “{saved.name}”", "url": url})
    messages.success(request, f"Saved as “{saved.name}”.")
    return HttpResponseRedirect(url, status=303)


# --- running ---------------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "POST"])
def run(request: WebRequest, uid: UUID) -> HttpResponse:
    """Like `calls.repeat`, for a saved call."""
    saved = reading.saved_call(request.user, uid)
    reasons = running.confirmation_reasons(request.user, saved)
    here, script = reverse("saved_calls:run", args=[uid]), scripted(request)
    if request.method == "GET":
        return _ask(request, saved, reasons)
    if reasons and "asked" not in request.POST:
        return JsonResponse({"ask": here}) if script else HttpResponseRedirect(here, status=303)
    try:
        confirm, anyway = request.POST.get("confirm", ""), "anyway" in request.POST
        call, message = running.run(Actor.of(request), request.user, saved, confirm=confirm, anyway=anyway), ""
    except AlreadyPlaced as twin:
        call, message = twin.call, str(twin)
    except (Rejected, AuditUnavailable) as problem:
        if script and isinstance(problem, Rejected) and problem.confirm:
            return JsonResponse({"ask": here})
        if script:
            return not_placed(problem)
        return _ask(request, saved, reasons, problem)
    return _placed(request, call, message)


def _placed(request: WebRequest, call: Call, message: str) -> HttpResponse:
    if scripted(request):
        return JsonResponse(card_answer(request, call) | ({"message": message} if message else {}))
    if message:
        messages.info(request, message)
    return see_other(call)


def _ask(
    request: WebRequest,
    saved: SavedCall,
    reasons: ConfirmationReasons,
    problem: Rejected | AuditUnavailable | None = None,
) -> HttpResponse:
    context: dict[str, Any] = asked_for(reasons, problem) | {
        "nav": "servers",
        "heading": f"Run “{saved.name}”?",
        "saved": saved,
        "target": saved.target,
        "words": texts_of(saved.method),
    }
    return render(request, "saved_calls/run.html", context, status=422 if problem else 200)


# --- changing --------------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "POST"])
def change(request: WebRequest, uid: UUID) -> HttpResponse:
    saved = reading.saved_call(request.user, uid)
    problem, name, shared = "", saved.name, saved.shared
    if request.method == "POST":
        name, shared = request.POST.get("_name", ""), "_shared" in request.POST
        if not reading.may_share(request.user, saved):
            shared = saved.shared
        try:
            if saving.change(Actor.of(request), request.user, saved, name, shared=shared):
                messages.success(request, "Saved.")
            return redirect("servers:saved", saved.server.slug)
        except Unsaved as refusal:
            problem = str(refusal)
    context = {"nav": "servers", "saved": saved, "name": name, "shared": shared, "problem": problem}
    context |= {"own": reading.may_share(request.user, saved), "heading": f"Rename “{saved.name}”"}
    return render(request, "saved_calls/change.html", context, status=422 if problem else 200)


@require_http_methods(["GET", "POST"])
def delete(request: WebRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST removes it with its arguments."""
    saved = reading.saved_call(request.user, uid)
    if request.method == "POST":
        saving.delete(Actor.of(request), request.user, saved)
        messages.success(request, f"“{saved.name}” deleted.")
        return redirect("servers:saved", saved.server.slug)
    context = {"nav": "servers", "heading": f"Delete “{saved.name}”?", "saved": saved}
    return render(request, "saved_calls/delete.html", context)
