"""The results of the command palette: servers and what they offer, calls by number, people, and actions."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from servers import access
from servers.accounts.catalog import MANAGE
from servers.enums import DefinitionKind
from servers.kit.visible import visible_text
from servers.models import Definition, Server
from servers.numbers import whole_number
from sessions.catalog.search import containing
from sessions.saved_calls import reading
from sessions.views.visible_calls import visible_calls

_EACH = 8
#: kind of a definition -> page of the server, and the parameter that chooses one there
_PLACES = {
    DefinitionKind.TOOL: ("Tool", "servers:tools", "tool"),
    DefinitionKind.RESOURCE: ("Resource", "servers:resources", "uri"),
    DefinitionKind.PROMPT: ("Prompt", "servers:prompts", "prompt"),
}
Result = dict[str, Any]


@require_safe
def palette(request: HttpRequest) -> JsonResponse:
    """`{"results": [{"kind", "label", "hint", "url"}]}` for `?q=`; at most eight per kind. With `post`, choosing it sends a
    form to `url`, with `uid` if there is one. `verb`: selects an action's icon. `?server=`: the short name of the server whose page is open."""
    words = request.GET.get("q", "").strip()[:100]
    servers = access.visible_servers(request.user).filter(archived_at=None)
    found = _servers(servers, words)
    if len(words) > 1:
        found = [*_actions(request, servers, words), *found, *_definitions(request, servers, words)]
        found += _people(request, words)
    return JsonResponse({"results": [*_calls(request, words), *found]})


def _result(kind: str, label: str, hint: str, url: str, **more: Any) -> Result:
    return {"kind": kind, "label": visible_text(label), "hint": visible_text(hint), "url": url, **more}


def _servers(servers: QuerySet[Server], words: str) -> list[Result]:
    return [
        _result("Server", server.name, server.endpoint[:80], reverse("servers:tools", args=[server.slug]))
        for server in _named(servers, words)[:_EACH]
    ]


def _named(servers: QuerySet[Server], words: str) -> QuerySet[Server]:
    return servers.filter(containing(words, "name", "slug")) if words else servers


def _actions(request: HttpRequest, servers: QuerySet[Server], words: str) -> list[Result]:
    found = []
    if access.may(request.user, "add_server") and words.lower() in "add server":
        found.append(_result("Action", "Add server", "", reverse("servers:add"), verb="add"))
    verb, _, rest = words.partition(" ")
    if access.may(request.user, "change") and "reconnect".startswith(verb.lower()):
        named = list(_named(servers.filter(enabled=True), rest.strip())[:_EACH])
        named.sort(key=lambda server: server.slug != request.GET.get("server"))
        found += [
            _result(
                "Action",
                f"Reconnect {one.name}",
                "",
                reverse("servers:reconnect", args=[one.slug]),
                verb="reconnect",
                post=True,
                uid=str(one.uid),
            )
            for one in named
        ]
    wanted = words.removeprefix("run ").strip()
    saved = reading.seen(request.user).filter(containing(wanted, "name"), server__in=servers).order_by("name", "pk")
    return [
        *found,
        *(
            _result(
                "Action",
                f"Run {one.name}",
                one.server.name,
                reverse("saved_calls:run", args=[one.uid]),
                verb="run",
                post=True,
            )
            for one in saved[:_EACH]
        ),
    ]


def _definitions(request: HttpRequest, servers: QuerySet[Server], words: str) -> list[Result]:
    rows = Definition.objects.filter(
        containing(words, "key", "title"),
        server__in=servers,
        removed_at=None,
        identity__in=access.identities_of(request.user),
    ).select_related("server")
    found = []
    for kind, (name, page, parameter) in _PLACES.items():
        for row in rows.filter(kind=kind)[:_EACH]:
            url = reverse(page, args=[row.server.slug]) + "?" + urlencode({parameter: row.key})
            found.append(_result(name, row.key, row.server.name, url))
    return found


def _calls(request: HttpRequest, words: str) -> list[Result]:
    number = whole_number(words.removeprefix("#"))
    call = visible_calls(request.user).filter(pk=number).first() if number else None
    if call is None:
        return []
    return [
        _result("Call", f"#{call.pk} {call.target}"[:200], call.server_name, reverse("calls:detail", args=[call.uid]))
    ]


def _people(request: HttpRequest, words: str) -> list[Result]:
    if not access.may(request.user, MANAGE):
        return []
    named = containing(words, "username", "first_name", "email")
    people = get_user_model()._default_manager.filter(named).order_by("username")
    return [
        _result(
            "Person", user.get_username(), user.get_full_name() or user.email, reverse("users:detail", args=[user.pk])
        )
        for user in people[:_EACH]
    ]
