"""Calls as pages: the form without JavaScript, the page of one call, its card, its result as a file, cancel and
repeat."""

import json
import re
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit import payloads
from servers.audit import query as audit
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.enums import DefinitionKind
from servers.models import AuditEvent, Definition, Payload, Server
from servers.requests import WebRequest
from sessions.calls import placing, result_files, statements
from sessions.calls.operations import OPERATIONS, words_of
from sessions.calls.placing import AuditUnavailable, Given, Rejected
from sessions.calls.reading import record_reading
from sessions.catalog import search
from sessions.models import Call
from sessions.overview import server_page
from sessions.views.catalog import tool_list_context
from sessions.views.forms import ToolForm

TIMELINE = 100
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_PDF_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def visible_call(request: WebRequest, uid: UUID) -> Call:
    """Calls outlive their servers: one without a server is visible to everyone who may view servers."""
    if not access.may(request.user, "view"):
        raise Http404("This call does not exist, or you don't have access to it.")
    seen = Q(server__in=access.visible_servers(request.user)) | Q(server=None)
    rows = Call.objects.select_related("server", "session__owner", "arguments", "result", "late_result")
    try:
        return rows.filter(seen, statements.seen(request.user)).get(uid=uid)
    except Call.DoesNotExist:
        raise Http404("This call does not exist, or you don't have access to it.") from None


def see_other(call: Call) -> HttpResponseRedirect:
    response = redirect("calls:detail", call.uid)
    response.status_code = 303
    return response


# --- placing ---------------------------------------------------------------------------------------------------------
@require_POST
def place(request: WebRequest, slug: str) -> HttpResponse:
    """The same call as through the socket. If it is refused, the form is shown again with the errors at their
    fields."""
    server = access.server_for(request.user, slug)
    tool = request.GET.get("tool", "")
    fields = {name: [str(value) for value in values] for name, values in request.POST.lists()}
    given = Given(form=fields, confirm=request.POST.get("_confirm", ""), as_task="_task" in request.POST)
    try:
        call = placing.place(Actor.of(request), request.user, server, tool, given)
    except Rejected as problem:
        return _form_again(request, server, tool, problem.message, 422)
    except AuditUnavailable as problem:
        return _form_again(request, server, tool, str(problem), 503)
    return see_other(call)


def _form_again(request: WebRequest, server: Server, tool: str, message: str, status: int) -> HttpResponse:
    definition = server_page.definitions(server, DefinitionKind.TOOL).filter(key=tool).first()
    messages.error(request, message)
    if definition is None:
        return redirect("servers:tools", server.slug)
    data = request.POST.copy()
    data["_validate"] = "1"
    found = search.offered(server, DefinitionKind.TOOL)
    context = tool_list_context(request, server_page.header(server), found) | {
        "definition": definition,
        "entry": server_page.tool_entry(definition),
        "tool": server_page.body(definition),
        "form": ToolForm(definition, data, posted=True),
        "calls": server_page.recent_calls(server, definition.key),
    }
    return render(request, "catalog/tools.html", context, status=status)


@require_http_methods(["GET", "POST"])
def repeat(request: WebRequest, uid: UUID) -> HttpResponse:
    """GET shows what would be sent and asks; POST makes a new call that refers to the old one."""
    call = visible_call(request, uid)
    problem = None
    if request.method == "POST":
        try:
            confirm = request.POST.get("confirm", "")
            return see_other(placing.repeat(Actor.of(request), request.user, call, confirm=confirm))
        except (Rejected, AuditUnavailable) as refusal:
            problem = refusal
    context = _page(request, call) | {
        "problem": str(problem) if problem else "",
        "errors": getattr(problem, "errors", {}),
        "ask_name": _destructive(call) or getattr(problem, "confirm", "") == "name",
        "ask_unchecked": getattr(problem, "confirm", "") == "unchecked",
        "unknown": call.effect_unknown,
    }
    return render(request, "calls/repeat.html", context, status=422 if problem else 200)


def _destructive(call: Call) -> bool:
    operation = OPERATIONS.get(call.method)
    if operation is None:
        return False
    kind, key = operation.place(call.target)
    definition = Definition.objects.filter(identity=call.identity_id, kind=kind, key=key, removed_at=None).first()
    return definition is not None and operation.destructive(server_page.body(definition))


@require_POST
def cancel(request: WebRequest, uid: UUID) -> HttpResponse:
    call = visible_call(request, uid)
    try:
        asked = placing.cancel(Actor.of(request), request.user, call)
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
    else:
        said = "Cancellation sent to the server." if asked and call.sent_at else "Cancelled."
        messages.success(request, said) if asked else messages.info(request, "The call had already finished.")
    return HttpResponse(status=204) if request.htmx else see_other(call)


# --- reading ---------------------------------------------------------------------------------------------------------
def _page(request: WebRequest, call: Call) -> dict[str, Any]:
    may_read = placing.may_read(request.user, call)
    if may_read:
        record_reading(Actor.of(request), call, call.arguments, call.result or call.late_result)
    return {
        "nav": "servers",
        "call": call,
        "may_read": may_read,
        "arguments": readable_arguments(call) if may_read else None,
        "rights": access.rights(request.user),
        "words": words_of(call.method),
    }


