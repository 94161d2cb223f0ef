"""*Agents*: the tokens of agents, what each may do, and which agents are connected.

A token is shown only in the response to the request that issued it: only its digest is stored.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Exists, OuterRef
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from servers import access
from servers.accounts import service_accounts
from servers.accounts.authority import Refused
from servers.agents import tokens
from servers.agents.configurations import configurations
from servers.agents.forms import TokenForm
from servers.audit.record import Actor
from servers.models import AgentToken, Server
from servers.numbers import whole_number
from servers.single_use_forms import ALREADY_USED, use_form
from sessions.agents import overview
from sessions.catalog import approving
from sessions.enums import SessionState
from sessions.models import McpSession
from sessions.overview import numbers


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    mark = numbers.agents_mark()  # first: later changes have a different mark
    seen = tokens.visible_tokens(request.user)
    whose = _person(request)
    if whose is not None:
        seen = seen.filter(user_id=whose.pk)
    sees_servers = access.may(request.user, "view")
    page = Paginator(tokens.active_first(seen), overview.SHOWN).get_page(request.GET.get("page"))
    context = {
        "nav": "agents",
        "page": page,
        "rows": page.object_list,
        "changed": approving.waiting(request.user),
        "connected": overview.connected(request.user, seen) if sees_servers else [],
        "sees_servers": sees_servers,
        "mark": mark,
        "everyone": access.may(request.user, tokens.MANAGE),
        "whose": whose,
        "administrator": access.may(request.user, "administer"),
        "may_issue": access.may(request.user, "call_tool"),
        "address": f"{settings.PUBLIC_URL}/mcp/",
    }
    return render(request, "agents/index.html", context)


def _person(request: HttpRequest) -> Any:
    """`?user=` shows only one person's tokens, to users who see everyone's."""
    number = whole_number(request.GET.get("user", ""))
    if number is None or not access.may(request.user, tokens.MANAGE):
        return None
    return get_user_model()._default_manager.filter(pk=number).first()


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def issue(request: HttpRequest) -> HttpResponse:
    """`?server=<uid>` chooses a server, `?account=<number>` a service account."""
    accounts = service_accounts.managed_by(request.user) if access.may(request.user, tokens.MANAGE) else []
    if not accounts:
        access.require(request.user, "call_tool")
    posted = request.method == "POST"
    initial: dict[str, Any] = {"account": request.GET.get("account", "")}
    if "server" in request.GET:
        initial["servers"] = [request.GET["server"]]
    form = TokenForm(request.user, request.POST if posted else None, accounts, initial=initial)
    if posted and form.is_valid():
        if not use_form(request):
            messages.info(request, ALREADY_USED)
            return redirect("agents:list")
        actor, account = Actor.of(request), form.chosen_account()
        try:
            if account is None:
                issued = tokens.issue(actor, request.user, form.wanted())
            else:
                issued = tokens.issue_for(actor, request.user, account, form.wanted())
        except Refused as refused:
            form.add_error(None, str(refused))
        except ValidationError as problem:
            form.add_error(None, problem)
        else:
            return _shown(request, issued)
    context = {"nav": "agents", "form": form}
    return render(request, "agents/issue.html", context, status=422 if form.errors else 200)


def _shown(request: HttpRequest, issued: tokens.Issued) -> HttpResponse:
    """The configurations are for one server that the token reaches, if possible for one that is ready."""
    token = issued.token
    chosen = access.visible_servers(request.user).filter(archived_at=None)
    sessions = McpSession.objects.filter(identity__in=access.identities_of(request.user), state=SessionState.READY)
    reached = chosen if token.every_server else chosen.filter(pk__in=token.servers.values("pk"))
    ready = Exists(sessions.filter(server=OuterRef("pk")))
    server: Server | None = reached.annotate(ready=ready).order_by("-ready", "-enabled", "name").first()
    slug = server.slug if server is not None else "SERVER"
    context = {
        "nav": "agents",
        "token": token,
        "text": issued.text,
        "slug": slug,
        "reached": server is not None,
        "many": token.every_server or token.servers.count() > 1,
        "configurations": configurations(slug, f"{settings.PUBLIC_URL}/mcp/{slug}", issued.text),
        "plain": settings.PUBLIC_URL.startswith("http:"),
    }
    return render(request, "agents/token.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def revoke(request: HttpRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST revokes."""
    token: AgentToken | None = tokens.visible_tokens(request.user).filter(uid=uid).first()
    if token is None:
        raise Http404("This token does not exist, or you don't have access to it.")
    if request.method != "POST" and token.state == "active":
        return render(request, "agents/revoke.html", {"nav": "agents", "token": token})
    if request.method == "POST" and tokens.revoke(Actor.of(request), request.user, token):
        messages.success(request, f"{token.name} was revoked. Agents that use it are now refused.")
    return redirect("agents:list")
