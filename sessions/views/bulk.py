"""One action on many servers: each gets what the single action does, with its own check and its own audit event."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable, ReferenceDeleted
from servers.models import Server
from servers.registration import registering
from servers.requests import WebRequest
from sessions.connections import commands
from sessions.enums import UNSENT, CallState, SessionState
from sessions.models import Call, McpSession
from sessions.overview import server_list
from sessions.views.forms import ServerListFilter

MOST = 1_000
#: a request that takes longer stops between two servers and reports how far it got; repeating the action continues it
SECONDS = 20.0
_NAMED = 5
_LISTED = 30

Act = Callable[[Actor, access.User, Server], bool]


def _enable(actor: Actor, user: access.User, server: Server) -> bool:
    was = server.enabled
    return registering.enable(actor, user, server).enabled != was


def _disable(actor: Actor, user: access.User, server: Server) -> bool:
    was = server.enabled
    return registering.disable(actor, user, server).enabled != was


def _reconnect(actor: Actor, user: access.User, server: Server) -> bool:
    if not server.enabled or server.archived_at is not None:
        raise ValidationError(f"{server.name} is disabled. Enable it first.")
    return commands.reconnect(actor, commands.session_to_control(actor, user, server))


def _delete(actor: Actor, user: access.User, server: Server) -> bool:
    registering.delete(actor, user, server)
    return True


@dataclass(frozen=True)
class Action:
    """`effect`: what is confirmed before it runs; empty for one that runs at once. `permission`: who may run it at all;
    the single action decides for each server."""

    name: str
    title: str
    icon: str
    permission: str
    done: str
    act: Act
    effect: str = ""


ACTIONS = {
    action.name: action
    for action in (
        Action("enable", "Enable", "player-play", "change_server", "enabled", _enable),
        Action(
            "disable",
            "Disable",
            "ban",
            "change_server",
            "disabled",
            _disable,
            "Their sessions close, calls in flight are cancelled and new calls are refused. Settings, history and definitions are kept.",
        ),
        Action(
            "reconnect",
            "Reconnect",
            "refresh",
            "change_server",
            "reconnecting",
            _reconnect,
            "Their sessions close and open again. Calls in flight end as outcome unknown if the server does not answer first.",
        ),
        Action(
            "delete",
            "Delete",
            "trash",
            "delete_server",
            "deleted",
            _delete,
            "Their sessions close and calls in flight are cancelled. Settings, credentials, logs and definitions are erased. Calls and audit events are kept with the servers' names.",
        ),
    )
}


def offered(user: access.User) -> list[Action]:
    return [action for action in ACTIONS.values() if _may(user, action)]


def _may(user: access.User, action: Action) -> bool:
    """A session of one's own identity is reconnected with permission to call."""
    if access.may(user, action.permission):
        return True
    return action.name == "reconnect" and access.may(user, "call_tool") and access.own_identities(user).exists()


@dataclass
class Result:
    """`refused`: reason -> names of servers. `left`: not reached."""

    changed: int = 0
    unchanged: int = 0
    refused: dict[str, list[str]] = field(default_factory=dict)
    left: int = 0


@require_POST
def act(request: WebRequest) -> HttpResponse:
    action = ACTIONS.get(request.POST.get("action", ""))
    if action is None:
        messages.error(request, "This action does not exist. Choose one above the list.")
        return _back(request)
    if not _may(request.user, action):
        access.require(request.user, action.permission)
    servers = _chosen(request)
    if not servers:
        messages.info(request, "No servers selected. Select at least one.")
        return _back(request)
    word = f"{action.name} {len(servers)}" if action.name == "delete" else ""
    typed = request.POST.get("typed", "").strip()
    confirmed = "confirmed" in request.POST
    if action.effect and (not confirmed or typed != word):
        return _confirmation(request, action, servers, word, wrong=confirmed)
    _say(request, action, _run(request, action, servers))
    return _back(request)


def _chosen(request: WebRequest) -> list[Server]:
    """Selected servers, or all that match the filters of the list; at most MOST, by name."""
    servers = access.visible_servers(request.user)
    if "all" in request.POST:
        servers = server_list.matching(
            request.user, ServerListFilter(QueryDict(request.POST.get("query", ""))).criteria()
        )
    else:
        servers = servers.filter(uid__in=_uids(request.POST.getlist("server")))
    return list(servers[:MOST])


def _uids(texts: list[str]) -> list[UUID]:
    """A field may contain several, separated by commas: the confirmation posts hundreds."""
    found = []
    for text in ",".join(texts).split(",")[:MOST]:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found


def _run(request: WebRequest, action: Action, servers: list[Server]) -> Result:
    actor, result = Actor.of(request), Result()
    end = time.monotonic() + SECONDS
    for place, server in enumerate(servers):
        if time.monotonic() > end:
            result.left = len(servers) - place
            break
        try:
            changed = action.act(actor, request.user, server)
        except access.Denied as denied:
            result.refused.setdefault(str(denied), []).append(server.name)
        except ValidationError as problem:
            result.refused.setdefault(" ".join(problem.messages), []).append(server.name)
        except (Server.DoesNotExist, ReferenceDeleted):
            result.refused.setdefault("It has been deleted.", []).append(server.name)
        except AuditUnavailable as problem:
            result.refused.setdefault(str(problem), []).append(server.name)
            result.left = len(servers) - place - 1
            break
        else:
            result.changed += changed
            result.unchanged += not changed
    return result


def _confirmation(
    request: WebRequest, action: Action, servers: list[Server], word: str, *, wrong: bool
) -> HttpResponse:
    running = Call.objects.filter(server__in=servers, state__in=[*UNSENT, CallState.SENT])
    context = {
        "nav": "servers",
        "action": action,
        "count": len(servers),
        "named": servers[:_LISTED],
        "more": max(0, len(servers) - _LISTED),
        "chosen": ",".join(str(server.uid) for server in servers),
        "query": request.POST.get("query", ""),
        "word": word,
        "wrong_word": wrong,
        "open_sessions": McpSession.objects.filter(server__in=servers, state=SessionState.READY).count(),
        "open_calls": running.count(),
        "cut": MOST if len(servers) == MOST else 0,
        "cancel_url": _address(request),
    }
    return render(request, "servers/bulk.html", context, status=422 if wrong else 200)


def _say(request: WebRequest, action: Action, result: Result) -> None:
    if result.changed:
        messages.success(request, f"{_servers(result.changed)} {action.done}.")
    if result.unchanged:
        messages.info(request, f"{_servers(result.unchanged)} unchanged.")
    for reason, names in result.refused.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        messages.error(request, f"Refused for {', '.join(names[:_NAMED])}{more}: {reason}")
    if result.left:
        messages.warning(request, f"{_servers(result.left)} not reached in time. Run the action again to continue.")


def _servers(count: int) -> str:
    return "1 server" if count == 1 else f"{count:,} servers"


def _address(request: WebRequest) -> str:
    """The URL of the list with its filters."""
    query = QueryDict(request.POST.get("query", "")).urlencode()
    return reverse("servers:list") + (f"?{query}" if query else "")


def _back(request: WebRequest) -> HttpResponseRedirect:
    return redirect(_address(request))
