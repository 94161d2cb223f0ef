"""*Sign in* at a server's authorization server: what will happen, going there, and coming back.

`go` redirects there, so no page contains the URL with its `state`. Coming back ends in a redirect, so neither the
address bar nor the history keeps the code.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from servers import access
from servers.audit.record import Actor
from servers.credentials import authorizations, grants, issuers
from servers.credentials.forms.authorization import ClientForm
from servers.credentials.grants import EnteredClient
from servers.crypto import SealError
from servers.enums import AuthorizationState, IdentityKind, SignsInAs, TransportKind
from servers.models import Server, ServerAuthorization
from servers.requests import WebRequest
from sessions.connections import client_document, commands
from sessions.overview import server_page
from sessions.views.server_tabs import server_context

_WAITS_FOR_WORKER = (AuthorizationState.REQUESTED, AuthorizationState.ANSWERED)


def sign_in_page(user: access.User, server: Server) -> str:
    """The name of the page where this person signs in for calls to the server: for themselves if everyone needs their
    own credential, otherwise for all users. Empty if they may not."""
    if server.transport == TransportKind.STDIO:
        return ""
    if server.signs_in_as == SignsInAs.PERSONAL:
        return "servers:own_sign_in" if access.may(user, "call_tool") else ""
    may = access.may(user, "change") and access.may(user, authorizations.PERMISSION)
    return "servers:sign_in" if may else ""


def _server(request: WebRequest, slug: str) -> Server:
    """Raises access.ServerReplaced for the form of a server whose short name now belongs to another server."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    access.require(request.user, "manage_credential", server)
    if server.transport == TransportKind.STDIO:
        raise Http404("A local process has no authorization server.")
    return server


def _browser(request: WebRequest) -> str:
    return str(request.session.session_key or "")


@require_http_methods(["GET", "POST"])
def sign_in(request: WebRequest, slug: str) -> HttpResponse:
    """GET explains what will happen; POST begins."""
    try:
        server = _server(request, slug)
    except access.ServerReplaced as found:
        messages.error(request, str(found))
        return redirect("servers:sign_in", found.server.slug)
    return _sign_in(request, server, authorizations.begin)


@require_http_methods(["GET", "POST"])
def own_sign_in(request: WebRequest, slug: str) -> HttpResponse:
    """The same for the user's own identity."""
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "call_tool")
    except access.ServerReplaced as found:
        messages.error(request, str(found))
        return redirect("servers:own_sign_in", found.server.slug)
    if server.transport == TransportKind.STDIO:
        messages.error(request, "A local process has no authorization server. Add a credential instead.")
        return redirect("servers:identity", server.slug)
    return _sign_in(request, server, authorizations.begin_own, own=True)


def _sign_in(
    request: WebRequest, server: Server, begin: Callable[..., ServerAuthorization], *, own: bool = False
) -> HttpResponse:
    host = urlsplit(server.url).netloc
    if request.POST.get("host", host) != host:
        words = (
            f"The address of {server.name} has changed since this page was opened. Nothing was sent. Check it first."
        )
        messages.error(request, words)
        return redirect("servers:own_sign_in" if own else "servers:sign_in", server.slug)
    client, forgettable = _entered(request, server, own=own)
    form = ClientForm(
        request.POST if request.method == "POST" else None, known=client is not None, forgettable=forgettable
    )
    if request.method == "POST" and form.is_valid():
        try:
            row = begin(Actor.of(request), request.user, server, _browser(request), form.client())
            commands.session_of(row.identity, server)
        except (ValidationError, SealError) as problem:
            form.add_error(None, problem.messages if isinstance(problem, ValidationError) else str(problem))
        else:
            return redirect("servers:sign_in_progress", server.slug, row.uid)
    context = server_context(request, server_page.header(server), "settings")
    context |= {"form": form, "callback": client_document.callback(), "host": host, "own": own}
    context["client"] = client
    return render(request, "authorization/sign_in.html", context, status=422 if form.errors else 200)


