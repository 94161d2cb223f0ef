"""The Protocol tab of a server: the wire messages of the session that this user's calls use."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from servers import access
from servers.audit.record import Actor
from servers.enums import Recording
from servers.kit.filters import ignored
from servers.models import Server
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.calls import visibility
from sessions.calls.operations import OPERATIONS
from sessions.calls.payload_readings import record_reading
from sessions.enums import WireDirection, WireKind
from sessions.mcp.core import methods
from sessions.models import Call, WireMessage
from sessions.overview import server_page
from sessions.views.server_tabs import server_context
from sessions.views.visible_calls import visible_call
from sessions.wire import reading, rows, verbs
from sessions.wire.reading import MessageFilter, WireDetails

#: re-sent by reading all lists
_LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})


@require_safe
def index(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    if request.GET.get("show") == "http":  # its rows were here before the Network tab existed
        query = {name: value for name in ("text", "before") if (value := request.GET.get(name))}
        return redirect(f"{reverse('servers:network', args=[slug])}{'?' if query else ''}{urlencode(query)}")
    chosen = MessageFilter.of(*(request.GET.get(name, "") for name in MessageFilter.NAMES))
    header = server_page.header(server)
    page = reading.message_page(server, header.mcp_session, chosen, whole_number(request.GET.get("before", "")))
    methods = reading.methods(server, page.head)
    context = server_context(request, header, "protocol") | {
        "page": page,
        "rows": [rows.paired_row(message, page) if chosen.paired else rows.row(message) for message in page.messages],
        "chosen": chosen,
        "orders": reading.ORDERS,
        "outcomes": reading.OUTCOMES,
        "methods": methods,
        "chosen_is_listed": chosen.method in dict(methods),
        "directions": WireDirection.choices,
        "may_export": _may_export(request, server),
        "most_exported": verbs.EXPORTED,
        "open": whole_number(request.GET.get("open", "")) or "",
        "recording": Recording(server.recording),
        "ignored_filters": ignored(
            request.GET, {name: getattr(chosen, name) for name in ("order", "direction", "outcome")}
        ),
    }
    return render(request, "protocol/index.html", context)


@require_safe
def of_call(request: WebRequest, uid: UUID) -> HttpResponse:
    """A call's request, with its response. If it is not recorded, the Protocol tab."""
    call = visible_call(request, uid)
    if call.server is None:
        raise Http404("The server of this call was deleted, and its messages with it.")
    server = access.server_for(request.user, call.server.slug)
    found = reading.request_of_call(server, call.uid)
    if found is None:
        messages.info(request, f"No message of call #{call.pk} is stored in the log of this session.")
        return redirect("servers:protocol", server.slug)
    return redirect("servers:protocol_message", server.slug, found.seq)


@require_POST
def export(request: WebRequest, slug: str) -> StreamingHttpResponse:
    """The messages of a filter as a file. Only a POST returns it: opening the URL by accident writes no audit event."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    if not _may_export(request, server):
        raise access.Denied("view_payload", server)
    chosen = MessageFilter.of(*(request.GET.get(name, "") for name in MessageFilter.NAMES))
    lines = verbs.exported(Actor.of(request), server, chosen)
    response = StreamingHttpResponse(_pieces(lines), content_type="application/jsonl")
    response.headers["Content-Disposition"] = f'attachment; filename="{server.slug}-protocol.jsonl"'
    response.headers["Cache-Control"] = "private, no-store"
    return response


def _may_export(request: HttpRequest, server: Server) -> bool:
    """Whether the user may read everyone's payloads, or the session is their own."""
    return access.may_read_payloads(request.user) or server.seen_as is not None


async def _pieces(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Asynchronous, because ASGI would read all of a synchronous stream before it sends anything."""
    following = sync_to_async(lambda: next(parts, None))
    while (piece := await following()) is not None:
        yield piece


@require_safe
@vary_on_headers("HX-Request")
def message(request: WebRequest, slug: str, seq: int) -> HttpResponse:
    """One message: a page, or its content for the list."""
    server = access.server_for(request.user, slug)
    found = reading.of_server(server).select_related("identity").filter(seq=seq).first()
    if found is None:
        raise Http404("This message is no longer stored.")
    details, readable = reading.details(found), reading.may_read(request.user, found)
    if readable:
        _record_reading(Actor.of(request), details)
    header = server_page.header(server)
    offered = verbs.verbs(server, header.mcp_session, details, readable)
    offered = replace(offered, **_again(request.user, server, found, offered.json))
    context: dict[str, Any] = {"details": details, "row": rows.row(found), "readable": readable, "verbs": offered}
    if request.htmx:
        return render(request, "protocol/_details.html", context | {"server": server})
    tab = "protocol" if WireKind(found.kind).is_message or found.kind == WireKind.DROPPED else "network"
    context |= server_context(request, header, tab)
    return render(request, "protocol/message.html", context)


def _record_reading(actor: Actor, details: WireDetails) -> None:
    """Record reading a call's messages as reading its arguments or result, because they have the same content. The
    command of an HTTP exchange contains the message that it sent."""
    for message in filter(None, (details.message, details.pair, verbs.sent_in(details))):
        if message.call_uid is None or not (message.body or message.sealed):
            continue
        call = Call.objects.filter(uid=message.call_uid).select_related("arguments", "result").first()
        if call is not None:
            record_reading(actor, call, call.arguments if message.direction == WireDirection.SENT else call.result)


def _again(user: access.User, server: Server, message: WireMessage, text: str) -> dict[str, str]:
    is_request = message.direction == WireDirection.SENT and message.kind == WireKind.REQUEST
    if not is_request or server.archived_at or not access.may(user, "call_tool"):
        return {}
    if message.method in _LISTS:
        return {"again": reverse("servers:refresh", args=[server.slug])}
    if message.method not in OPERATIONS or message.call_uid is None:
        return {}
    if not Call.objects.filter(visibility.visible_q(user), uid=message.call_uid).exists():
        return {}
    found = {"repeat": reverse("calls:repeat", args=[message.call_uid])}
    if message.method == methods.TOOLS_CALL:
        query = {"tool": message.target, "call": str(message.call_uid)}
        return found | {"edit": f"{reverse('servers:tools', args=[server.slug])}?{urlencode(query)}"}
    if message.method == "prompts/get":
        return found | {"edit": f"{reverse('servers:prompts', args=[server.slug])}?{urlencode(_prompt(message, text))}"}
    if message.method == "resources/read":
        query = {"uri": message.target}
        return found | {"edit": f"{reverse('servers:resources', args=[server.slug])}?{urlencode(query)}"}
    return {}


def _prompt(message: WireMessage, text: str) -> dict[str, str]:
    params = json.loads(text).get("params") if text else None
    arguments = params.get("arguments") if isinstance(params, dict) else None
    given = arguments.items() if isinstance(arguments, dict) else ()
    return {"prompt": message.target} | {f"arg.{name}": str(value) for name, value in given}
