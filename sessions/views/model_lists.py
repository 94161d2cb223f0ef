"""*As models see it*: what a model gets from a server or a bundle, and a bundle's overrides of a tool's texts."""

import json

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from servers import access
from servers.audit.record import Actor
from servers.bundles import changing, overrides
from servers.bundles.changing import Conflict, Membership
from servers.bundles.forms import OverrideForm
from servers.definitions import model_tokens
from servers.enums import DefinitionKind
from servers.models import Bundle
from sessions.agents import endpoints
from sessions.agents.catalog import bundles as bundle_rows
from sessions.agents.catalog import model_lists
from sessions.agents.catalog.bundles import Row
from sessions.views import bundles

PAGE = 25  # each with its JSON: 50 tools with 8 arguments took 240 kB


@require_safe
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    """`?advice=1`: only tools that could be improved."""
    server = access.visible_servers(request.user).filter(slug=slug, archived_at=None).first()
    bundle = None
    if server is not None:
        found = model_lists.of_server(request.user, server)
        name, back = server.name, reverse("servers:detail", args=[slug])
        policy = reverse("servers:agent_policy", args=[slug])
    else:
        bundle = bundles.seen(request, slug)
        found = model_lists.of_bundle(request.user, bundle, bundles.members_of(bundle))
        name, back = bundle.name, reverse("agents:bundle", args=[slug])
        policy = reverse("agents:bundle_policy", args=[slug])
    only = request.GET.get("advice") == "1"
    tools = [tool for tool in found.tools if tool.advice] if only else found.tools
    context = {
        "nav": "agents" if bundle is None else "bundles",
        "name": name,
        "slug": slug,
        "back": back,
        "policy": policy,
        "bundle": bundle,
        "found": found,
        "only": only,
        "page": Paginator(tools, PAGE).get_page(request.GET.get("page")),
        "vocabulary": model_tokens.NAME,
        "may_change": bundle is not None and access.may(request.user, changing.PERMISSION),
    }
    return render(request, "agents/model.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def override(request: HttpRequest, slug: str, alias: str) -> HttpResponse:
    """A bundle's override of the tool `?tool=`."""
    bundle = bundles.seen(request, slug, changing.PERMISSION)
    tool = _tool(request, bundle, alias)
    definition = json.loads(tool.body)
    form = OverrideForm(definition, tool.override, bundle.version, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        known = Membership.of(tool.member.row).overrides
        wanted = changing.with_member(bundle, alias, overrides={**known, tool.key: form.override()})
        try:
            changing.change(Actor.of(request), request.user, bundle, wanted, form.cleaned_data["version"])
        except Conflict:
            form.add_error(None, "Someone else has changed this bundle. Open it again to see their changes.")
        except ValidationError as problem:
            form.add_error(None, problem.messages)
        else:
            messages.success(request, "Saved. Connected agents are notified that the list changed.")
            return redirect("agents:model", bundle.slug)
    context = {
        "nav": "bundles",
        "bundle": bundle,
        "tool": tool,
        "definition": definition,
        "kept": sorted(set(tool.override.hidden) - overrides.left_out(definition, tool.override)),
        "form": form,
    }
    return render(request, "agents/bundle_tool.html", context, status=422 if form.errors else 200)


def _tool(request: HttpRequest, bundle: Bundle, alias: str) -> Row:
    rows = [row for row in bundles.members_of(bundle) if row.alias == alias]
    found = bundle_rows.rows_of(endpoints.members_of(request.user, rows), [DefinitionKind.TOOL], hidden=True)
    tool = next((row for row in found if row.key == request.GET.get("tool")), None)
    if tool is None:
        raise Http404("This bundle has no such tool.")
    return tool
