"""The *Tasks* tab of a server: calls that it runs as tasks, live, including those whose worker is gone."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from servers.requests import WebRequest
from sessions.calls import placing, server_tasks
from sessions.enums import CallState
from sessions.overview import server_page
from sessions.views.server_tabs import server_context
from sessions.views.visible_calls import visible_call


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    context = server_context(request, server_page.header(server), "tasks")
    context |= {"lines": server_tasks.lines(request.user, server), "most": server_tasks.MOST_SHOWN}
    return render(request, "server_tasks/index.html", context)


@require_POST
def cancel(request: WebRequest, slug: str, uid: UUID) -> HttpResponse:
    call = visible_call(request, uid)
    if call.server is None or call.server.slug != slug:
        raise Http404("This server has no such task.")
    actor = Actor.of(request)
    if server_tasks.cannot_cancel(call):
        return _refused(request, slug, server_tasks.NO_CANCELLATION, 409)
    try:
        if call.state == CallState.SENT:
            said = server_tasks.CANCEL_SENT if placing.cancel(actor, request.user, call) else ""
        else:
            said = server_tasks.request_cancel(actor, request.user, call)
    except AuditUnavailable as problem:
        return _refused(request, slug, str(problem), 503)
    if said:
        messages.success(request, said)
    else:
        messages.info(request, "The task has ended, or its cancellation was already requested.")
    return HttpResponse(status=204) if request.htmx else redirect("servers:tasks", slug)


def _refused(request: WebRequest, slug: str, why: str, status: int) -> HttpResponse:
    if request.htmx:
        return HttpResponse(why, status=status, content_type="text/plain")
    messages.error(request, why)
    return redirect("servers:tasks", slug)
