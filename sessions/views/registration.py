"""Changing servers and testing connections: the form, the demo server, copies. *Add server* is in `adding`."""

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access, connect_limit
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from servers.credentials import board, issuers, variables
from servers.credentials import vault as credentials
from servers.credentials.forms.vault import VaultForm
from servers.crypto import SealError
from servers.enums import SignsInAs, TransportKind
from servers.models import Server
from servers.numbers import whole_number
from servers.registration import drafts, needed_credentials, registering
from servers.registration.adding.posted import reading_of, with_secrets
from servers.registration.forms import ServerForm
from servers.registration.registering import Conflict, Registration
from servers.requests import WebRequest
from servers.validators import Root, root_uri
from sessions.connections import commands
from sessions.connections.draft_page import draft_context
from sessions.overview import server_page
from sessions.views.authorization import sign_in_page
from sessions.views.server_tabs import server_context
from sessions.views.servers import info_page

DEMO = Registration(
    name="Demo server",
    transport=TransportKind.STDIO,
    description="The MCP server that ships with mcpadmin, with sample tools, resources and prompts.",
    command=settings.DEMO_COMMAND[0],
    arguments=settings.DEMO_COMMAND[1:],
    tags=["demo"],
)


def vault_form(request: WebRequest) -> VaultForm:
    return VaultForm(request.POST or None, offers=credentials.offers(request.user))


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def edit(request: WebRequest, slug: str) -> HttpResponse:
    """If two admins save at the same time, the second one gets the differences and keeps the input."""
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    except access.ServerReplaced as found:
        return _settings_page(request, found.server, _form_of_another(request, found), status=409)
    form = ServerForm(request.POST or None, user=request.user, server=server, allowing=_allowing(request, server))
    conflict = None
    if request.method == "POST" and is_complete(form):
        try:
            saved = saved_or_refused(form, lambda data: _change(request, server, form, data))
        except Conflict as found:
            conflict, saved = found, None
            form = ServerForm(_with_version(request, found.current), user=request.user, server=found.current)
            form.note_secrets()
        if saved is not None:
            messages.success(request, _saved_words(server, saved))
            page = sign_in_page(request.user, saved) if "_sign_in" in request.POST else ""
            return redirect(page or "servers:settings", saved.slug)
    return _settings_page(request, server, form, conflict, status=409 if conflict else 422 if form.refused else 200)


def _form_of_another(request: WebRequest, found: access.ServerReplaced) -> ServerForm:
    """What was entered, to be copied. It keeps the uid of the server that is gone, so that it is refused again."""
    form = ServerForm(request.POST, user=request.user, server=found.server)
    form.full_clean()
    form.refuse(ValidationError(f"{found} Copy what you need from this form, then open Settings again."))
    if not form.adding_row:
        form.note_secrets()
    return form


def _settings_page(
    request: WebRequest, server: Server, form: ServerForm, conflict: Conflict | None = None, *, status: int
) -> HttpResponse:
    context = server_context(request, server_page.header(server), "settings")
    context |= {"form": form, "conflict": conflict, "save": "Save changes"}
    context |= {"uses": board.uses_of(server), "attachable": credentials.attachable(server)}
    context |= {"fillable": sorted(variables.fillable(server)), "open_variables": _open_variables(server)}
    context |= {"expected_issuer": issuers.expected(server)}
    return render(request, "servers/settings.html", context, status=status)


def _open_variables(server: Server) -> list[str]:
    """Variables without a value that no credential of the shared identity fills, where these keep it from starting."""
    if server.signs_in_as != SignsInAs.SHARED:
        return []
    filled = {use.credential.details.get("variable") for use in board.uses_of(server) if use.blanked_at is None}
    return [row.name for row in server.values.all() if row.is_left_open and row.name not in filled]


def _allowing(request: WebRequest, server: Server) -> tuple[str, str] | None:
    """The field and the entry that *Allow* of a refusal adds to the form."""
    field, entry = request.GET.get("allow", ""), request.GET.get("entry", "").strip()
    return (field, entry) if server.transport == TransportKind.STDIO and field and entry else None


def _saved_words(before: Server, saved: Server) -> str:
    return "Saved. The server is notified of the new roots." if before.roots != saved.roots else "Saved."


def _change(request: WebRequest, server: Server, form: ServerForm, data: Registration) -> Server:
    expected = form.cleaned_data["version"]
    return registering.change(Actor.of(request), request.user, server, data, expected)


def _with_version(request: WebRequest, current: Server) -> Any:
    """The input, now based on the stored version: saving again is a decision, not an accident."""
    data = request.POST.copy()
    data["version"] = str(current.version)
    return data


def is_complete(form: ServerForm) -> bool:
    """*Add row* asks for another blank row; it does not save."""
    return not (form.adding_row or form.proposing) and form.is_valid()


def saved_or_refused(form: ServerForm, save: Any) -> Server | None:
    """The server, or None with the refusal shown on the form."""
    try:
        return save(Registration.of(form.registration_data()))
    except ValidationError as problem:
        form.refuse(problem)
    except SealError as problem:
        form.refuse(ValidationError(str(problem)))
    return None


