from typing import Annotated, Any, Final
from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router

from servers import access, permissions
from servers.agents import policies
from servers.audit.record import ServerRef
from servers.enums import AgentScope, PolicyEffect, PolicyKind
from servers.kit.pages import page_before
from servers.models import Server
from servers.numbers import whole_number
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from servers.requests import WebRequest
from sessions.agents.policy.policy_check import ASK_WHOM, refusals
from sessions.api.asking import Caller, caller_of, work
from sessions.api.problems import Problem, not_found
from sessions.api.shapes import (
    SubscriptionIn,
    SubscriptionOut,
    SubscriptionPage,
    VersionOut,
    VersionPage,
    VersionRow,
)
from sessions.mcp.core import methods
from sessions.mcp.server.refusals import FORBIDDEN, Refusal
from sessions.models import ResourceVersion, Subscription
from sessions.subscriptions import board, history, subscribing

router = Router(tags=["subscriptions"])
MOST: Final = 100
Cursor = Annotated[str, Query(max_length=20)]
Limit = Annotated[int, Query(ge=1, le=MOST)]


@router.get("", response=SubscriptionPage, operation_id="list_subscriptions", summary="List subscriptions")
async def index(
    request: WebRequest,
    server: Annotated[str, Query(max_length=64, description="Short name of a server.")] = "",
    active: bool | None = None,
    cursor: Cursor = "",
    limit: Limit = 50,
) -> SubscriptionPage:
    """Subscriptions to resources, newest first. Scope `mcp:read`."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    return await work(_page, caller, server, active, cursor, limit)


def _page(caller: Caller, server: str, active: bool | None, cursor: str, limit: int) -> SubscriptionPage:
    rows = board.subscriptions(caller.user, caller.servers())
    rows = rows.filter(server__slug=server) if server else rows
    rows = rows.filter(active=active) if active is not None else rows
    page = page_before(rows, "pk", _number(cursor), limit)
    return SubscriptionPage(items=[_out(row) for row in page.rows], next=_text(page.older))


@router.post("", response={201: SubscriptionOut}, operation_id="subscribe", summary="Subscribe to a resource")
async def create(request: WebRequest, given: SubscriptionIn) -> tuple[int, SubscriptionOut]:
    """Subscribe to a resource: every version is stored from now on. If a subscription already exists, it is
    returned; one that ended is resumed with its history. Needs the `mcp:read` scope, a token owner with permission to
    subscribe, and policies that allow the resource."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    return 201, await work(_create, caller, given)


def _create(caller: Caller, given: SubscriptionIn) -> SubscriptionOut:
    server = caller.servers().filter(slug=given.server, archived_at=None).first()
    if server is None:
        raise not_found("server")
    server = access.with_identity_of(caller.user, server)
    _require_allowed(caller, server, methods.RESOURCES_SUBSCRIBE, given.uri)
    return _out(subscribing.subscribe(caller.actor, caller.user, server, given.uri, title=given.title))


@router.get("/{uuid:uid}", response=SubscriptionOut, operation_id="get_subscription", summary="Get a subscription")
async def detail(request: WebRequest, uid: UUID) -> SubscriptionOut:
    """Scope `mcp:read`."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    return _out(await work(_found, caller, uid))


@router.delete("/{uuid:uid}", response={204: None}, operation_id="unsubscribe", summary="End a subscription")
async def end(request: WebRequest, uid: UUID) -> HttpResponse:
    """End a subscription. Its versions are kept. Needs the `mcp:read` scope and a token owner with permission to
    subscribe."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    await work(_end, caller, uid)
    return HttpResponse(status=204)


def _end(caller: Caller, uid: UUID) -> None:
    subscribing.unsubscribe(caller.actor, caller.user, _found(caller, uid))


