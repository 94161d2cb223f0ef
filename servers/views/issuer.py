"""The admin's choice of the issuer to expect for a server: a page that explains it, to set or remove it."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from servers import access
from servers.audit.record import Actor
from servers.credentials import issuers
from servers.credentials.forms.issuer import IssuerForm
from servers.models import Server


@require_http_methods(["GET", "POST"])
def expect(request: HttpRequest, slug: str) -> HttpResponse:
    """POST sets it, or removes it with `forget`."""
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    access.require(request.user, "manage_credential", server)
    if "forget" in request.POST:
        issuers.forget(Actor.of(request), request.user, server)
        messages.success(
            request, f"Override removed. The authorization server must report the issuer that {server.name} names."
        )
        return redirect("servers:settings", server.slug)
    form = IssuerForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and _set(request, server, form):
        return redirect("servers:settings", server.slug)
    context = {"nav": "servers", "server": server, "form": form, "expected": issuers.expected(server)}
    return render(request, "credentials/issuer.html", context, status=422 if form.errors else 200)


def _set(request: HttpRequest, server: Server, form: IssuerForm) -> bool:
    try:
        choice = issuers.expect(Actor.of(request), request.user, server, **form.cleaned_data)
    except ValidationError as problem:
        for name, words in (getattr(problem, "message_dict", None) or {"": problem.messages}).items():
            form.add_error(name or None, words)
        return False
    messages.success(request, f"{server.name} expects {choice.words}. Sign in again.")
    return True