@require_POST
def roots(request: WebRequest, slug: str) -> HttpResponse:
    """The roots alone, one per line, from the server's page. A name that a root had stays with it."""
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    except access.ServerReplaced as found:
        entered = request.POST.get("roots", "")
        return info_page(request, found.server, roots=entered, problem=str(found), status=409)
    names = {root["uri"]: root["name"] for root in server.roots}
    lines = [line.strip() for line in request.POST.get("roots", "").splitlines() if line.strip()]
    given: list[Root] = [{"uri": uri, "name": names.get(uri, "")} for uri in dict.fromkeys(map(root_uri, lines))]
    data = replace(Registration.of_server(server), roots=given)
    version = whole_number(request.POST.get("version", "")) or 0
    try:
        saved = registering.change(Actor.of(request), request.user, server, data, version)
    except ValidationError as problem:
        words = " ".join(problem.messages)
    except Conflict:
        words = f"Someone else has changed this server. Its roots are: {', '.join(_roots_now(server)) or 'none'}. Check yours, then set them again."
    else:
        messages.success(request, _saved_words(server, saved))
        return redirect("servers:info", saved.slug)
    return info_page(request, server, roots=request.POST.get("roots", ""), problem=words)


def _roots_now(server: Server) -> list[str]:
    server.refresh_from_db()
    return [root["uri"] for root in server.roots]


@require_http_methods(["GET", "POST"])
def clone(request: WebRequest, slug: str) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "add")
    name = request.POST.get("name", "").strip() or f"{server.name} (copy)"
    context = {"nav": "servers", "server": server, "name": name}
    if request.method != "POST":
        return render(request, "servers/clone.html", context)
    try:
        copy = registering.clone(Actor.of(request), request.user, server, name)
    except ValidationError as problem:
        return render(request, "servers/clone.html", context | {"errors": problem.messages}, status=422)
    messages.success(request, f"{copy.name} is a disabled copy of {server.name}. Review it, then enable it.")
    if missing := needed_credentials.left_out(server, copy):
        messages.warning(
            request, f"Value needed: {', '.join(missing)}. The copy connects without it until you enter one."
        )
    return redirect("servers:settings", copy.slug)


@require_POST
def add_demo(request: WebRequest) -> HttpResponse:
    actor = Actor.of(request)
    present = access.visible_servers(request.user).filter(arguments=DEMO.arguments, archived_at=None).first()
    server = present or registering.register(actor, request.user, replace(DEMO, owner_id=request.user.pk))
    return redirect("servers:tools", server.slug)


@sensitive_post_parameters()
@require_POST
def test(request: WebRequest) -> HttpResponse:
    """Test the form's connection in a worker, without saving it. `?server=` names the server that is being edited."""
    slug = request.GET.get("server")
    try:
        server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change") if slug else None
    except access.ServerReplaced as found:
        return _not_tested(request, _form_of_another(request, found), 409, heading="Not tested")
    access.require(request.user, "change_server" if slug else "add_server", server)
    reading = None if server else reading_of(request.POST)
    posted, read = with_secrets(request.POST, reading), reading.registration if reading is not None else None
    form, vault = ServerForm(posted, user=request.user, server=server, read=read), vault_form(request)
    complete = form.is_valid()
    if complete and not vault.is_valid():
        form.refuse(ValidationError(list(vault.errors["credentials"])))
    if form.refused or not complete:
        return _not_tested(request, form, 422)
    actor = Actor.of(request)
    data = Registration.of(form.registration_data())
    try:
        chosen = credentials.chosen(request.user, vault.chosen) if server is None else []
        draft = drafts.new_draft(actor, request.user, data, server, chosen)
    except connect_limit.TooOften as problem:
        form.refuse(problem)
        answer = _not_tested(request, form, 429, heading="Not tested yet")
        answer.headers["Retry-After"] = str(problem.seconds)
        return answer
    except ValidationError as problem:
        form.refuse(problem)
        return _not_tested(request, form, 422)
    try:
        commands.test_draft(actor, draft, *(credential.name for credential in chosen))
    except AuditUnavailable as problem:
        form.refuse(ValidationError(str(problem)))
        return _not_tested(request, form, 503, heading="Not tested")
    if not request.htmx:
        return redirect("servers:test_progress", draft.uid)
    return render(request, "servers/_test_slot.html", draft_context(draft))


def _not_tested(request: WebRequest, form: ServerForm, status: int, **context: str) -> HttpResponse:
    """The page shows it where the result would stand; any other refusal is a page of its own."""
    answer = render(request, "servers/_test_refused.html", {"form": form, **context}, status=status)
    answer.headers["X-Fragment"] = "true"
    return answer


@require_safe
def test_progress(request: WebRequest, uid: Any) -> HttpResponse:
    draft = access.draft_for(request.user, uid)
    return render(request, "servers/test.html", {"nav": "servers"} | draft_context(draft))
