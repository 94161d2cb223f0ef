"""The tabs of a server that show what it offers and what it did."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.domain import listed, log_page, server_pages
from sessions.domain.listed import Listed
from sessions.domain.log_page import LogFilter
from sessions.enums import LogSource
from sessions.forms import ToolForm
from sessions.views.servers import list_context, server_context


def _cursor(request: HttpRequest) -> int | None:
    word = request.GET.get("before", "")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 19 else None


def _tool(server: Server, name: str) -> Definition:
    definition = server_pages.definitions(server, DefinitionKind.TOOL).filter(key=name).first()
    if definition is None:
        raise Http404("No such tool")
    return definition


@require_safe
def tools(request: HttpRequest, slug: str) -> HttpResponse:
    """The list at the left, the form of `?tool=` (or of the first one) in the middle, its calls at the right."""
    server = access.server_for(request.user, slug)
    # The age of the lists is read before them: a page that looks older than it is loads again, the other way round never.
    header = server_pages.header(server)
    found = listed.offered(server, DefinitionKind.TOOL, listed.words_of(request.GET))
    context = tool_list_context(request, header, found)
    if definition := _chosen(server, request.GET.get("tool", ""), found):
        context |= _tool_context(server, definition, request.GET)
    return render(request, "sessions/catalog/tools.html", context)


def tool_list_context(
    request: HttpRequest, header: server_pages.ServerHeader, found: Listed[Definition]
) -> dict[str, Any]:
    context = list_context(request, header, "tools", (DefinitionKind.TOOL, found))
    return context | {"groups": server_pages.tool_groups(found.rows)}


def _chosen(server: Server, name: str, found: Listed[Definition]) -> Definition | None:
    """The one that is named, else the first: of what was found, or of all where a search found nothing."""
    if name:
        return _tool(server, name)
    return found.rows[0] if found.rows else server_pages.definitions(server, DefinitionKind.TOOL).first()


def _tool_context(server: Server, definition: Definition, data: QueryDict) -> dict[str, Any]:
    form = ToolForm(definition, data, posted=False)
    return {
        "definition": definition,
        "entry": server_pages.tool_entry(definition),
        "tool": server_pages.body(definition),
        "form": form,
        "calls": server_pages.recent_calls(server, definition.key),
    }


@require_POST
def tool_form(request: HttpRequest, slug: str) -> HttpResponse:
    """The form again after a structural edit, a switch of mode or a refused call: nothing is run here."""
    server = access.server_for(request.user, slug)
    form = ToolForm(_tool(server, request.GET.get("tool", "")), request.POST, posted=True)
    return render(request, "sessions/catalog/_tool_form.html", {"server": server, "form": form})


@require_safe
def logs(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    chosen = LogFilter.of(*(request.GET.get(name, "") for name in ("level", "source", "text")))
    context = server_context(request, server_pages.header(server), "logs") | {
        "page": log_page.log_page(server, chosen, _cursor(request)),
        "chosen": chosen,
        "levels": log_page.LEVELS,
        "sources": LogSource.choices,
    }
    return render(request, "sessions/catalog/logs.html", context)


@require_safe
def history(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    context = server_context(request, server_pages.header(server), "history")
    method = request.GET.get("method", "")
    context |= {"page": server_pages.history(request.user, server, _cursor(request), method)}
    context |= {"method": method, "methods": server_pages.HISTORY_METHODS}
    return render(request, "sessions/catalog/history.html", context)
