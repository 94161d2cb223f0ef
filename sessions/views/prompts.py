"""The prompts of a server: the list, one prompt's form and results, and the form without JavaScript."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from servers.numbers import whole_number
from servers.requests import WebRequest
from servers.schemas.pointer import unescape
from sessions.calls import placing
from sessions.calls.placing import AuditUnavailable, Rejected, SubmittedArguments
from sessions.calls.plain_arguments import typed
from sessions.catalog import prompts as prompt_page
from sessions.catalog import search
from sessions.mcp.core.methods import PROMPTS_GET
from sessions.models import McpSession
from sessions.overview import server_page
from sessions.saved_calls.reading import entries
from sessions.views.call_answers import see_other
from sessions.views.server_tabs import PARTS, list_context, list_status
from sessions.views.visible_calls import prefill


@require_safe
def page(request: WebRequest, slug: str) -> HttpResponse:
    """`?prompt=` chooses, `?arg.<name>=` or `?call=` prefills. `?from=` chooses the part of the list; `?part=` returns
    only that part, for a page that has the others. Opening the page sends nothing to the server."""
    server = access.server_for(request.user, slug)
    if (part := request.GET.get("part", "")) in PARTS:
        return render(request, "prompts/_rows.html", _list_context(request, server) | {"part": part})
    context = _context(request, server, request.GET, {})
    status = list_status(context, request.GET.get("prompt", ""), context.get("prompt"))
    return render(request, "prompts/page.html", context, status=status)


def _list_context(request: WebRequest, server: Server) -> dict[str, Any]:
    header, key = server_page.header(server), request.GET.get("prompt", "")
    start = whole_number(request.GET.get("from", ""))
    found = search.part_of(server, DefinitionKind.PROMPT, search.words_of(request.GET), key, start)
    context = list_context(request, header, "prompts", (DefinitionKind.PROMPT, found))
    return context | {"header": header, "prompts": found, "chosen_key": key}


def _context(request: WebRequest, server: Server, data: Any, errors: dict[str, str]) -> dict[str, Any]:
    context = _list_context(request, server)
    header = context["header"]
    definition = search.chosen(server, DefinitionKind.PROMPT, context["chosen_key"], context["prompts"])
    if definition is None:
        return context
    given = prefill(request, PROMPTS_GET, definition.key)
    return context | {
        "chosen_key": definition.key,
        "prefill": given,
        "prompt": prompt_page.prompt(definition, (given.texts if given else {}) | typed(data), errors),
        "calls": prompt_page.recent(server, definition.key),
        "saved_calls": entries(request.user, server, PROMPTS_GET, definition.key),
        "suggests": _suggests(request, header.mcp_session, definition),
    }


def _suggests(request: WebRequest, session: McpSession | None, definition: Definition) -> str:
    """A completion is a call, so suggestions need permission to make one."""
    if not access.may(request.user, "call_tool"):
        return ""
    return prompt_page.suggests(session, DefinitionKind.PROMPT, definition.key)


@require_POST
def get(request: WebRequest, slug: str) -> HttpResponse:
    """The same call as through the socket. If it is refused, the form is shown again with the errors next to
    their fields. `?uid=`: the server that the page was opened for."""
    server = access.server_of_form(request.user, slug, request.GET.get("uid", ""), "view")
    name = request.GET.get("prompt", "")
    given = SubmittedArguments(form={field: [str(value) for value in values] for field, values in request.POST.lists()})
    try:
        return see_other(placing.place(Actor.of(request), request.user, server, name, given, method=PROMPTS_GET))
    except Rejected as problem:
        messages.error(request, problem.message)
        errors = {unescape(pointer.removeprefix("/")): words[0] for pointer, words in problem.errors.items()}
        status = 422
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
        errors, status = {}, 503
    return render(request, "prompts/page.html", _context(request, server, request.POST, errors), status=status)
