"""OAuth for agents: discovery, consent, tokens, and the clients that administrators know.

Consent is a page for the signed-in person. Everything else is requested by clients, without a sign-in or a cookie.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access, limits
from servers.accounts import attempts
from servers.agents.oauth import authorization_server, clients, grants, metadata, registration
from servers.agents.oauth.authorization_server import AuthorizationRequest, CannotReturn, Refused, Reply
from servers.agents.oauth.clients import BadClient
from servers.agents.oauth.forms import ClientForm, ConsentForm
from servers.agents.oauth.grants import Consent
from servers.audit.record import Actor
from servers.connect_limit import TooOften
from servers.enums import DocumentState
from servers.json import text as json_text
from servers.models import OAuthClient
from servers.requests import WebRequest
from servers.single_use_forms import ALREADY_USED, use_form

_MAY_NOT_CALL = "You don't have permission to call tools, so no client can act as you. Ask an administrator for access."
_ANOTHER = f"{access.ANOTHER_ENDPOINT} Nothing was allowed. Check the name above before you allow access."
_NO_DOCUMENTS = "mcpadmin does not currently accept client metadata documents. Ask an administrator to allow them, or to add this client."
_READING = (DocumentState.REQUESTED, DocumentState.READING)


# --- discovery -------------------------------------------------------------------------------------------------------
@login_not_required
@require_safe
def protected_resource(request: WebRequest, slug: str) -> JsonResponse:
    return JsonResponse(metadata.protected_resource(slug))


@login_not_required
@require_safe
def server_metadata(request: WebRequest) -> JsonResponse:
    found = metadata.authorization_server(registration=registration.is_open(), documents=registration.takes_documents())
    return JsonResponse(found)


# --- consent ---------------------------------------------------------------------------------------------------------
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_variables()
def authorize(request: WebRequest) -> HttpResponse:
    """GET asks the person, POST has the decision. Both validate the request in the query."""
    client_id = request.GET.get("client_id", "")
    try:
        if clients.is_document_url(client_id) and (page := _read_first(request, client_id)) is not None:
            return page
        asked = authorization_server.authorization_request(request.GET.urlencode())
    except (CannotReturn, BadClient) as problem:
        return _problem(request, str(problem))
    except TooOften as problem:
        return _problem(request, str(problem.message), status=429)
    except Refused as refused:
        if clients.may_be_sent_errors(refused.client, refused.url):
            return _to_client(refused.url)
        return _problem(request, str(refused), client=refused.client, back_url=refused.url)
    return _asked(request, asked)


def _asked(request: WebRequest, asked: AuthorizationRequest) -> HttpResponse:
    posted = request.method == "POST"
    endpoint = grants.endpoint_of(request.user, slug=asked.slug) if asked.slug else None
    actor = Actor.of(request)
    opened_for = request.POST.get("uid", "")
    is_another = endpoint is not None and opened_for not in ("", str(endpoint.uid))
    if posted and "deny" in request.POST:
        grants.decline(actor, asked.client, None if is_another else endpoint, asked.redirect_uri)
        return _to_client(asked.url(error="access_denied"))
    if asked.slug and endpoint is None:
        words = f"You can't use a server or bundle with the short name {asked.slug}."
        return _denied(request, words, asked, error="invalid_target")
    if not access.may(request.user, "call_tool"):
        return _denied(request, _MAY_NOT_CALL, asked)
    form = ConsentForm(request.user, asked.scopes, request.POST if posted else None, choose=endpoint is None)
    if is_another:
        form.add_error(None, _ANOTHER)
    if posted and form.is_valid():
        given: dict[str, Any] = form.cleaned_data
        chosen = endpoint or given["endpoint"]
        consent = Consent(asked.client, chosen, given["scopes"], given["days"], asked.redirect_uri, asked.challenge)
        try:
            return _to_client(asked.url(code=grants.consent(actor, request.user, consent)))
        except ValidationError as problem:
            form.add_error(None, problem)
    context = {
        "nav": "agents",
        "asked": asked,
        "form": form,
        "endpoint": endpoint,
        "back": _host(asked.redirect_uri),
        "local": clients.is_local(asked.redirect_uri),
    }
    status = 409 if is_another else 422 if form.errors else 200
    response = render(request, "oauth/consent.html", context, status=status)
    return _may_lead_on(response)


def _read_first(request: WebRequest, client_id: str) -> HttpResponse | None:
    """The page shown instead of consent if the client's metadata document must be read first. Raises BadClient and
    TooOften."""
    if not registration.takes_documents():
        raise BadClient(_NO_DOCUMENTS)
    if not access.may(request.user, "call_tool"):  # nor has mcpadmin connect to an address of their choice
        return _problem(request, _MAY_NOT_CALL, status=403)
    known = clients.usable(client_id)
    if request.method == "POST" and known is not None and clients.is_kept(known):  # a decision does not wait
        return None
    client = clients.of_document(Actor.of(request), request.user, client_id)
    heard = clients.ask(client)
    if client.blocked_at is not None or clients.is_read(client):
        return None
    return _document(request, client, heard=heard)


def _document(request: WebRequest, client: OAuthClient, *, heard: bool) -> HttpResponse:
    """While a worker reads the client's metadata document, and when it could not be read. `heard`: a worker runs."""
    waits = client.document in _READING
    context = {
        "nav": "agents",
        "client": client,
        "waits": waits,
        "no_worker": not heard,
        "address": request.get_full_path(),
        "reason": client.document_problem if access.may(request.user, "administer") else "",
    }
    if not request.htmx:
        return render(request, "oauth/document.html", context)
    if waits:
        return render(request, "oauth/_document.html", context)
    return _reloaded()


