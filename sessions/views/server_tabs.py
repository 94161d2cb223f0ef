"""The parts that a server's tabs share: the header, and the area above a list."""

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest

from servers import access
from servers.enums import DefinitionKind
from servers.registration.command_permissions import may_change
from sessions.catalog import not_offered
from sessions.catalog.search import Listed, listing, words_of
from sessions.overview import server_page

#: the whole list, or the entries before or after those on a page
PARTS = ("list", "before", "after")


def server_context(request: HttpRequest, header: server_page.ServerHeader, tab: str) -> dict[str, object]:
    """The context of templates/servers/base.html on every tab."""
    return {
        "nav": "servers",
        "tab": tab,
        "server": header.server,
        "mcp_session": header.mcp_session,
        "explanation": header.explanation,
        "counts": header.counts,
        "tab_reasons": not_offered.tab_reasons(header.mcp_session, header.counts),
        "live": header.topic,
        "permissions": access.permissions(request.user),
        "may_control": access.may_control(request.user, header.server),
        "may_change": may_change(request.user, header.server),
    }


def list_context(
    request: HttpRequest,
    header: server_page.ServerHeader,
    tab: str,
    *lists: tuple[DefinitionKind, Listed[Any]],
) -> dict[str, object]:
    """The context above the entries of a list: the search, what the list leaves out, and why it is empty."""
    kinds = [kind for kind, _ in lists]
    total: dict[str, int] = {kind: header.counts[kind] for kind in kinds}
    return server_context(request, header, tab) | {
        "listing": listing(words_of(request.GET), total, *(rows for _, rows in lists)),
        "cuts": [cut for cut in server_page.cuts(header.mcp_session) if cut.kind in kinds],
        "why_none": not_offered.why(header.mcp_session, tab),
    }


def list_status(context: dict[str, Any], key: str, chosen: object) -> HTTPStatus:
    """404 for a key that the server does not list, still with the page. Before the first list, any key may appear."""
    context["not_listed"] = key if key and chosen is None else ""
    return HTTPStatus.NOT_FOUND if context["not_listed"] and context["listing"].total else HTTPStatus.OK