def readable_arguments(call: Call) -> str | None:
    """Or why they cannot be opened; None once they were erased."""
    try:
        return payloads.read(call.arguments)
    except SealError as problem:
        return str(problem)


@require_safe
def detail(request: WebRequest, uid: UUID) -> HttpResponse:
    """Everything about one call, live for everyone who may see it."""
    call = visible_call(request, uid)
    context = _page(request, call) | {
        "attempts": call.attempts.all(),
        "repetitions": call.repeated_by.filter(statements.seen(request.user)).order_by("id")[:20],
        "timeline": _timeline(request, call),
        "stored": [one for one in (call.arguments, call.result, call.late_result) if one is not None],
    }
    return render(request, "calls/detail.html", context)


def _timeline(request: WebRequest, call: Call) -> list[tuple[AuditEvent, str]]:
    """With the words of each event."""
    if not access.may(request.user, "view_auditevent"):
        return []
    events = access.audit_events(request.user).filter(call_uid=call.uid).order_by("seq").defer("body", "hash")
    return [
        (event, f"{audit.action_word(event.action)} · {audit.outcome_word(event.outcome)}")
        for event in events[:TIMELINE]
    ]


@require_safe
def card(request: WebRequest, uid: UUID) -> HttpResponse:
    call = visible_call(request, uid)
    may_read = placing.may_read(request.user, call)
    if may_read:
        record_reading(Actor.of(request), call, call.result or call.late_result)
    return render(request, "calls/_card.html", {"call": call, "may_read": may_read})


@require_safe
def result(request: WebRequest, uid: UUID) -> HttpResponse:
    """The result verbatim."""
    call = visible_call(request, uid)
    text = _result_text(request, call)
    return _file(text.encode("utf-8", "surrogatepass"), "application/json", f"call-{call.pk}.json")


@require_safe
def content(request: WebRequest, uid: UUID, position: int) -> HttpResponse:
    """One content of a result, as raw bytes: for a download, for the elements that show it, and with `?open` for a tab of
    its own if its type is one that runs nothing."""
    call = visible_call(request, uid)
    payload = _result_payload(request, call)
    tag = f'"{payload.digest[:32]}-{position}"'
    if payload.erased_at is None and tag in request.headers.get("If-None-Match", ""):
        return _revalidated(HttpResponse(status=304), tag)
    items = result_files.recent.of(payload, call.method)
    if items is None:
        raise Http404("This result was erased.")
    found = result_files.file_of(items[position], f"call-{call.pk}-{position + 1}") if position < len(items) else None
    if found is None:
        raise Http404("This result has no such content.")
    data, part = _asked_part(request, found.data, tag)
    response = _file(data, found.mime, found.name)
    if part:
        response.status_code = 206 if data else 416
        response.headers["Content-Range"] = part
    if "open" in request.GET and found.viewable:
        response.headers["Content-Disposition"] = f'inline; filename="{found.name}"'
        if found.mime == "application/pdf":  # a sandboxed page may not start the browser's viewer, which isolates it
            response.headers["Content-Security-Policy"] = _PDF_POLICY
    response.headers["Accept-Ranges"] = "bytes"
    return _revalidated(response, tag)


def _revalidated(response: HttpResponse, tag: str) -> HttpResponse:
    """A browser may keep it, and asks before each use: it may have been erased, or the right withdrawn."""
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _asked_part(request: WebRequest, data: bytes, tag: str) -> tuple[bytes, str]:
    """One range of bytes, as players ask for it, and its Content-Range; everything and "" without a valid one."""
    found = _RANGE.fullmatch(request.headers.get("Range", ""))
    if found is None or request.headers.get("If-Range", tag) != tag or not any(found.groups()):
        return data, ""
    size, (first, last) = len(data), found.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start >= size or end < start:
        return b"", f"bytes */{size}"
    return data[start : end + 1], f"bytes {start}-{end}/{size}"


@require_safe
def structured(request: WebRequest, uid: UUID) -> HttpResponse:
    """The structured part of a tool's result. Pages show it as a tree only if it is small enough."""
    call = visible_call(request, uid)
    value = _result_object(request, call)
    if "structuredContent" not in value:
        raise Http404("This result has no structured content.")
    text = json.dumps(value["structuredContent"], indent=2, ensure_ascii=False)
    return _file(text.encode("utf-8", "surrogatepass"), "application/json", f"call-{call.pk}-structured.json")


def _result_object(request: WebRequest, call: Call) -> dict[str, Any]:
    try:
        value = json.loads(_result_text(request, call))
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def _result_text(request: WebRequest, call: Call) -> str:
    text = payloads.read(_result_payload(request, call))
    if text is None:
        raise Http404("This call has no result, or it was erased.")
    return text


def _result_payload(request: WebRequest, call: Call) -> Payload:
    if not placing.may_read(request.user, call):
        raise access.Denied("view_payload", call.server)
    payload = call.result or call.late_result
    record_reading(Actor.of(request), call, payload)
    if payload is None:
        raise Http404("This call has no result, or it was erased.")
    return payload


def _file(data: bytes, kind: str, name: str) -> HttpResponse:
    """A browser must never treat what a server sent as a page of ours."""
    response = HttpResponse(data, content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