@router.get("/{uuid:uid}/versions", response=VersionPage, operation_id="list_versions", summary="List versions")
async def versions(request: WebRequest, uid: UUID, cursor: Cursor = "", limit: Limit = 50) -> VersionPage:
    """The stored versions, newest first. Needs the `mcp:read` scope and policies that allow the resource; the digests
    also need a token owner with permission to read arguments and results."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    return await work(_versions, caller, uid, cursor, limit)


def _versions(caller: Caller, uid: UUID, cursor: str, limit: int) -> VersionPage:
    subscription = _found(caller, uid)
    _require_allowed(caller, subscription.server, methods.RESOURCES_READ, subscription.uri)
    page = page_before(subscription.versions.all(), "number", _number(cursor), limit)
    readable = access.may_read_payloads(caller.user)
    items = [VersionRow(**_version(item, readable=readable)) for item in page.rows]
    return VersionPage(items=items, next=_text(page.older))


@router.get(
    "/{uuid:uid}/versions/{int:number}", response=VersionOut, operation_id="get_version", summary="Get a version"
)
async def version(request: WebRequest, uid: UUID, number: int) -> VersionOut:
    """One version with its contents. Needs the `mcp:read` scope, a token owner with permission to read arguments and
    results, and policies that allow the resource."""
    caller = caller_of(request)
    caller.require(AgentScope.READ)
    return await work(_contents, caller, uid, number)


def _contents(caller: Caller, uid: UUID, number: int) -> VersionOut:
    subscription = _found(caller, uid)
    _require_allowed(caller, subscription.server, methods.RESOURCES_READ, subscription.uri)
    permissions.require(caller.user, caller.actor, "view_payload", subscription.server, subject=subscription.uri[:300])
    item = history.version(subscription, number)
    if item is None:
        raise not_found("version")
    context = PayloadContext(ServerRef.of(subscription.server), subscription.identity.name, subscription.uri)
    payload_readings.record(caller.actor, [item.contents], context)
    return VersionOut(**_version(item, readable=True), contents=history.contents(item, whole=True).items)


def _require_allowed(caller: Caller, server: Server, method: str, uri: str) -> None:
    """Check the policies of endpoint and token, as over MCP. *Ask* refuses too: versions cannot be approved one by one.
    Raises Refusal."""
    token = caller.principal.token
    verdict = policies.policies_at(server, token).decide(PolicyKind.RESOURCE, uri)
    if verdict.effect is not PolicyEffect.ALLOW:
        refusals.note(caller.actor, token, server, method, uri, verdict.why)
        words = f"{uri[:200]} can be neither followed nor read here. {verdict.why} {ASK_WHOM}"
        raise Refusal(403, FORBIDDEN, words, {"reason": "policy"})


def _found(caller: Caller, uid: UUID) -> Subscription:
    """Raises Problem (404)."""
    found = board.subscriptions(caller.user, caller.servers()).filter(uid=uid).first()
    if found is None:
        raise not_found("subscription")
    return found


def _out(row: Subscription) -> SubscriptionOut:
    return SubscriptionOut(
        id=row.uid,
        server=row.server.slug,
        uri=row.uri,
        title=row.title,
        active=row.active,
        state=row.state,
        reason=row.reason,
        created_at=row.created_at,
        created_by=row.created_by_name,
        changed_at=row.changed_at,
        newest_version=row.newest,
        read_detail=row.read_detail,
    )


def _version(item: ResourceVersion, *, readable: bool) -> dict[str, Any]:
    """Unsalted, the digest of small contents can confirm a guess: only those who may read the contents get it."""
    found = {name: getattr(item, name) for name in VersionRow.model_fields if name != "digest"}
    return {**found, "digest": (item.contents_digest or None) if readable else None}


def _number(cursor: str) -> int | None:
    """Raises Problem (422) if it is not a cursor of ours."""
    if cursor and (number := whole_number(cursor)) is not None:
        return number
    if cursor:
        raise Problem(422, "invalid-cursor", "This cursor does not belong to this list. Start again without it.")
    return None


def _text(older: int | None) -> str | None:
    return None if older is None else str(older)
