"""The resources of a server: the lists, one resource with its last content, and the form without JavaScript."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from servers import access, permissions
from servers.audit.record import Actor, ServerRef
from servers.enums import DefinitionKind
from servers.kit.visible import visible_text
from servers.models import Server
from servers.numbers import whole_number
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from servers.requests import WebRequest
from sessions.calls import placing, visibility
from sessions.calls.payload_readings import record_reading
from sessions.calls.placing import AuditUnavailable, Rejected, SubmittedArguments
from sessions.calls.plain_arguments import FIELD, typed
from sessions.catalog import not_offered, prompts, search
from sessions.catalog import resources as resource_page
from sessions.catalog.resources import RESOURCES_FROM, TEMPLATES_FROM, SelectedResource, StoredContent
from sessions.catalog.template_form import TemplateForm, template_form, values_in
from sessions.mcp.core.methods import RESOURCES_READ
from sessions.overview import server_page
from sessions.views.call_answers import see_other
from sessions.views.server_tabs import PARTS, list_context
from sessions.views.visible_calls import visible_call

_KINDS = (DefinitionKind.RESOURCE, DefinitionKind.RESOURCE_TEMPLATE)


@require_safe
def page(request: WebRequest, slug: str) -> HttpResponse:
    """`?uri=`, or `?template=` with `?arg.<name>=`, or `?call=` prefills the form. `?from=` and `?templates_from=` choose the
    parts of the lists; `?part=` returns only one of them, for a page that has the others. Opening the page reads
    nothing from the server.
    """
    server = access.server_for(request.user, slug)
    header = server_page.header(server)
    if (way := _of_call(request, server)) is not None:
        return way
    uri, template = request.GET.get("uri", ""), request.GET.get("template", "")
    starts = {name: whole_number(request.GET.get(name, "")) for name in (RESOURCES_FROM, TEMPLATES_FROM)}
    found = resource_page.lists(server, search.words_of(request.GET), uri, template, starts)
    lists = zip(_KINDS, (found.resources, found.templates), strict=True)
    context = list_context(request, header, "resources", *lists) | {"lists": found}
    if (part := request.GET.get("part", "")) in PARTS:
        of_templates = TEMPLATES_FROM in request.GET
        marked = {"chosen_uri": uri, "chosen_template": template, "of_templates": of_templates}
        return render(request, "resources/_rows.html", context | marked | {"part": part})
    chosen, form = _choose(request, server, found)
    if chosen is not None:
        context |= _chosen_context(request, header, chosen, form)
    if chosen is not None and chosen.template is not None and access.may(request.user, "call_tool"):
        context["suggests"] = prompts.suggests(
            header.mcp_session, DefinitionKind(chosen.template.kind), chosen.template.key
        )
    return render(request, "resources/page.html", context)


def _of_call(request: WebRequest, server: Server) -> HttpResponse | None:
    """`?call=` redirects to what that call read: to the form of the template that produces its URI, if any."""
    if "call" not in request.GET:
        return None
    try:
        call = visible_call(request, UUID(request.GET["call"]))
    except ValueError:
        raise Http404("This call does not exist, or you don't have access to it.") from None
    if call.method != RESOURCES_READ:
        raise Http404("This call read no resource.")
    query = {"uri": call.target}
    listed = server_page.definitions(server, DefinitionKind.RESOURCE).filter(key=call.target).exists()
    keys = server_page.definitions(server, DefinitionKind.RESOURCE_TEMPLATE).values_list("key", flat=True)
    for template in [] if listed else list(keys):
        if (values := values_in(template, call.target)) is not None:
            query = {"template": template} | {f"{FIELD}{name}": value for name, value in values.items()}
            break
    return redirect(reverse("servers:resources", args=[server.slug], query=query))


def _choose(
    request: HttpRequest, server: Server, found: resource_page.ResourceLists
) -> tuple[SelectedResource | None, TemplateForm | None]:
    uri, template = request.GET.get("uri", ""), request.GET.get("template", "")
    if not uri and not template:
        uri = found.resources.rows[0].key if found.resources.rows else ""
        template = found.templates.rows[0].key if found.templates.rows and not uri else ""
    if template:
        values = typed(request.GET)
        form = template_form(template, values, checked=bool(values))
        chosen = resource_page.choose_template(server, template, form.uri)
        if chosen is None:
            raise Http404("The server does not list this template.")
        return chosen, form
    return (resource_page.choose_uri(server, uri) if uri else None), None


def _chosen_context(
    request: HttpRequest, header: server_page.ServerHeader, chosen: SelectedResource, form: TemplateForm | None
) -> dict[str, Any]:
    server = header.server
    context: dict[str, Any] = {
        "chosen": chosen,
        "chosen_uri": "" if chosen.template else chosen.uri,
        "chosen_template": chosen.template.key if chosen.template else "",
        "template_form": form,
    }
    if not chosen.uri:
        return context
    kept, latest = resource_page.what_was_read(request.user, server, chosen.uri)
    if kept is not None:
        _record_reading(Actor.of(request), server, chosen.uri, kept)
    return context | {
        "kept": kept,
        "latest": latest,
        "hidden": latest is not None and not visibility.may_read(request.user, latest),
        "subscription": resource_page.subscription_of(server, chosen.uri),
        "no_subscriptions": not_offered.no_subscriptions(header.mcp_session),
    }


def _record_reading(actor: Actor, server: Server, uri: str, kept: StoredContent) -> None:
    if kept.call is not None:
        record_reading(actor, kept.call, kept.call.result)
    elif kept.version is not None:
        context = PayloadContext(ServerRef.of(server), kept.version.subscription.identity.name, uri)
        payload_readings.record(actor, [kept.version.contents], context)


@require_safe
def expand(request: HttpRequest, slug: str) -> JsonResponse:
    """The URI that a template makes from the input: `{"uri", "shown", "errors", "problem", "subscribe"}`. `subscribe`
    is the button for that resource. `?uid=`: of the server that the page was opened for."""
    server = access.server_of_form(request.user, slug, request.GET.get("uid", ""), "view")
    template = request.GET.get("template", "")
    if not server_page.definitions(server, DefinitionKind.RESOURCE_TEMPLATE).filter(key=template).exists():
        raise Http404("The server does not list this template.")
    form = template_form(template, typed(request.GET), checked=True)
    made = {"uri": form.uri, "shown": visible_text(form.uri), "errors": form.errors, "problem": form.problem}
    return JsonResponse(made | {"subscribe": _subscribe_button(request, server, form.uri) if form.uri else ""})


def _subscribe_button(request: HttpRequest, server: Server, uri: str) -> str:
    context = {
        "server": server,
        "uri": uri,
        "subscription": resource_page.subscription_of(server, uri),
        "no_subscriptions": not_offered.no_subscriptions(server_page.own_session(server)),
        "permissions": access.permissions(request.user),
    }
    return render_to_string("subscriptions/_subscribe.html", context, request)


@require_POST
def read(request: HttpRequest, slug: str) -> HttpResponse:
    """The same call as through the socket. If it is refused, the response redirects back with the reason.
    `?uid=`: of the server that the page was opened for."""
    server = access.server_of_form(request.user, slug, request.GET.get("uid", ""), "view")
    permissions.require(request.user, Actor.of(request), "call_tool", server)
    template, values = request.POST.get("template", ""), typed(request.POST)
    form = template_form(template, values, checked=True) if template else None
    uri = form.uri if form else request.POST.get("uri", "")
    try:
        if not uri:
            raise Rejected(form.problem or "Fill in the fields of the template." if form else "Enter a URI.")
        given = SubmittedArguments(value={})
        return see_other(placing.place(Actor.of(request), request.user, server, uri, given, method=RESOURCES_READ))
    except (Rejected, AuditUnavailable) as problem:
        messages.error(request, str(problem))
    back = {"template": template} | {f"{FIELD}{name}": value for name, value in values.items()}
    target = redirect("servers:resources", server.slug)
    target["Location"] += "?" + urlencode(back if template else {"uri": uri})
    return target
