"""The list of servers and the pages about one server as a whole."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from servers import access
from servers.enums import TransportKind
from servers.models import Server
from servers.numbers import uuids, whole_number
from sessions.catalog import not_offered
from sessions.connections import process_page, refusals, timeline
from sessions.connections.log_page import LEVELS
from sessions.mcp.core.capabilities import declares
from sessions.overview import server_list, server_page
from sessions.views import bulk
from sessions.views.forms import ServerListFilter
from sessions.views.server_tabs import server_context


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    filters = ServerListFilter(request.GET)
    mark = server_list.mark()  # read before what it covers
    matching = server_list.matching(request.user, filters.criteria())
    actions = bulk.offered(request.user)
    number = whole_number(request.GET.get("page", "")) or 1
    page = server_list.page(request.user, matching, filters.order, number, picks=bool(actions))
    permissions = access.permissions(request.user)
    context = {
        "nav": "servers",
        "page": page,
        "mark": mark,
        "columns": _columns(filters.order),
        "filters": filters,
        "filtered": filters.active(),
        "ignored_filters": filters.ignored(),
        "any_server": bool(page.rows) or access.visible_servers(request.user).exists(),
        "permissions": permissions,
        "actions": actions if page.rows else [],
        "query": request.GET.urlencode(),
    }
    return render(request, "servers/index.html", context)


@require_safe
def states(request: HttpRequest) -> HttpResponse:
    """The states of the changed rows in an open list."""
    found = server_list.states(request.user, uuids(request.GET.getlist("server")))
    return render(request, "servers/_states.html", {"states": found})


#: columns of the table: sort order ("" if none), label, CSS class
_COLUMNS = (
    ("name", "Name", ""),
    ("state", "State", ""),
    ("transport", "Endpoint", ""),
    ("tools", "Tools", "r"),
    ("", "Last 24 hours", ""),
    ("calls", "Calls", "r"),
    ("failed", "Failed", "r"),
    ("", "p95", "r"),
    ("environment", "Environment", ""),
    ("owner", "Owner", ""),
    ("used", "Last used", ""),
)


def _columns(order: str) -> list[dict[str, str]]:
    """Each column with the sort order that its header links to."""
    by, descending = order.removeprefix("-"), order.startswith("-")
    found = []
    for name, words, css in _COLUMNS:
        down = name in server_list.DESCENDING
        if name == by:
            down = not descending
        next_order = f"-{name}" if down else name
        aria = "" if name != by else "descending" if descending else "ascending"
        found.append({"words": words, "css": css, "sort": next_order if name else "", "aria": aria})
    return found


@require_safe
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    access.server_for(request.user, slug)
    return redirect("servers:tools", slug)


@require_safe
def info(request: HttpRequest, slug: str) -> HttpResponse:
    """*Connection info*: what client and server declared when they connected."""
    return info_page(request, access.server_for(request.user, slug))


def info_page(
    request: HttpRequest, server: Server, *, roots: str | None = None, problem: str = "", status: int = 422
) -> HttpResponse:
    """`roots`: as entered, if they were refused because of `problem`, with `status`."""
    header = server_page.header(server)
    session = header.mcp_session
    words = server_page.capability_words(session.server_capabilities, session.client_capabilities) if session else []
    instructions = server_page.beginning(session.instructions) if session else ""
    context = server_context(request, header, "info") | {
        "capabilities": words,
        "instructions": instructions,
        "missing": not_offered.missing(session) if session else [],
        "cuts": server_page.cuts(session),
        "logs_offered": session is not None and declares(session.server_capabilities, "logging"),
        "levels": LEVELS,
        "root_lines": "\n".join(root["uri"] for root in server.roots) if roots is None else roots,
        "roots_problem": problem,
        "timeline": timeline.lines(session),
        "timeline_most": timeline.SHOWN,
        "process": process_page.process_page(session),
        "refusals": refusals.refusals(session),
        "used_transport": TransportKind(session.transport).short if session and session.transport else "",
    }
    return render(request, "servers/info.html", context, status=status if problem else 200)


@require_safe
def icon(request: HttpRequest, slug: str, digest: str) -> HttpResponse:
    """Our copy of an image that the server declared for itself or for a tool."""
    server = access.server_for(request.user, slug)
    found = server.icons.filter(digest=digest, data__isnull=False).first()
    if found is None:
        raise Http404("This icon does not exist.")
    response = HttpResponse(bytes(found.data or b""), content_type=found.mime)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["Cache-Control"] = "private, max-age=3600"
    return response