def _reloaded() -> HttpResponse:
    response = HttpResponse()
    response.headers["HX-Refresh"] = "true"
    return response


def _denied(
    request: WebRequest, words: str, asked: AuthorizationRequest, *, error: str = "access_denied"
) -> HttpResponse:
    return _problem(request, words, status=403, client=asked.client, back_url=asked.url(error=error))


def _problem(
    request: WebRequest, words: str, *, status: int = 400, client: OAuthClient | None = None, back_url: str = ""
) -> HttpResponse:
    context = {"nav": "agents", "words": words, "client": client, "back_url": back_url, "back": _host(back_url)}
    return render(request, "oauth/problem.html", context, status=status)


def _may_lead_on(response: HttpResponse) -> HttpResponse:
    """Chromium applies form-action to every redirect that follows a form, and a client's callback may redirect again,
    to a target that cannot be known in advance (Claude's leads to claude://). The rest of the policy stays, and no
    stranger can put a form on this page."""
    response._csp_replace = {"form-action": None}  # type: ignore[attr-defined]  # what django-csp's decorator sets
    return response


def _to_client(url: str) -> HttpResponse:
    """Not Django's redirect, which rejects the URI schemes of clients. The URI was registered and checked."""
    response = HttpResponse(status=302)
    response.headers["Location"] = url
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _host(uri: str) -> str:
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


# --- clients --------------------------------------------------------------------------------------------------------
@csrf_exempt
@login_not_required
@require_POST
@sensitive_post_parameters()
@sensitive_variables()
def token(request: WebRequest) -> HttpResponse:
    return _answered(request, authorization_server.token_response)


@csrf_exempt
@login_not_required
@require_POST
@sensitive_post_parameters()
@sensitive_variables()
def revoke(request: WebRequest) -> HttpResponse:
    return _answered(request, authorization_server.revocation_response)


@sensitive_variables()
def _answered(request: WebRequest, respond: Callable[[Mapping[str, str], str], Reply]) -> HttpResponse:
    """Works even if nothing can be counted: clients with a grant carry on while Redis is unreachable."""
    if attempts.count("oauth-token", request.client_ip, "oauth_token_requests") is attempts.Refusal.LIMITED:
        return too_many("oauth_token_requests")
    given = request.headers.get("Authorization")
    reply = respond({} if given is None else {"Authorization": given}, request.POST.urlencode())
    response = HttpResponse(reply.body, status=reply.status)
    for name, value in reply.headers.items():
        response.headers[name] = value
    return response


