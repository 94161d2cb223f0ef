"""Calls as pages: the form without JavaScript, the page of one call, its card, its result as a file, cancel and
repeat."""

import json
import re
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit import query as audit
from servers.audit.record import Actor
from servers.definitions.versions import body_of
from servers.enums import DefinitionKind
from servers.kit.json_tree import Tree, value_at
from servers.models import AuditEvent, Server
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.calls import placing, repeating, result_files, visibility
from sessions.calls.operations import texts_of
from sessions.calls.payload_readings import record_reading
from sessions.calls.placing import AlreadyPlaced, AuditUnavailable, Rejected, SubmittedArguments
from sessions.calls.repeating import ConfirmationReasons
from sessions.models import Call
from sessions.overview import server_page
from sessions.views.call_answers import (
    arguments_file,
    as_file,
    asked_for,
    card_answer,
    not_placed,
    readable_arguments,
    result_object,
    result_payload,
    result_text,
    see_other,
)
from sessions.views.catalog import tool_list_context
from sessions.views.forms import ToolForm
from sessions.views.visible_calls import scripted, visible_call

TIMELINE = 100
#: nodes of a tree that one click loads
PART_NODES = 1_000
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_PDF_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


# --- placing ---------------------------------------------------------------------------------------------------------
@require_POST
def place(request: WebRequest, slug: str) -> HttpResponse:
    """The same call as through the socket. If it is refused, the form is shown again with the errors at their
    fields. `?uid=`: of the server that the page was opened for."""
    server = access.server_of_form(request.user, slug, request.GET.get("uid", ""), "view")
    tool = request.GET.get("tool", "")
    fields = {name: [str(value) for value in values] for name, values in request.POST.lists()}
    given = SubmittedArguments(
        form=fields,
        confirm=request.POST.get("_confirm", ""),
        as_task="_task" in request.POST,
        unchecked="_unchecked" in request.POST,
        anyway="_anyway" in request.POST,
    )
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
    context = tool_list_context(request, server_page.header(server), tool) | {
        "definition": definition,
        "entry": server_page.tool_entry(definition),
        "tool": body_of(definition),
        "form": ToolForm(definition, data, posted=True),
        "calls": server_page.recent_calls(server, definition.key),
    }
    return render(request, "catalog/tools.html", context, status=status)


@require_http_methods(["GET", "POST"])
def repeat(request: WebRequest, uid: UUID) -> HttpResponse:
    """POST makes a new call that refers to the old one. If that needs confirmation, it redirects to the page that GET
    shows: what would be sent, and the question. `asked` comes from that page. Scripts get JSON."""
    call = visible_call(request, uid)
    reasons = repeating.confirmation_reasons(call)
    if request.method == "GET":
        return _ask_again(request, call, reasons)
    script = scripted(request)
    if reasons and "asked" not in request.POST:
        return _lead(reverse("calls:repeat", args=[call.uid]), script=script)
    try:
        confirm = request.POST.get("confirm", "")
        anyway = "anyway" in request.POST
        made = repeating.repeat(Actor.of(request), request.user, call, confirm=confirm, anyway=anyway)
    except AlreadyPlaced as twin:
        if script:
            return JsonResponse(card_answer(request, twin.call) | {"message": str(twin)})
        messages.info(request, str(twin))
        return see_other(twin.call)
    except (Rejected, AuditUnavailable) as problem:
        if script and isinstance(problem, Rejected) and problem.confirm:
            return _lead(reverse("calls:repeat", args=[call.uid]), script=script)
        if script:
            return not_placed(problem)
        return _ask_again(request, call, reasons, problem)
    return JsonResponse(card_answer(request, made)) if script else see_other(made)


def _lead(url: str, *, script: bool) -> HttpResponse:
    return JsonResponse({"ask": url}) if script else HttpResponseRedirect(url, status=303)


def _ask_again(
    request: WebRequest,
    call: Call,
    reasons: ConfirmationReasons,
    problem: Rejected | AuditUnavailable | None = None,
) -> HttpResponse:
    context = _page(request, call) | asked_for(reasons, problem) | {"target": call.target}
    return render(request, "calls/repeat.html", context, status=422 if problem else 200)


