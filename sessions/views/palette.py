"""What the command palette finds: pages, servers and their tools."""

from django.db.models import Q, QuerySet
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from servers import access
from servers.enums import DefinitionKind
from servers.models import Definition, Server

_EACH = 8


@require_safe
def palette(request: HttpRequest) -> JsonResponse:
    """`{"results": [{"kind", "label", "hint", "url"}]}` for `?q=`; at most eight per kind."""
    words = request.GET.get("q", "").strip()[:100]
    servers = access.visible_servers(request.user).filter(archived_at=None)
    found = _servers(servers, words) + (_tools(request, servers, words) if len(words) > 1 else [])
    return JsonResponse({"results": found})


def _servers(servers: QuerySet[Server], words: str) -> list[dict[str, str]]:
    matching = servers.filter(Q(name__icontains=words) | Q(slug__icontains=words)) if words else servers
    return [
        {
            "kind": "Server",
            "label": server.name,
            "hint": server.endpoint[:80],
            "url": reverse("servers:tools", args=[server.slug]),
        }
        for server in matching[:_EACH]
    ]


def _tools(request: HttpRequest, servers: QuerySet[Server], words: str) -> list[dict[str, str]]:
    matching = Definition.objects.filter(
        Q(key__icontains=words) | Q(title__icontains=words),
        server__in=servers,
        kind=DefinitionKind.TOOL,
        removed_at=None,
        identity__in=access.identities_of(request.user),
    ).select_related("server")
    return [
        {
            "kind": "Tool",
            "label": definition.key,
            "hint": definition.server.name,
            "url": reverse("servers:tools", args=[definition.server.slug]) + "?" + urlencode({"tool": definition.key}),
        }
        for definition in matching[:_EACH]
    ]
