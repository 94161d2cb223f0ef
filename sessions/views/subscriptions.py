"""The subscription pages: the board, one subscription's history with a comparison of versions, a version as a file."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.audit.record import Actor, ServerRef
from servers.numbers import whole_number
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from sessions.models import ResourceVersion, Subscription
from sessions.subscriptions import board as reading
from sessions.subscriptions import history as past
from sessions.subscriptions.forms import BoardFilter


def subscription_for(request: HttpRequest, uid: UUID) -> Subscription:
    rows = reading.subscriptions(request.user, access.visible_servers(request.user))
    found = rows.filter(uid=uid).first()
    if found is None:
        raise Http404("This subscription does not exist, or you don't have access to it.")
    return found


@require_safe
def board(request: HttpRequest) -> HttpResponse:
    servers = access.visible_servers(request.user)
    form = BoardFilter(request.GET, reading.server_choices(request.user, servers))
    filters = form.filters()
    page = reading.board(request.user, servers, filters, request.GET.get("before", "")[:60])
    context = {
        "nav": "subscriptions",
        "form": form,
        "filtered": filters != reading.Filters(),
        "ignored_filters": form.ignored(),
        "page": page,
        "numbers": reading.numbers(request.user, servers),
        "any": bool(page.rows) or reading.subscriptions(request.user, servers).exists(),
        "permissions": access.permissions(request.user),
    }
    return render(request, "subscriptions/board.html", context)


def subscription_context(request: HttpRequest, subscription: Subscription, tab: str) -> dict[str, Any]:
    """The context of templates/subscriptions/base.html on every tab."""
    session = past.session_of(subscription)
    own_identity = past.is_own_identity(request.user, subscription)
    return {
        "nav": "subscriptions",
        "tab": tab,
        "subscription": subscription,
        "server": subscription.server,
        "standing": past.standing(subscription, session),
        "own_identity": own_identity,
        "resumable": own_identity and not subscription.active and subscription.server.archived_at is None,
        "gap": past.open_gap(subscription),
        "followers": past.followers(subscription) if subscription.active else 0,
        "spark": reading.sparkline_of(subscription),
        "mark": past.mark(subscription),
        "permissions": access.permissions(request.user),
        "may_read": access.may_read_payloads(request.user),
    }


@require_safe
def detail(request: HttpRequest, uid: UUID) -> HttpResponse:
    """`?version=` pins one version, `?against=` the one to compare it with; by default, the newest and the previous
    one."""
    subscription = subscription_for(request, uid)
    context = subscription_context(request, subscription, "changes")
    number = whole_number(request.GET.get("version", ""))
    item = past.version(subscription, number)
    gone = number if item is None else None
    item = item or past.version(subscription, None)
    context |= {
        "history": past.history(subscription, whole_number(request.GET.get("before", ""))),
        "item": item,
        "gone": gone,
        "shown": _shown(request, item) if item is not None and context["may_read"] else None,
        "read_automatically": past.read_automatically(subscription),
        "as_content": request.GET.get("view") == "content",
    }
    return render(request, "subscriptions/detail.html", context)


def _shown(request: HttpRequest, item: ResourceVersion) -> past.ShownVersion:
    number = whole_number(request.GET.get("against", ""))
    against = past.version(item.subscription, number) if number is not None else None
    against = against or past.before_version(item)
    _record_reading(request, item, against)
    return past.shown(item, against)


def _record_reading(request: HttpRequest, *items: ResourceVersion | None) -> None:
    found = [item for item in items if item is not None]
    subscription = found[0].subscription
    context = PayloadContext(ServerRef.of(subscription.server), subscription.identity.name, subscription.uri)
    payload_readings.record(Actor.of(request), [item.contents for item in found], context)


@require_safe
def content(request: HttpRequest, uid: UUID, number: int) -> HttpResponse:
    """One content of a version as raw bytes (`?item=`), or the JSON of all. A browser must never treat it as a page."""
    subscription = subscription_for(request, uid)
    access.require(request.user, "view_payload", subscription.server)
    item = past.version(subscription, number)
    if item is not None:
        _record_reading(request, item)
    file = past.file_of(item, whole_number(request.GET.get("item", ""))) if item is not None else None
    if file is None:
        raise Http404("This version is no longer stored or has no such content.")
    response = HttpResponse(file.data, content_type="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{file.name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response