@csrf_exempt
@login_not_required
@require_POST
@sensitive_variables()
def register(request: WebRequest) -> HttpResponse:
    """RFC 7591, where an administrator allows it."""
    if not registration.is_open():
        raise Http404("Clients cannot register themselves here.")
    refusal = attempts.count("oauth-register", request.client_ip, "oauth_registrations")
    if refusal is attempts.Refusal.LIMITED:
        return too_many("oauth_registrations")
    if refusal is not None:
        return _error(
            "temporarily_unavailable", "The registration limit cannot be checked right now. Try again later.", 503
        )
    try:
        found: Any = json_text.loads(request.body.decode())
        client, secret = registration.register(Actor.of(request), found)
    except ValueError:
        return _error("invalid_client_metadata", "The body is not JSON.")
    except BadClient as problem:
        return _error(problem.error, str(problem))
    return JsonResponse(registration.answer(client, secret), status=201)


def _error(code: str, words: str, status: int = 400) -> JsonResponse:
    return JsonResponse({"error": code, "error_description": words}, status=status)


def too_many(limit: str) -> HttpResponse:
    response = _error("temporarily_unavailable", f"Too many requests. {limits.stated(limit)} Try again later.", 429)
    response.headers["Retry-After"] = "60"
    return response


# --- clients, for administrators -------------------------------------------------------------------------------------
@require_safe
def index(request: WebRequest) -> HttpResponse:
    access.require(request.user, "administer")
    context = {"nav": "agents", "rows": clients.listed(), "open": registration.is_open()}
    context["documents"] = registration.takes_documents()
    return render(request, "oauth/clients.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@sensitive_variables()
def add(request: WebRequest) -> HttpResponse:
    access.require(request.user, "administer")
    form = ClientForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        given: dict[str, Any] = form.cleaned_data
        if not use_form(request):
            messages.info(request, ALREADY_USED)
            return redirect("oauth:clients")
        try:
            client, secret = clients.add(
                Actor.of(request),
                request.user,
                given["name"],
                given["redirect_uris"],
                confidential=given["confidential"],
            )
        except ValidationError as problem:
            form.add_error(None, problem)
        else:
            return render(request, "oauth/added.html", {"nav": "agents", "client": client, "secret": secret})
    context = {"nav": "agents", "form": form}
    return render(request, "oauth/add.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
def block(request: WebRequest, uid: UUID) -> HttpResponse:
    """GET asks for confirmation, because unblocking does not restore the grants; POST blocks."""
    access.require(request.user, "administer")
    client = get_object_or_404(OAuthClient, uid=uid)
    if request.method != "POST":
        return _question(request, "oauth/block.html", client, "Block", "x")
    ended = clients.block(Actor.of(request), request.user, client)
    words = f" {ended} {'grant was' if ended == 1 else 'grants were'} revoked." if ended else ""
    messages.success(request, f"{client.label} is blocked.{words}")
    return redirect("oauth:clients")


@require_POST
def unblock(request: WebRequest, uid: UUID) -> HttpResponse:
    client = get_object_or_404(OAuthClient, uid=uid)
    clients.unblock(Actor.of(request), request.user, client)
    messages.success(request, f"{client.label} is unblocked and can ask people for access again.")
    return redirect("oauth:clients")


@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: WebRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, "administer")
    client = get_object_or_404(OAuthClient, uid=uid)
    if request.method == "POST":
        clients.delete(Actor.of(request), request.user, client)
        messages.success(request, f"{client.label} was deleted.")
        return redirect("oauth:clients")
    return _question(request, "oauth/delete.html", client, "Delete", "trash")


def _question(request: WebRequest, template: str, client: OAuthClient, verb: str, icon: str) -> HttpResponse:
    """The confirmation page, with the people whose grants end."""
    active = [grant for grant in client.grants.select_related("user") if grant.state == "active"]
    context = {"nav": "agents", "client": client, "active": active, "verb": verb, "verb_icon": icon}
    return render(request, template, context)


@require_POST
def switch_registration(request: WebRequest) -> HttpResponse:
    is_open = request.POST.get("open") == "yes"
    registration.switch(Actor.of(request), request.user, is_open=is_open)
    words = "Clients can register themselves." if is_open else "Clients can no longer register themselves."
    messages.success(request, words)
    return redirect("oauth:clients")


@require_POST
def switch_documents(request: WebRequest) -> HttpResponse:
    is_open = request.POST.get("open") == "yes"
    registration.switch_documents(Actor.of(request), request.user, is_open=is_open)
    words = (
        "Client metadata documents are accepted." if is_open else "Client metadata documents are no longer accepted."
    )
    messages.success(request, words)
    return redirect("oauth:clients")
