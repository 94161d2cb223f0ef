"""The history of one definition: its versions, what each means, and the differences between two of them."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from servers.numbers import whole_number
from sessions.catalog import approving, definition_versions
from sessions.overview import server_page
from sessions.views.server_tabs import server_context

_TABS = {
    DefinitionKind.TOOL: ("tools", "tool"),
    DefinitionKind.RESOURCE: ("resources", "uri"),
    DefinitionKind.RESOURCE_TEMPLATE: ("resources", "template"),
    DefinitionKind.PROMPT: ("prompts", "prompt"),
}


@require_safe
def history(request: HttpRequest, slug: str, kind: str) -> HttpResponse:
    """`?key=` names the definition, `?version=` and `?against=` the two versions to compare."""
    server = access.server_for(request.user, slug)
    definition = _definition(server, kind, request.GET.get("key", ""))
    tab, parameter = _TABS[DefinitionKind(definition.kind)]
    context = server_context(request, server_page.header(server), tab) | {
        "definition": definition,
        "kind_word": DefinitionKind(definition.kind).label,
        "parameter": parameter,
        "versions": definition_versions.versions(definition, whole_number(request.GET.get("before", ""))),
        "approved": approving.approved_version(definition),
        "may_approve": approving.may_approve(request.user, server),
    }
    return render(request, "catalog/versions.html", context | _chosen(request, definition))


@require_POST
def approve(request: HttpRequest, slug: str, kind: str) -> HttpResponse:
    """`key` names the definition, `digest` the version that the page showed."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    definition = _definition(server, kind, request.POST.get("key", ""))
    if approving.approve(Actor.of(request), request.user, server, definition, request.POST.get("digest", "")):
        messages.success(request, "Approved. Agents can use it now.")
    else:
        messages.info(request, "There is nothing left to approve, or it changed again. Check the newest version.")
    address = reverse("servers:definition", args=[server.slug, kind])
    return redirect(f"{address}?{urlencode({'key': definition.key})}")


def _definition(server: Server, kind: str, key: str) -> Definition:
    if kind not in DefinitionKind.values:
        raise Http404("This kind does not exist.")
    definition = definition_versions.definition_of(server, kind, key)
    if definition is None:
        raise Http404("The server has never listed this.")
    return definition


def _chosen(request: HttpRequest, definition: Definition) -> dict[str, Any]:
    """The shown version and the one to compare it with: the one in `?against=`, or else the previous one."""
    chosen = definition_versions.version(definition, whole_number(request.GET.get("version", "")))
    against = whole_number(request.GET.get("against", ""))
    if chosen is None:
        raise Http404("This version does not exist.")
    other = (
        definition_versions.version(definition, against) if against else definition_versions.before(definition, chosen)
    )
    if against and other is None:
        raise Http404("This version does not exist.")
    comparable = other is not None and other.described and chosen.described
    return {
        "chosen": chosen,
        "against": other,
        "comparison": definition_versions.compare(other, chosen) if other is not None and comparable else None,
        "pretty": definition_versions.pretty(chosen.row.body) if chosen.described and not comparable else None,
    }