@require_POST
def cancel(request: WebRequest, uid: UUID) -> HttpResponse:
    call = visible_call(request, uid)
    try:
        asked = placing.cancel(Actor.of(request), request.user, call)
    except AuditUnavailable as problem:
        if request.htmx:
            return HttpResponse(str(problem), status=503, content_type="text/plain")
        messages.error(request, str(problem))
    else:
        said = "Cancellation sent to the server." if asked and call.sent_at else "Cancelled."
        messages.success(request, said) if asked else messages.info(request, "The call had already finished.")
    return HttpResponse(status=204) if request.htmx else see_other(call)


# --- reading ---------------------------------------------------------------------------------------------------------
def _page(request: WebRequest, call: Call) -> dict[str, Any]:
    may_read = visibility.may_read(request.user, call)
    if may_read:
        record_reading(Actor.of(request), call, call.arguments, call.result or call.late_result)
    return {
        "nav": "servers",
        "call": call,
        "may_read": may_read,
        "arguments": readable_arguments(call) if may_read else None,
        "permissions": access.permissions(request.user),
        "words": texts_of(call.method),
    }


@require_safe
def detail(request: WebRequest, uid: UUID) -> HttpResponse:
    """Everything about one call, live for everyone who may see it."""
    call = visible_call(request, uid)
    context = _page(request, call) | {
        "attempts": call.attempts.all(),
        "repetitions": call.repeated_by.filter(visibility.visible_q(request.user)).order_by("id")[:20],
        "timeline": _timeline(request, call),
        "stored": [one for one in (call.arguments, call.result, call.late_result) if one is not None],
    }
    return render(request, "calls/detail.html", context)


def _timeline(request: WebRequest, call: Call) -> list[tuple[AuditEvent, str]]:
    """The call's events, each with its description."""
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
    may_read = visibility.may_read(request.user, call)
    if may_read:
        record_reading(Actor.of(request), call, call.result or call.late_result)
    return render(request, "calls/_card.html", {"call": call, "may_read": may_read})


@require_safe
def result(request: WebRequest, uid: UUID) -> HttpResponse:
    """The result verbatim."""
    call = visible_call(request, uid)
    text = result_text(request, call)
    return as_file(text.encode("utf-8", "surrogatepass"), "application/json", f"call-{call.pk}.json")


@require_safe
def arguments(request: WebRequest, uid: UUID) -> HttpResponse:
    """The arguments verbatim: pages show only the beginning of long ones."""
    call = visible_call(request, uid)
    if not visibility.may_read(request.user, call):
        raise access.Denied("view_payload", call.server)
    record_reading(Actor.of(request), call, call.arguments)
    return arguments_file(call)


@require_safe
def content(request: WebRequest, uid: UUID, position: int) -> HttpResponse:
    """One content of a result, as raw bytes: for a download, for the elements that show it, and with `?open` for a tab of
    its own if its type is one that runs nothing."""
    call = visible_call(request, uid)
    payload = result_payload(request, call)
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
    response = as_file(data, found.mime, found.name)
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
    """A browser may cache it, but must revalidate before each use: it may have been erased, or the permission
    withdrawn."""
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _asked_part(request: WebRequest, data: bytes, tag: str) -> tuple[bytes, str]:
    """One range of bytes, as media players request it, and its Content-Range; everything and "" without a valid
    range."""
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
    value = result_object(request, call)
    if "structuredContent" not in value:
        raise Http404("This result has no structured content.")
    text = json.dumps(value["structuredContent"], indent=2, ensure_ascii=False)
    return as_file(text.encode("utf-8", "surrogatepass"), "application/json", f"call-{call.pk}-structured.json")


@require_safe
def part(request: WebRequest, uid: UUID) -> HttpResponse:
    """`?at=` a JSON Pointer into the structured part, `&from=` a number: children of that node, for the tree that shows
    it."""
    call = visible_call(request, uid)
    value = result_object(request, call)
    pointer, start = request.GET.get("at", ""), whole_number(request.GET.get("from", ""))
    try:
        found = value_at(value["structuredContent"], pointer)
    except LookupError:
        found = None
    if not isinstance(found, dict | list) or start is None:
        raise Http404("The result has nothing there.")
    tree = Tree(reverse("calls:part", args=[uid]), PART_NODES)
    return HttpResponse(tree.page(found, pointer, start))
