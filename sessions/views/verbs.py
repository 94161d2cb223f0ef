"""What one click does to a server or its session. Each says what happens to the session, calls and subscriptions."""

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from servers.domain import registration
from servers.models import Server
from sessions.domain import commands, pausing, queries
from sessions.models import McpSession


def _back(server: Server) -> HttpResponseRedirect:
    return redirect("servers:tools", server.slug)


def _session_verb(
    request: HttpRequest, slug: str, verb: Callable[[Actor, McpSession], bool], said: str, late: str = ""
) -> HttpResponse:
    """Session verbs are orders in a row, so they answer at once; the page sees the effect live.

    `late`: what is said when somebody else was faster.
    """
    server = access.server_for(request.user, slug, "call_tool")
    try:
        session = commands.session_for(request.user, server)
        changed = verb(Actor.of(request), session)
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


def _unavailable(request: HttpRequest, server: Server, words: str) -> HttpResponse:
    """The database did not take the order in time."""
    if request.htmx:
        return HttpResponse(words, status=503, content_type="text/plain")
    messages.error(request, words)
    return _back(server)


def _needs_own(request: HttpRequest, server: Server, words: str) -> HttpResponse:
    if request.htmx:
        return HttpResponse(words, status=422, content_type="text/plain")
    messages.error(request, words)
    return redirect("servers:identity", server.slug)


@require_POST
def connect(request: HttpRequest, slug: str) -> HttpResponse:
    return _session_verb(request, slug, commands.want_session, "Connecting {name}.")


@require_POST
def disconnect(request: HttpRequest, slug: str) -> HttpResponse:
    said = (
        "Disconnecting {name}. Calls in flight are cancelled; it opens again when someone connects it or runs a tool."
    )
    return _session_verb(request, slug, commands.close_session, said)


@require_POST
def reconnect(request: HttpRequest, slug: str) -> HttpResponse:
    said = "Reconnecting {name}. Calls in flight end as outcome unknown when the server does not answer first."
    return _session_verb(request, slug, commands.reconnect, said)


@require_POST
def refresh(request: HttpRequest, slug: str) -> HttpResponse:
    return _session_verb(request, slug, commands.refresh, "Reading the lists of {name} again.")


@require_POST
def retry(request: HttpRequest, slug: str) -> HttpResponse:
    late = "{name} does not wait for a try any more."
    return _session_verb(request, slug, pausing.retry, "Trying {name} again.", late)


@require_POST
def pause(request: HttpRequest, slug: str) -> HttpResponse:
    said = "{name} is paused. Calls in flight end first; new ones are refused until somebody resumes it."
    return _session_verb(request, slug, pausing.pause, said, "{name} was paused already.")


@require_POST
def resume(request: HttpRequest, slug: str) -> HttpResponse:
    said = "{name} is resumed. It connects as its connection policy says."
    return _session_verb(request, slug, pausing.resume, said, "{name} was resumed already.")


@require_POST
def enable(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug, "change")
    registration.enable(Actor.of(request), request.user, server)
    messages.success(request, f"{server.name} is enabled. It connects as its connection policy says.")
    return _back(server)


@require_POST
def restore(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug, "change")
    registration.restore(Actor.of(request), request.user, server)
    messages.success(request, f"{server.name} is back in the list, disabled until you enable it.")
    return _back(server)


_WORDS = {
    "disable": (
        "Disable",
        "The session is closed, calls in flight are cancelled and new ones refused. The registration, its history "
        "and what it offers stay. Enable it again at any time.",
    ),
    "archive": (
        "Archive",
        "The session is closed, calls in flight are cancelled and the server leaves the list. Its history stays and "
        "it can be restored.",
    ),
    "delete": (
        "Delete for good",
        "The session is closed and calls in flight are cancelled. The registration, its credentials, log and list of "
        "tools are erased. Calls and audit events stay, with the server's name.",
    ),
}


def _confirmed(
    request: HttpRequest, slug: str, verb: str, right: str, act: Callable[[Server], object], said: str
) -> HttpResponse:
    """GET asks, with what depends on the server; POST acts. Deleting wants the name typed."""
    server = access.server_for(request.user, slug, right)
    title, effect = _WORDS[verb]
    wrong_name = verb == "delete" and request.method == "POST" and request.POST.get("name", "").strip() != server.name
    if request.method != "POST" or wrong_name:
        context = {
            "nav": "servers",
            "server": server,
            "verb": verb,
            "title": title,
            "effect": effect,
            "wrong_name": wrong_name,
            "dependents": queries.dependents(server),
        }
        return render(request, "sessions/servers/confirm.html", context, status=422 if wrong_name else 200)
    act(server)
    messages.success(request, said.format(name=server.name))
    return redirect("servers:list") if verb != "disable" else _back(server)


@require_http_methods(["GET", "POST"])
def disable(request: HttpRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registration.disable(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "disable", "change", act, "{name} is disabled.")


@require_http_methods(["GET", "POST"])
def archive(request: HttpRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registration.archive(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "archive", "change", act, "{name} is archived.")


@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, slug: str) -> HttpResponse:
    def act(server: Server) -> None:
        registration.delete(Actor.of(request), request.user, server)

    return _confirmed(request, slug, "delete", "delete", act, "{name} is deleted.")
