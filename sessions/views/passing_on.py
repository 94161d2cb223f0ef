"""*Use as argument…*: the user chooses a part of a result, then the server, tool and field that it goes into. Nothing
is run: it ends at the filled-in form of that tool."""

import json
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.definitions.versions import body_of
from servers.enums import DefinitionKind
from servers.json import text as json_text
from servers.models import Definition, Server
from servers.requests import WebRequest
from servers.schemas.input_schema import input_schema_of
from servers.schemas.render import field_id
from sessions.calls import passing_on, visibility
from sessions.calls.passing_on import NoValue
from sessions.calls.payload_readings import record_reading
from sessions.calls.prefilling import Prefill, unmasked
from sessions.catalog.search import ENTRIES
from sessions.models import Call
from sessions.overview import server_page
from sessions.views.visible_calls import visible_call

PREVIEW = 2_000
SERVERS = 2_000


@require_safe
def choose(request: WebRequest, uid: UUID) -> HttpResponse:
    """`?part=` and `&at=` say what is passed on; `server`, `tool` and `into` say where to. `open` opens the form."""
    call = visible_call(request, uid)
    if not visibility.may_read(request.user, call):
        raise access.Denied("view_payload", call.server)
    access.require(request.user, "call_tool", call.server)
    result = _result(request, call)
    parts = passing_on.parts_of(call.method, result)
    if not parts:
        raise Http404("This result has nothing that fits into an argument.")
    names, part = [one.name for one in parts], request.GET.get("part", "")
    part = part if part in names else names[0]
    at = request.GET.get("at") if part == request.GET.get("at_of", part) else None
    value, problem = _value(call, result, part, at)
    server, servers = _server(request, call)
    tools = _tools(server) if server else []
    tool = request.GET.get("tool", "")
    tool = tool if any(tool == key for key, _ in tools) else ""
    fields, into = _fields(request, server, tool, value) if server and tool else ([], None)
    if "open" in request.GET and server and into is not None and into == request.GET.get("into") and not problem:
        path = next(field.path for field in fields if field.pointer == into)
        query = {"tool": tool, "use": str(call.uid), "part": part, "into": into} | ({} if at is None else {"at": at})
        return redirect(f"{reverse('servers:tools', args=[server.slug])}?{urlencode(query)}#{field_id(path)}")
    context = {
        "nav": "servers",
        "call": call,
        "parts": parts,
        "part": part,
        "at": at,
        "problem": problem,
        "preview": _preview(value),
        "servers": servers,
        "server": server,
        "tools": tools,
        "tool": tool,
        "fields": fields,
        "into": into,
    }
    return render(request, "calls/use.html", context)


def prefill(request: WebRequest, schema: Any) -> Prefill | None:
    """The initial content of a tool's form that `?use=` requests; None without it."""
    word = request.GET.get("use", "")
    if not word:
        return None
    try:
        call = visible_call(request, UUID(word))
    except (ValueError, Http404):
        return Prefill("that result", problem="It does not exist, or you don't have access to it.")
    whose, url = f"the result of call #{call.pk}", reverse("calls:detail", args=[call.uid])
    if not visibility.may_read(request.user, call):
        return Prefill(whose, url, problem="You don't have permission to view it.")
    try:
        result = _result(request, call)
        found = passing_on.value_of(call.method, result, request.GET.get("part", ""), request.GET.get("at"))
    except (NoValue, Http404) as problem:
        return Prefill(whose, url, problem=str(problem))
    payload = call.result or call.late_result
    masked = passing_on.masks_in(found) if payload and payload.redacted else 0
    if masked and isinstance(found, str):
        return Prefill(whose, url, problem="The value is masked.")
    value = unmasked(found) if masked else found
    try:
        arguments = passing_on.arguments_with(schema, request.GET.get("into", ""), value)
    except NoValue as problem:
        return Prefill(whose, url, problem=str(problem))
    return Prefill(whose, url, arguments, masked, omitted=True)


def _result(request: WebRequest, call: Call) -> dict[str, Any]:
    payload = call.result or call.late_result
    record_reading(Actor.of(request), call, payload)
    try:
        text = payloads.read(payload) if payload else None
        value = json.loads(text) if text is not None else None
    except (SealError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Http404("This call has no result, or it was erased.")
    return value


def _value(call: Call, result: dict[str, Any], part: str, at: str | None) -> tuple[Any, str]:
    try:
        return passing_on.value_of(call.method, result, part, at), ""
    except NoValue as problem:
        return None, str(problem)


def _preview(value: Any) -> str:
    text = value if isinstance(value, str) else json_text.dumps(value)
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}…"


def _server(request: WebRequest, call: Call) -> tuple[Server | None, list[tuple[str, str]]]:
    """The chosen server, by default the call's, and the choices: servers that have tools."""
    tools = Definition.objects.filter(server=OuterRef("pk"), kind=DefinitionKind.TOOL, removed_at=None)
    rows = access.visible_servers(request.user).filter(Exists(tools), archived_at=None)
    found = list(rows.order_by("name", "pk").values_list("slug", "name")[:SERVERS])
    known = [slug for slug, _ in found]
    wished = request.GET.get("server") or (call.server.slug if call.server else "")
    slug = wished if wished in known else (known[0] if known else "")
    return (access.server_for(request.user, slug) if slug else None), found


def _tools(server: Server) -> list[tuple[str, str]]:
    rows = server.definitions.filter(kind=DefinitionKind.TOOL, removed_at=None, **server.identity_filter)
    found = rows.order_by("position", "id").values_list("key", "title")[:ENTRIES]
    return [(key, f"{title} ({key})" if title and title != key else key) for key, title in found]


def _fields(request: WebRequest, server: Server, tool: str, value: Any) -> tuple[list[passing_on.Field], str | None]:
    definition = server_page.definitions(server, DefinitionKind.TOOL).filter(key=tool).first()
    if definition is None:
        return [], None
    schema = input_schema_of(body_of(definition))
    fields = passing_on.fields_of(schema)
    into = request.GET.get("into")
    same_tool = request.GET.get("into_of") == f"{server.slug} {tool}"
    if into is None or not same_tool or into not in [field.pointer for field in fields]:
        into = passing_on.suggested(schema, fields, value)
    return fields, into
