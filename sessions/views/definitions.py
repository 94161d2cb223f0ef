"""The history of one definition: its versions, what each means, and the difference of two of them."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from servers import access
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.domain import definition_history, server_pages
from sessions.views.servers import server_context

_TABS = {
    DefinitionKind.TOOL: ("tools", "tool"),
    DefinitionKind.RESOURCE: ("resources", "uri"),
    DefinitionKind.RESOURCE_TEMPLATE: ("resources", "template"),
    DefinitionKind.PROMPT: ("prompts", "prompt"),
}


def number(text: str) -> int | None:
    """A row's id in a URL."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@require_safe
def history(request: HttpRequest, slug: str, kind: str) -> HttpResponse:
    """`?key=` names the definition; `?version=` and `?against=` the two that are compared."""
    server = access.server_for(request.user, slug)
    definition = _definition(server, kind, request.GET.get("key", ""))
    tab, parameter = _TABS[DefinitionKind(definition.kind)]
    context = server_context(request, server_pages.header(server), tab) | {
        "definition": definition,
        "kind_word": DefinitionKind(definition.kind).label,
        "parameter": parameter,
        "versions": definition_history.versions(definition, number(request.GET.get("before", ""))),
    }
    return render(request, "sessions/catalog/versions.html", context | _chosen(request, definition))


def _definition(server: Server, kind: str, key: str) -> Definition:
    if kind not in DefinitionKind.values:
        raise Http404("There is no such kind.")
    definition = definition_history.definition_of(server, kind, key)
    if definition is None:
        raise Http404("The server never listed this.")
    return definition


def _chosen(request: HttpRequest, definition: Definition) -> dict[str, Any]:
    """The version that is looked at, and the one it is compared with: the one before, unless another is named."""
    chosen = definition_history.version(definition, number(request.GET.get("version", "")))
    against = number(request.GET.get("against", ""))
    if chosen is None:
        raise Http404("There is no such version.")
    other = (
        definition_history.version(definition, against) if against else definition_history.before(definition, chosen)
    )
    if against and other is None:
        raise Http404("There is no such version.")
    comparable = other is not None and other.described and chosen.described
    return {
        "chosen": chosen,
        "against": other,
        "comparison": definition_history.compare(other, chosen) if other is not None and comparable else None,
        "pretty": definition_history.pretty(chosen.row.body) if chosen.described and not comparable else None,
    }
