"""The tools of a server: the list, and one tool's form."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.definitions.versions import body_of
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from servers.numbers import whole_number
from servers.requests import WebRequest
from servers.schemas.input_schema import input_schema_of
from sessions.catalog import search
from sessions.catalog.tool_list import tool_list
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.overview import server_page
from sessions.saved_calls.reading import entries
from sessions.views import passing_on
from sessions.views.forms import ToolForm
from sessions.views.server_tabs import PARTS, list_context, list_status
from sessions.views.visible_calls import prefill


def _tool(server: Server, name: str) -> Definition:
    definition = server_page.definitions(server, DefinitionKind.TOOL).filter(key=name).first()
    if definition is None:
        raise Http404("The server does not list this tool.")
    return definition


@require_safe
def tools(request: WebRequest, slug: str) -> HttpResponse:
    """The list on the left, the form of `?tool=` (or of the first tool) in the middle, its calls on the right. `?from=`
    chooses the part of the list; `?part=` returns only that part, for a page that has the other parts."""
    server = access.server_for(request.user, slug)
    # Read the age of the lists before the lists. A page that seems older than it is only reloads needlessly; one that
    # seems newer would stay outdated.
    header = server_page.header(server)
    name = request.GET.get("tool", "")
    context = tool_list_context(request, header, name)
    if (part := request.GET.get("part", "")) in PARTS:
        return render(request, "catalog/_tool_rows.html", context | {"part": part, "definition": {"key": name}})
    if definition := search.chosen(server, DefinitionKind.TOOL, name, context["tools"].found):
        context |= _tool_context(request, server, definition)
    return render(request, "catalog/tools.html", context, status=list_status(context, name, definition))


def tool_list_context(request: HttpRequest, header: server_page.ServerHeader, name: str) -> dict[str, Any]:
    start = whole_number(request.GET.get("from", ""))
    found = tool_list(header.server, search.words_of(request.GET), name, start)
    context = list_context(request, header, "tools", (DefinitionKind.TOOL, found.found))
    return context | {"tools": found}


def _tool_context(request: WebRequest, server: Server, definition: Definition) -> dict[str, Any]:
    schema = input_schema_of(body_of(definition))
    given = passing_on.prefill(request, schema) or prefill(request, TOOLS_CALL, definition.key)
    form = ToolForm(definition, request.GET, posted=False, prefill=given)
    return {
        "definition": definition,
        "entry": server_page.tool_entry(definition),
        "tool": body_of(definition),
        "form": form,
        "calls": server_page.recent_calls(server, definition.key),
        "saved_calls": entries(request.user, server, TOOLS_CALL, definition.key),
    }


@require_POST
def tool_form(request: HttpRequest, slug: str) -> HttpResponse:
    """The form again after a structural edit, a mode switch or a refused call, from a draft that the browser stored, or
    empty. Nothing is run here. `?uid=`: the server that the page was opened for."""
    server = access.server_of_form(request.user, slug, request.GET.get("uid", ""), "view")
    posted = "_clear" not in request.POST
    form = ToolForm(_tool(server, request.GET.get("tool", "")), request.POST, posted=posted)
    context = {"server": server, "form": form, "permissions": access.permissions(request.user)}
    return render(request, "catalog/_tool_form.html", context)
