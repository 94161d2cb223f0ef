"""The prompts of a server: the list, the form of one, what it answered, and the door without script."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.domain import calls, offered, prompt_page, server_pages
from sessions.domain.calls import AuditUnavailable, Given, Rejected
from sessions.models import McpSession
from sessions.protocol.methods import PROMPTS_GET
from sessions.schemas.pointer import unescape
from sessions.views.calls import see_other
from sessions.views.resources import typed
from sessions.views.servers import server_context


@require_safe
def page(request: HttpRequest, slug: str) -> HttpResponse:
    """`?prompt=` chooses, `?arg.<name>=` prefills; nothing is asked for by opening the page."""
    server = access.server_for(request.user, slug)
    return render(request, "sessions/prompts/page.html", _context(request, server, request.GET, {}))


def _context(request: HttpRequest, server: Server, data: Any, errors: dict[str, str]) -> dict[str, Any]:
    header = server_pages.header(server)
    listed = prompt_page.prompts(server)
    context = server_context(request, header, "prompts") | {
        "prompts": listed,
        "cuts": [cut for cut in server_pages.cuts(header.mcp_session) if cut.kind == DefinitionKind.PROMPT],
        "why_none": offered.why(header.mcp_session, "prompts"),
    }
    definition = _chosen(listed, request.GET.get("prompt", ""))
    if definition is None:
        return context
    return context | {
        "prompt": prompt_page.prompt(definition, typed(data), errors),
        "calls": prompt_page.recent(server, definition.key),
        "suggests": _suggests(request, header.mcp_session, definition),
    }


def _suggests(request: HttpRequest, session: McpSession | None, definition: Definition) -> str:
    """Asking for suggestions is a call, which needs the right to make one."""
    if not access.may(request.user, "call_tool"):
        return ""
    return prompt_page.suggests(session, DefinitionKind.PROMPT, definition.key)


def _chosen(listed: list[Definition], name: str) -> Definition | None:
    if not name:
        return listed[0] if listed else None
    found = next((definition for definition in listed if definition.key == name), None)
    if found is None:
        raise Http404("The server does not list this prompt.")
    return found


@require_POST
def get(request: HttpRequest, slug: str) -> HttpResponse:
    """The same call as by the socket. A refused one shows the form again with the errors at their fields."""
    server = access.server_for(request.user, slug)
    name = request.GET.get("prompt", "")
    given = Given(form={field: [str(value) for value in values] for field, values in request.POST.lists()})
    try:
        return see_other(calls.place(Actor.of(request), request.user, server, name, given, method=PROMPTS_GET))
    except Rejected as problem:
        messages.error(request, problem.message)
        errors = {unescape(pointer.removeprefix("/")): words[0] for pointer, words in problem.errors.items()}
        status = 422
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
        errors, status = {}, 503
    return render(request, "sessions/prompts/page.html", _context(request, server, request.POST, errors), status=status)