def _entered(request: WebRequest, server: Server, *, own: bool) -> tuple[EnteredClient | None, bool]:
    """The client ID that this sign-in uses unless another one is entered, and whether the sign-in may forget it: people
    who sign in for themselves also use the shared identity's client ID."""
    mine = access.own_identities(request.user).filter(server=server).first() if own else None
    if mine is not None and (client := grants.entered_client(mine)) is not None:
        return client, True
    shared = grants.entered_client(server.identities.get(kind=IdentityKind.SHARED))
    return shared, shared is not None and not own


def _of_person(request: WebRequest, slug: str, uid: UUID) -> ServerAuthorization:
    row = authorizations.of_person(request.user, _browser(request), uid)
    own = row is not None and row.identity.user_id == request.user.pk
    server = access.server_for(request.user, slug, "call_tool") if own else _server(request, slug)
    if row is None or row.identity.server_id != server.pk:
        raise Http404("This sign-in was not started in this browser. Start again.")
    return row


@never_cache
@require_safe
def progress(request: WebRequest, slug: str, uid: UUID) -> HttpResponse:
    """The state of the sign-in. While a worker is busy the page polls, which also repeats a lost wake-up."""
    row = _of_person(request, slug, uid)
    if row.state == AuthorizationState.DONE:
        messages.success(request, f"Signed in at {urlsplit(row.issuer).netloc}. The session is reconnecting.")
        return _leave(request, reverse("servers:tools", args=[slug]))
    over = row.expires_at <= timezone.now()
    if row.state in _WAITS_FOR_WORKER and not over:
        authorizations.ask(row)
    context: dict[str, Any] = server_context(
        request, server_page.header(access.with_identity_of(request.user, row.identity.server)), "settings"
    )
    context |= {"row": row, "over": over, "host": urlsplit(row.issuer).netloc, "insecure": row.issuer[:5] == "http:"}
    expected = issuers.expected(row.identity.server)
    context["expected"] = expected if expected and expected.issuer == row.issuer else None
    fragment = "authorization/_progress.html"
    return render(request, fragment if request.htmx else "authorization/progress.html", context)


def _leave(request: WebRequest, url: str) -> HttpResponse:
    """Redirect to another page, even from a fragment."""
    if not request.htmx:
        return redirect(url)
    response = HttpResponse()
    response.headers["HX-Redirect"] = url
    return response


@never_cache
@require_safe
@sensitive_variables()
def go(request: WebRequest, slug: str, uid: UUID) -> HttpResponse:
    row = _of_person(request, slug, uid)
    if row.state != AuthorizationState.READY or row.expires_at <= timezone.now():
        return redirect("servers:sign_in_progress", slug, uid)
    url = authorizations.address(row)
    if urlsplit(url).scheme not in ("https", "http"):
        raise Http404("This redirect address is not valid.")
    return _quiet(HttpResponseRedirect(url))


@never_cache
@require_safe
@sensitive_variables()
def callback(request: WebRequest) -> HttpResponse:
    """The authorization server redirects the browser here. A worker validates the parameters (`iss` first)."""
    try:
        row = authorizations.answer(request.user, _browser(request), request.GET.dict())
    except authorizations.Forged:
        context = {"nav": "servers", "row": _begun_last(request)}
        return _quiet(render(request, "authorization/forged.html", context, status=400))
    return _quiet(redirect("servers:sign_in_progress", row.identity.server.slug, row.uid))


def _begun_last(request: WebRequest) -> ServerAuthorization | None:
    """The sign-in that an unmatched answer was probably meant for."""
    row = authorizations.newest_of(request.user)
    if row is None or row.state == AuthorizationState.DONE:
        return None
    return row if access.visible_servers(request.user).filter(pk=row.identity.server_id).exists() else None


def _quiet(response: HttpResponse) -> HttpResponse:
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


@login_not_required
@require_safe
def client(request: WebRequest) -> JsonResponse:
    """The client ID metadata document of this installation, which authorization servers read."""
    return JsonResponse(client_document.document())
