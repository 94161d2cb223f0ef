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
from sessions.domain import calls, listed, prompt_page, server_pages
from sessions.domain.calls import AuditUnavailable, Given, Rejected
from sessions.domain.listed import Listed
from sessions.models import McpSession
from sessions.protocol.methods import PROMPTS_GET
from sessions.schemas.pointer import unescape
from sessions.views.calls import see_other
from sessions.views.resources import typed
from sessions.views.servers import list_context


@require_safe
def page(request: HttpRequest, slug: str) -> HttpResponse:
    """`?prompt=` chooses, `?arg.<name>=` prefills; nothing is asked for by opening the page."""
    server = access.server_for(request.user, slug)
    return render(request, "sessions/prompts/page.html", _context(request, server, request.GET, {}))


def _context(request: HttpRequest, server: Server, data: Any, errors: dict[str, str]) -> dict[str, Any]:
    header = server_pages.header(server)
    found = listed.offered(server, DefinitionKind.PROMPT, listed.words_of(request.GET))
    context = list_context(request, header, "prompts", (DefinitionKind.PROMPT, found)) | {"prompts": found.rows}
    definition = _chosen(server, request.GET.get("prompt", ""), found)
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


def _chosen(server: Server, name: str, found: Listed[Definition]) -> Definition | None:
    """The one that is named, else the first: of what was found, or of all where a search found nothing."""
    prompts = server_pages.definitions(server, DefinitionKind.PROMPT)
    if not name:
        return found.rows[0] if found.rows else prompts.first()
    chosen = prompts.filter(key=name).first()
    if chosen is None:
        raise Http404("The server does not list this prompt.")
    return chosen


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
