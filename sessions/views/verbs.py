"""One-click actions on a server or its session. Confirmation pages say what happens to the session, calls and data."""

from collections.abc import Callable
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from servers.enums import EraChoice
from servers.kit.visible import is_typed
from servers.models import Server
from servers.registration import registering
from servers.registration.command_permissions import may_change
from servers.requests import WebRequest
from sessions.calls import session_pausing
from sessions.connections import commands
from sessions.mcp.core.methods import LOG_LEVELS
from sessions.models import McpSession
from sessions.overview import rows


def _back(server: Server) -> HttpResponseRedirect:
    return redirect("servers:tools", server.slug)


def _session_verb(
    request: WebRequest,
    slug: str,
    verb: Callable[[Actor, McpSession], bool],
    said: str,
    late: str = "",
    *,
    as_a_call: bool = False,
) -> HttpResponse:
    """Session verbs only change a row, so they return at once; the page sees the effect live.

    `late`: the message if nothing changed, for example because another person was faster. `as_a_call`: it affects other
    people's calls no more than a call does, so permission to call is enough.
    """
    server = access.server_of_form(
        request.user, slug, request.POST.get("uid", ""), "call_tool" if as_a_call else "view"
    )
    actor = Actor.of(request)
    try:
        if as_a_call:
            session = commands.session_for(request.user, server)
        else:
            session = commands.session_to_control(actor, request.user, server)
        changed = verb(actor, session)
    except AuditUnavailable as problem:
        return _unavailable(request, server, str(problem))
    except ValidationError as problem:
        return _needs_own(request, server, " ".join(problem.messages))
    if request.htmx:
        return HttpResponse(status=204)
    if not changed and late:
        messages.info(request, late.format(name=server.name))
    else:
        messages.success(request, said.format(name=server.name))
    return _back(server)


def _unavailable(request: WebRequest, server: Server, words: str) -> HttpResponse:
    """The change was not durable in time."""
    if request.htmx:
        return HttpResponse(words, status=503, content_type="text/plain")
    messages.error(request, words)
    return _back(server)


def _needs_own(request: WebRequest, server: Server, words: str) -> HttpResponse:
    if request.htmx:
        return HttpResponse(words, status=422, content_type="text/plain")
    messages.error(request, words)
    return redirect("servers:identity", server.slug)


@require_POST
def connect(request: WebRequest, slug: str) -> HttpResponse:
    return _session_verb(request, slug, commands.open_session, "Connecting {name}.", as_a_call=True)


@require_POST
def disconnect(request: WebRequest, slug: str) -> HttpResponse:
    said = (
        "Disconnecting {name}. Calls in flight are cancelled; it reconnects when someone connects it or runs a tool."
        " Until then, its subscriptions wait."
    )
    return _session_verb(request, slug, session_pausing.disconnect, said)


@require_POST
def reconnect(request: WebRequest, slug: str) -> HttpResponse:
    said = "Reconnecting {name}. Calls in flight end as outcome unknown if the server does not answer first."
    return _session_verb(request, slug, commands.reconnect, said)


@require_POST
def refresh(request: WebRequest, slug: str) -> HttpResponse:
    return _session_verb(request, slug, commands.refresh, "Reloading the lists of {name}.", as_a_call=True)


@require_POST
def retry(request: WebRequest, slug: str) -> HttpResponse:
    late = "{name} is not waiting for a retry."
    return _session_verb(request, slug, session_pausing.retry, "Retrying {name}.", late)


@require_POST
def pause(request: WebRequest, slug: str) -> HttpResponse:
    said = "{name} is paused. Calls in flight finish first; new calls are refused until it is resumed."
    return _session_verb(request, slug, session_pausing.pause, said, "{name} is already paused.")


@require_POST
def resume(request: WebRequest, slug: str) -> HttpResponse:
    said = "{name} is resumed and connects according to its connection policy."
    return _session_verb(request, slug, session_pausing.resume, said, "{name} is not paused.")


