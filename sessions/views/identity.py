"""*Identity*: which identity a user's calls to a server use, the user's own credentials, and the return to the shared
identity."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from servers import access
from servers.audit.record import Actor
from servers.credentials import board, identities, variables, vault
from servers.credentials.forms.credential import ENTERED, OwnCredentialForm
from servers.credentials.kinds import Parts
from servers.crypto import SealError
from servers.enums import CredentialKind, TransportKind
from servers.models import Credential, Identity, Server
from sessions.catalog import search
from sessions.overview import server_page
from sessions.views.server_tabs import server_context

SUBSCRIPTIONS_SHOWN = 50


def _own(request: HttpRequest, server: Server) -> Identity | None:
    """Includes an identity that is not used now, because the server uses only the shared one."""
    return access.own_identities(request.user).filter(server=server).first()


def _context(request: HttpRequest, server: Server) -> dict[str, Any]:
    own = _own(request, server)
    return server_context(request, server_page.header(server), "identity") | {
        "own": own,
        "uses": board.own_uses(own) if own else [],
        "place": board.place_words(server),
    }


@require_safe
def page(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_for(request.user, slug)
    return render(request, "identity/page.html", _context(request, server))


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest, slug: str) -> HttpResponse:
    """`?kind=` chooses the fields. The first credential creates the identity."""
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), identities.PERMISSION)
    except access.ServerReplaced as found:
        messages.error(request, str(found))
        return redirect("servers:identity", found.server.slug)
    if (moved := _moved(request, server)) is not None:
        return moved
    kinds = _kinds(server)
    requested = request.GET.get("kind", "")
    kind = CredentialKind(requested) if requested in kinds else kinds[0]
    fillable = sorted(variables.fillable(server)) if kind == CredentialKind.ENVIRONMENT else []
    form = OwnCredentialForm(kind, request.POST if request.method == "POST" else None, variables=fillable)
    if request.method == "POST" and form.is_valid() and (made := _created(request, server, form)) is not None:
        messages.success(request, f"{made.name} is stored encrypted. Your personal session connects with it.")
        return redirect("servers:identity", server.slug)
    context = _context(request, server) | {"form": form, "kind": kind, "kinds": kinds, "fillable": fillable}
    return render(request, "identity/add.html", context, status=422 if form.errors else 200)


def _moved(request: HttpRequest, server: Server) -> HttpResponse | None:
    """A redirect if the server's address is no longer the one that the page showed as the secret's destination."""
    place = board.place_words(server)
    if request.POST.get("place", place) == place:
        return None
    words = (
        f"The address of {server.name} has changed since this page was opened, so nothing was stored. Check it first."
    )
    messages.error(request, words)
    address = reverse("servers:own_credential", args=[server.slug])
    return redirect(f"{address}?{request.GET.urlencode()}")


def _kinds(server: Server) -> list[CredentialKind]:
    """References belong to the operator, so personal sessions cannot use them."""
    local = server.transport == TransportKind.STDIO
    return [kind for kind in ENTERED if (kind == CredentialKind.ENVIRONMENT) == local and not kind.by_reference]


def _created(request: HttpRequest, server: Server, form: OwnCredentialForm) -> Credential | None:
    actor = Actor.of(request)
    try:
        parts = Parts(form.kind, form.details(), form.secrets())
        return vault.create_own(actor, request.user, server, parts)
    except ValidationError as problem:
        form.refuse(problem)
    except SealError as problem:
        form.refuse(ValidationError(str(problem)))
    return None


@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, slug: str, uid: UUID) -> HttpResponse:
    """GET asks for confirmation; POST deletes."""
    server = access.server_for(request.user, slug)
    own = access.own_identities(request.user).filter(server=server)
    credential = Credential.objects.filter(uid=uid, owner_id=request.user.pk, uses__identity__in=own).first()
    if request.method != "POST" and credential is not None:
        return render(request, "identity/remove.html", _context(request, server) | {"credential": credential})
    try:
        if credential is None:
            raise ValidationError("You don't have this credential on this server.")
        vault.delete_own(Actor.of(request), request.user, server, credential)
    except ValidationError as problem:
        messages.error(request, " ".join(problem.messages))
    else:
        messages.success(request, f"{credential.name} was deleted. Your personal session connects without it.")
    return redirect("servers:identity", server.slug)


@require_http_methods(["GET", "POST"])
def give_up(request: HttpRequest, slug: str) -> HttpResponse:
    """GET shows what ends with the identity; POST ends it."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "view")
    own = _own(request, server)
    if own is None:
        messages.info(request, "You have no personal identity on this server.")
        return redirect("servers:identity", server.slug)
    if request.method == "POST":
        identities.end(Actor.of(request), request.user, server)
        messages.success(request, f"Your own credentials for {server.name} were deleted and your session was closed.")
        return redirect("servers:identity", server.slug)
    server.seen_as = own.pk
    watched = search.watched(server)
    context = _context(request, server) | {"watched": watched, "shown": watched.rows[:SUBSCRIPTIONS_SHOWN]}
    return render(request, "identity/give_up.html", context)
