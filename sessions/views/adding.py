"""*Add server*: one box for a URL, a command line or a configuration, what was recognized in it, and the full form."""

import shlex
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from servers import access
from servers.audit.record import Actor
from servers.credentials import authorizations
from servers.credentials import vault as credentials
from servers.crypto import SealError
from servers.enums import TransportKind
from servers.models import Server
from servers.registration.adding import vaulting
from servers.registration.adding.known_servers import REFERENCE_SERVERS, REMOTE_SERVERS, KnownServer, known_server
from servers.registration.adding.posted import is_filled_from, reading_of, with_secrets
from servers.registration.adding.reading import Reading, read_source
from servers.registration.forms import ServerForm
from servers.registration.importing.planning import masked_arguments
from servers.requests import WebRequest
from servers.validators import masked_url
from sessions.connections import commands
from sessions.connections.starting import unconfirmed
from sessions.views.authorization import sign_in_page
from sessions.views.registration import is_complete, saved_or_refused, vault_form


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def add(request: WebRequest) -> HttpResponse:
    """Without JavaScript, *Register server* first shows what was recognized in the box."""
    access.require(request.user, "add_server")
    if request.method != "POST":
        chosen = known_server(request.GET.get("template", ""))
        return _page(request, read_source(chosen.source) if chosen else None)
    reading = reading_of(request.POST)
    if reading is not None and not is_filled_from(request.POST, reading):
        return _page(request, reading)
    read = reading.registration if reading is not None else None
    form = ServerForm(with_secrets(request.POST, reading), user=request.user, propose=True, read=read)
    vault = vault_form(request)
    if is_complete(form) and vault.is_valid() and (server := _registered(request, form, vault.chosen)) is not None:
        messages.success(request, f"{server.name} is registered.")
        if words := unconfirmed(server.command, server.arguments):
            messages.warning(request, words)
        return _next_page(request, server)
    return _page(request, reading, form, vault)


def _registered(request: WebRequest, form: ServerForm, chosen_uids: list[str]) -> Server | None:
    actor, chosen = Actor.of(request), credentials.chosen(request.user, chosen_uids)
    vaulted = {row.key for row in form.values.rows() if row.cleaned_data.get("vaulted")}
    return saved_or_refused(form, lambda data: vaulting.register(actor, request.user, data, vaulted, chosen))


def _next_page(request: WebRequest, server: Server) -> HttpResponse:
    """The server's page, or the sign-in that its connection test required."""
    page = sign_in_page(request.user, server) if "_sign_in" in request.POST else ""
    if page:
        begin = authorizations.begin_own if page == "servers:own_sign_in" else authorizations.begin
        try:
            browser = str(request.session.session_key or "")
            row = begin(Actor.of(request), request.user, server, browser)
            commands.session_of(row.identity, server)
        except (ValidationError, SealError) as problem:
            messages.error(request, " ".join(getattr(problem, "messages", [str(problem)])))
            return redirect(page, server.slug)
        return redirect("servers:sign_in_progress", server.slug, row.uid)
    return redirect("servers:tools", server.slug)


@sensitive_post_parameters()
@require_POST
def read(request: WebRequest) -> HttpResponse:
    """What was recognized in the box, and the fields filled from it: the page's parts, updated while the user types."""
    access.require(request.user, "add_server")
    return render(request, "servers/_add_parts.html", _context(request, reading_of(request.POST)))


def _page(
    request: WebRequest, reading: Reading | None, form: ServerForm | None = None, vault: Any = None
) -> HttpResponse:
    context = _context(request, reading, form, vault)
    bad = context["form"].refused or context["vault"].errors or (reading is not None and reading.problem)
    return render(request, "servers/add.html", context, status=422 if bad else 200)


def _context(
    request: WebRequest, reading: Reading | None, form: ServerForm | None = None, vault: Any = None
) -> dict[str, Any]:
    registration = reading.registration if reading else None
    form = form or ServerForm(user=request.user, read=registration)
    return {
        "nav": "servers",
        "form": form,
        "vault": vault or vault_form(request),
        "reading": reading,
        "source": reading.text if reading is not None and not reading.holds_secret else "",
        "endpoint": _endpoint(reading),
        "needs": list(zip(reading.needs, _given(reading), strict=True)) if reading else [],
        "missing": {need.key for need in reading.unmet} if reading else set(),
        "template": _template(request, reading),
        "present": _present(request, reading),
        "reference_servers": REFERENCE_SERVERS,
        "remote_servers": REMOTE_SERVERS,
        "permissions": access.permissions(request.user),
        "vaultable": access.may(request.user, credentials.PERMISSION),
    }


def _given(reading: Reading) -> list[str]:
    """The entered values. A secret is not sent back: its field keeps what was typed while the page is open."""
    return ["" if need.secret else reading.given.get(need.key, "") for need in reading.needs]


def _endpoint(reading: Reading | None) -> str:
    found = reading.registration if reading else None
    if found is None or reading is None:
        return ""
    if found.transport != TransportKind.STDIO:
        text = masked_url(found.url)
    else:
        text = shlex.join([found.command, *masked_arguments(found.arguments)])
    for need in reading.unmet:
        text = text.replace(f"'${{{need.key}}}'", f"<{need.label}>").replace(f"${{{need.key}}}", f"<{need.label}>")
    return text


def _template(request: HttpRequest, reading: Reading | None) -> KnownServer | None:
    """The chosen template, while the box still has its text."""
    chosen = known_server(request.GET.get("template", "") or request.POST.get("template", ""))
    return chosen if chosen and reading and reading.text == chosen.source else None


def _present(request: HttpRequest, reading: Reading | None) -> Server | None:
    """A registered server with the same connection."""
    found = reading.registration if reading else None
    if found is None or reading is None or reading.unmet:
        return None
    visible = access.visible_servers(request.user).filter(archived_at=None)
    if found.transport == TransportKind.STDIO:
        return visible.filter(command=found.command, arguments=found.arguments).first()
    return visible.exclude(url="").filter(url=found.url).first()
