"""*Package*: what a server's launcher runs, pinned to a version and its hash; updates, and going back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.models import PinnedPackage, Server
from servers.packages import page as reads
from servers.packages import pins
from servers.requests import WebRequest
from sessions.catalog.definition_versions import pretty
from sessions.connections import commands
from sessions.differences.alignment import Budget
from sessions.differences.text import TextDifference, compare_texts
from sessions.overview import server_page
from sessions.views.server_tabs import server_context


@dataclass(frozen=True)
class ChangedTool:
    name: str
    change: str
    reasons: list[str]
    text: TextDifference | None


@require_safe
def page(request: WebRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    found = reads.page(server)
    context: dict[str, Any] = {
        "server": server,
        "package": found,
        "tools": _tools(found.offer) if found and found.offer else None,
        "may_decide": pins.may_decide(request.user),
        "lacking": [
            access.lacking(permission) for permission in pins.PERMISSIONS if not access.may(request.user, permission)
        ],
    }
    if request.htmx:
        return render(request, "packages/_package.html", context)
    return render(
        request, "packages/page.html", server_context(request, server_page.header(server), "package") | context
    )


def _tools(offer: PinnedPackage) -> dict[str, Any] | None:
    """The changed tools; None until they have been compared."""
    found = offer.tools
    if not found:
        return None
    changed = [
        ChangedTool(str(one["name"]), str(one["change"]), list(one["reasons"]), _lines(one["before"], one["after"]))
        for one in found["changed"]
    ]
    return {**found, "changed": changed}


def _lines(before: str, after: str) -> TextDifference | None:
    one, other = pretty(before), pretty(after)
    return compare_texts(one, other, Budget()) if one is not None and other is not None else None


@require_POST
def check(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server, actor: Actor) -> str:
        found = pins.request_check(actor, request.user, server)
        if found:
            commands.ask_worker("package", server.uid, server.worker_label)
        return "Checking the registry." if found else "Nothing is pinned yet."

    return _act(request, slug, act)


@require_POST
def compare(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server, actor: Actor) -> str:
        pins.request_comparison(actor, request.user, server, request.POST.get("integrity", ""))
        commands.ask_worker("package", server.uid, server.worker_label)
        return "Starting the offered version once to list its tools."

    return _act(request, slug, act)


@require_POST
def update(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server, actor: Actor) -> str:
        row = pins.update(actor, request.user, server, request.POST.get("integrity", ""))
        return f"{server.name} now runs {row.name} {row.version}."

    return _act(request, slug, act)


@require_POST
def go_back(request: WebRequest, slug: str) -> HttpResponse:
    def act(server: Server, actor: Actor) -> str:
        row = pins.go_back(actor, request.user, server, request.POST.get("integrity", ""))
        return f"{server.name} is back to {row.name} {row.version}."

    return _act(request, slug, act)


def _act(request: HttpRequest, slug: str, act: Callable[[Server, Actor], str]) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    try:
        messages.success(request, act(server, Actor.of(request)))
    except ValidationError as problem:
        messages.error(request, " ".join(problem.messages))
    return redirect("servers:package", server.slug)
