from typing import Annotated

from django.db.models import QuerySet
from django.db.models.functions import Collate
from ninja import Query, Router

from servers import access
from servers.agents.addresses import address_of
from servers.enums import AgentScope
from servers.models import Bundle, Server
from servers.requests import WebRequest
from servers.sql import database
from sessions.agents import endpoints
from sessions.agents.endpoints import NoEndpoint
from sessions.api.asking import Caller, caller_of, work
from sessions.api.shapes import ServerOut, ServerPage
from sessions.enums import SessionState
from sessions.models import McpSession
from sessions.overview.rows import session_of, with_session

router = Router(tags=["servers"])
MOST = 200


@router.get("", response=ServerPage, operation_id="list_servers", summary="List servers")
async def index(
    request: WebRequest,
    cursor: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
) -> ServerPage:
    """Servers and bundles that this token has access to, by short name. Scope `mcp:list`."""
    caller = caller_of(request)
    caller.require(AgentScope.LIST)
    return await work(_page, caller, cursor, limit)


def _page(caller: Caller, cursor: str, limit: int) -> ServerPage:
    servers = caller.servers().filter(archived_at=None).alias(place=_place()).filter(place__gt=cursor).order_by("place")
    rows = [_of_server(server, session_of(server)) for server in with_session(servers[: limit + 1], caller.user)]
    rows += [_of_bundle(bundle) for bundle in _bundles(caller, cursor)[: limit + 1]]
    rows.sort(key=lambda row: row.slug)
    return ServerPage(items=rows[:limit], next=rows[limit - 1].slug if len(rows) > limit else None)


def _bundles(caller: Caller, cursor: str) -> list[Bundle]:
    found = Bundle.objects.filter(
        deleted_at=None,
        members__retired_at=None,
        members__server__in=_members(caller).values("pk"),
    )
    found = found.filter(slug=caller.only) if caller.only else found
    return list(found.alias(place=_place()).filter(place__gt=cursor).distinct().order_by("place"))


def _place() -> Collate:
    """Position in the list, by code points as in Python. Otherwise PostgreSQL would sort by its own locale."""
    return Collate("slug", "C" if database().vendor == "postgresql" else "BINARY")


def _members(caller: Caller) -> QuerySet[Server]:
    """The servers that a bundle may consist of for this token. A grant for a bundle covers its members, but does not
    list them."""
    rows = access.visible_servers(caller.user).filter(archived_at=None)
    reached = caller.principal.server_ids
    return rows if reached is None else rows.filter(pk__in=reached)


@router.get("/{slug}", response=ServerOut, operation_id="get_server", summary="Get a server")
async def detail(request: WebRequest, slug: str) -> ServerOut:
    """One server or bundle. Scope `mcp:list`."""
    caller = caller_of(request)
    caller.require(AgentScope.LIST)
    return await work(_detail, caller, slug)


def _detail(caller: Caller, slug: str) -> ServerOut:
    if caller.only not in ("", slug):
        raise NoEndpoint
    place = endpoints.endpoint_of(caller.principal, slug)
    if isinstance(place, endpoints.BundleEndpoint):
        return _of_bundle(place.bundle)
    return _of_server(place.server, place.session)


def _of_server(server: Server, session: McpSession | None) -> ServerOut:
    state = SessionState(session.state) if session is not None else SessionState.DISCONNECTED
    return ServerOut(
        slug=server.slug,
        name=server.name,
        kind="server",
        description=server.description,
        enabled=server.enabled,
        state=state.value,
        mcp_url=address_of(server.slug),
    )


def _of_bundle(bundle: Bundle) -> ServerOut:
    return ServerOut(
        slug=bundle.slug,
        name=bundle.name,
        kind="bundle",
        description="",
        enabled=True,
        state=None,
        mcp_url=address_of(bundle.slug),
    )
