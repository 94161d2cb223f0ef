"""The list of servers and the pages about one server as a whole."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from servers import access
from servers.enums import DefinitionKind, TransportKind
from sessions.domain import offered, process_page, queries, server_pages, timeline
from sessions.domain.listed import Listed, listing, words_of
from sessions.forms import ServerListFilter


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    filters = ServerListFilter(request.GET)
    rows = queries.server_rows(request.user, access.visible_servers(request.user), filters.criteria())
    context = {
        "nav": "servers",
        "rows": rows,
        "filters": filters,
        "filtered": filters.active(),
        "any_server": bool(rows) or access.visible_servers(request.user).exists(),
        "rights": access.rights(request.user),
    }
    return render(request, "sessions/servers/index.html", context)


@require_safe
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    access.server_for(request.user, slug)
    return redirect("servers:tools", slug)


@require_safe
def info(request: HttpRequest, slug: str) -> HttpResponse:
    """*Connection info*: what the two sides told each other when they connected."""
    server = access.server_for(request.user, slug)
    header = server_pages.header(server)
    session = header.mcp_session
    words = server_pages.capability_words(session.server_capabilities, session.client_capabilities) if session else []
    instructions = server_pages.shown(session.instructions) if session else ""
    context = server_context(request, header, "info") | {
        "capabilities": words,
        "instructions": instructions,
        "missing": offered.missing(session) if session else [],
        "cuts": server_pages.cuts(session),
        "timeline": timeline.lines(session),
        "process": process_page.process_page(session),
        "used_transport": TransportKind(session.transport).short if session and session.transport else "",
    }
    return render(request, "sessions/servers/info.html", context)


def server_context(request: HttpRequest, header: server_pages.ServerHeader, tab: str) -> dict[str, object]:
    """What templates/sessions/servers/base.html needs on every tab."""
    return {
        "nav": "servers",
        "tab": tab,
        "server": header.server,
        "mcp_session": header.mcp_session,
        "explanation": header.explanation,
        "counts": header.counts,
        "live": header.topic,
        "rights": access.rights(request.user),
    }


def list_context(
    request: HttpRequest, header: server_pages.ServerHeader, tab: str, *lists: tuple[DefinitionKind, Listed[Any]]
) -> dict[str, object]:
    """What a tab that lists something shows above its entries: what was searched for, that it was cut, why it is empty."""
    kinds = [kind for kind, _ in lists]
    total = {kind: header.counts[kind] for kind in kinds}
    return server_context(request, header, tab) | {
        "listing": listing(words_of(request.GET), total, *(rows for _, rows in lists)),
        "cuts": [cut for cut in server_pages.cuts(header.mcp_session) if cut.kind in kinds],
        "why_none": offered.why(header.mcp_session, tab),
    }
