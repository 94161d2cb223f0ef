"""Credential pages: a board of their state, one credential, adding, replacing, deleting, and their use by servers.

No page contains a value. A field that was filled in and rejected is redisplayed empty.
"""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.credentials import board as reading
from servers.credentials import vault
from servers.credentials.forms.credential import ENTERED, CredentialForm, shown_details
from servers.credentials.kinds import Parts
from servers.crypto import SealError
from servers.enums import CredentialKind, TransportKind
from servers.models import Credential, Server

_STARTED_WITH = {True: CredentialKind.ENVIRONMENT, False: CredentialKind.BEARER}


def credential_for(request: HttpRequest, uid: UUID, permission: str = "view_credential") -> Credential:
    access.require(request.user, "view_credential")
    found = Credential.objects.filter(uid=uid).first()
    if found is None:
        raise Http404("This credential does not exist.")
    access.require(request.user, permission)
    return found


@require_safe
def board(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_credential")
    rows = reading.board(access.visible_servers(request.user))
    context = {
        "nav": "credentials",
        "rows": rows,
        "most": reading.SHOWN if reading.is_cut(rows) else 0,
        "permissions": access.permissions(request.user),
    }
    return render(request, "credentials/board.html", context)


@require_safe
def detail(request: HttpRequest, uid: UUID) -> HttpResponse:
    return render(request, "credentials/detail.html", _detail(request, credential_for(request, uid)))


def _detail(request: HttpRequest, credential: Credential) -> dict[str, Any]:
    return {
        "nav": "credentials",
        "row": reading.row_of(credential, access.visible_servers(request.user)),
        "credential": credential,
        "details": shown_details(credential.kind, credential.details),
        "form": CredentialForm(credential.kind, stored=credential.details) if _replaceable(credential) else None,
        "permissions": access.permissions(request.user),
    }


def _replaceable(credential: Credential) -> bool:
    """Personal credentials are entered by their owner, on the server's page."""
    return credential.kind in ENTERED and credential.owner_id is None


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """`?kind=` selects the fields; `?server=` is the server that uses the credential at once."""
    access.require(request.user, "manage_credential")
    server = _requested_server(request)
    kind = _kind(request, server)
    form = CredentialForm(kind, request.POST if request.method == "POST" else None, url=server.url if server else "")
    if request.method == "POST" and form.is_valid() and (made := _created(request, form)) is not None:
        messages.success(request, f"{made.name} is stored encrypted. It can be replaced but is never shown.")
        return _attached(request, server, made) if server else redirect("credentials:detail", made.uid)
    context = {
        "nav": "credentials",
        "form": form,
        "kind": kind,
        "kinds": _kinds(server),
        "server": server,
        "permissions": access.permissions(request.user),
    }
    return render(request, "credentials/add.html", context, status=422 if form.errors else 200)


def _requested_server(request: HttpRequest) -> Server | None:
    slug = request.GET.get("server", "")
    return _server(request, slug) if slug else None


def _server(request: HttpRequest, slug: str) -> Server:
    """The server that the form was opened for. Raises access.Replaced."""
    return access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")


def _kind(request: HttpRequest, server: Server | None) -> CredentialKind:
    requested, offered = request.GET.get("kind", ""), _kinds(server)
    local = server is not None and server.transport == TransportKind.STDIO
    return CredentialKind(requested) if requested in offered else _STARTED_WITH[local]


def _kinds(server: Server | None) -> list[CredentialKind]:
    """The kinds that fit the server's transport."""
    if server is None:
        return list(ENTERED)
    local = server.transport == TransportKind.STDIO
    return [kind for kind in ENTERED if (kind == CredentialKind.ENVIRONMENT) == local]


def _created(request: HttpRequest, form: CredentialForm) -> Credential | None:
    parts = Parts(form.kind, form.details(), form.secrets())
    name, url = form.cleaned_data["name"], form.cleaned_data.get("url", "")
    try:
        return vault.create(Actor.of(request), request.user, name, parts, url)
    except ValidationError as problem:
        form.refuse(problem)
    except SealError as problem:
        form.refuse(ValidationError(str(problem)))
    return None


@sensitive_post_parameters()
@require_POST
def replace(request: HttpRequest, uid: UUID) -> HttpResponse:
    credential = credential_for(request, uid, "manage_credential")
    if not _replaceable(credential):
        raise Http404("Only the user who added this credential can replace it.")
    form = CredentialForm(credential.kind, request.POST, stored=credential.details)
    if form.is_valid():
        try:
            parts = Parts(form.kind, form.details(), form.secrets())
            vault.replace(Actor.of(request), request.user, credential, parts)
        except (ValidationError, SealError) as problem:
            form.refuse(problem if isinstance(problem, ValidationError) else ValidationError(str(problem)))
        else:
            messages.success(request, f"{credential.name} was replaced. Sessions that use it reconnect.")
            return redirect("credentials:detail", credential.uid)
    context = _detail(request, credential) | {"form": form}
    return render(request, "credentials/detail.html", context, status=422)


@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation and lists the servers that use it; POST deletes."""
    credential = credential_for(request, uid, "manage_credential")
    if request.method == "POST":
        vault.delete(Actor.of(request), request.user, credential)
        messages.success(request, f"{credential.name} was deleted.")
        return redirect("credentials:list")
    return render(request, "credentials/delete.html", _detail(request, credential))


# --- use by a server -----------------------------------------------------------------------------------------------------
@require_POST
def attach(request: HttpRequest, slug: str) -> HttpResponse:
    server = _server(request, slug)
    uid = request.POST.get("credential", "")
    credential = next((row for row in vault.attachable(server) if str(row.uid) == uid), None)
    if credential is None:
        messages.error(request, "Choose a credential of this server's address.")
        return redirect("servers:settings", server.slug)
    return _attached(request, server, credential)


def _attached(request: HttpRequest, server: Server, credential: Credential) -> HttpResponse:
    try:
        vault.attach(Actor.of(request), request.user, server, credential)
    except ValidationError as problem:
        messages.error(request, " ".join(problem.messages))
    else:
        messages.success(request, f"{server.name} will use {credential.name} from its next connection.")
    return redirect("servers:settings", server.slug)


@require_POST
def detach(request: HttpRequest, slug: str, uid: UUID) -> HttpResponse:
    server = _server(request, slug)
    credential = credential_for(request, uid)
    vault.detach(Actor.of(request), request.user, server, credential)
    messages.success(request, f"{server.name} no longer uses {credential.name}.")
    return redirect("servers:settings", server.slug)