@require_POST
def log_level(request: WebRequest, slug: str) -> HttpResponse:
    """The level of the log messages that the server should send. Each of its sessions has its own."""
    level = request.POST.get("level", "")
    if level and level not in LOG_LEVELS:
        raise Http404("This log level does not exist.")
    words = (
        f"log messages at level {level} and above"
        if level
        else "its default log messages (in the legacy era, from the next connection)"
    )
    answer = _session_verb(
        request,
        slug,
        lambda actor, session: commands.set_log_level(actor, session, level),
        "{name} will send " + words + ".",
        "{name} already uses this log level.",
    )
    if answer.status_code != 302:
        return answer
    back = "servers:info" if request.POST.get("back") == "info" else "servers:logs"
    return redirect(back, access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view").slug)


@require_POST
def enable(request: WebRequest, slug: str) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    try:
        registering.enable(Actor.of(request), request.user, server)
    except ValidationError as problem:  # archived meanwhile
        messages.error(request, " ".join(problem.messages))
    else:
        messages.success(request, f"{server.name} is enabled and connects according to its connection policy.")
    return _back(server)


@require_POST
def restore(request: WebRequest, slug: str) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    registering.restore(Actor.of(request), request.user, server)
    enabling = "Enable it to connect." if may_change(request.user, server) else f"{_ONLY_WITH_COMMANDS}."
    messages.success(request, f"{server.name} was restored. {enabling}")
    return _back(server)


_ONLY_WITH_COMMANDS = "Only someone with permission to register commands can enable it"


_WORDS = {
    "disable": (
        "Disable",
        "ban",
        "The session closes, calls in flight are cancelled and new calls are refused. Settings, history and definitions are kept.",
    ),
    "archive": (
        "Archive",
        "archive",
        "The session closes, calls in flight are cancelled and the server is removed from the list. Its history is kept, and you can restore it.",
    ),
    "legacy": (
        "Reconnect as legacy",
        "refresh",
        "Sets the server to the legacy era (revision 2025-11-25 and earlier), where tools can request input while they run, and reconnects it now. Calls in flight end as outcome unknown if the server does not answer first. To undo this, choose another protocol era under Settings.",
    ),
    "delete": (
        "Delete for good",
        "trash",
        "The session closes and calls in flight are cancelled. Settings, credentials, log and definitions are erased. Calls and audit events are kept with the server's name.",
    ),
}


def _confirmed(
    request: WebRequest, slug: str, verb: str, permission: str, act: Callable[[Server], object], said: str
) -> HttpResponse:
    """GET asks for confirmation and shows what depends on the server; POST acts. Deleting requires the server's
    name. `?tool=` is the tool to go back to."""
    replaced = ""
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), permission)
    except access.ServerReplaced as found:
        server, replaced = found.server, str(found)
    title, icon, effect = _WORDS[verb]
    if verb == "disable":
        may = may_change(request.user, server)
        effect += " You can enable it again at any time." if may else f" {_ONLY_WITH_COMMANDS} again."
    back = reverse("servers:tools", args=[server.slug])
    if tool := request.GET.get("tool", ""):
        back += "?" + urlencode({"tool": tool})
    asked = request.method == "POST" and not replaced
    wrong_name = verb == "delete" and asked and not is_typed(request.POST.get("name", ""), server.name)
    if not asked or wrong_name:
        context = {
            "nav": "servers",
            "server": server,
            "verb": verb,
            "title": title,
            "icon": icon,
            "effect": effect,
            "back": back,
            "wrong_name": wrong_name,
            "replaced": replaced,
            "dependents": rows.dependents(request.user, server),
        }
        return render(request, "servers/confirm.html", context, status=409 if replaced else 422 if wrong_name else 200)
    act(server)
    messages.success(request, said.format(name=server.name))
    return redirect(back) if verb in ("disable", "legacy") else redirect("servers:list")


@require_http_methods(["GET", "POST"])
def disable(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registering.disable(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "disable", "change", act, "{name} is disabled.")


@require_http_methods(["GET", "POST"])
def legacy(request: WebRequest, slug: str) -> HttpResponse:
    """Offered by a call that failed because its tool needs what the modern era removed."""

    def act(server: Server) -> None:
        registering.choose_era(Actor.of(request), request.user, server, EraChoice.LEGACY)

    said = "{name} is reconnecting as legacy. Run the tool again once it is ready."
    return _confirmed(request, slug, "legacy", "change", act, said)


@require_http_methods(["GET", "POST"])
def archive(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registering.archive(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "archive", "change", act, "{name} is archived.")


@require_http_methods(["GET", "POST"])
def delete(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registering.delete(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "delete", "delete", act, "{name} was deleted.")
