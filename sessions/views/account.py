"""*Your account*: profile, appearance, sign-ins, tokens, personal credentials and saved calls."""

from functools import partial

from allauth.core import ratelimit
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.accounts import browser_sessions, catalog, own, people
from servers.accounts.forms import PreferencesForm, ProfileForm
from servers.audit.record import Actor
from servers.enums import Theme
from servers.models import AgentToken, CredentialUse
from servers.requests import WebRequest
from sessions.saved_calls import reading


@require_safe
def index(request: WebRequest) -> HttpResponse:
    return _page(request)


def _page(request: WebRequest, profile: ProfileForm | None = None) -> HttpResponse:
    user = request.user
    form = profile or ProfileForm(user)
    uses = CredentialUse.objects.filter(
        identity__in=access.own_identities(user), identity__server__in=access.visible_servers(user)
    )
    context = {
        "nav": "account",
        "form": form,
        "preferences": own.preferences(user),
        "themes": Theme.choices,
        "groups": user.groups.order_by("name"),
        "sections": catalog.effective(user),
        "browsers": browser_sessions.browsers(user, request.session.session_key),
        "tokens": AgentToken.objects.filter(user__in=[user], revoked_at=None, expires_at__gt=timezone.now())
        .select_related("client")
        .order_by("name"),
        "may_issue": access.may(user, "call_tool"),
        "uses": uses.select_related("credential", "identity__server").order_by("identity__server__name", "pk"),
        "entries": reading.own(user),
    }
    return render(request, "users/account.html", context, status=422 if form.errors else 200)


@require_POST
def profile(request: WebRequest) -> HttpResponse:
    # The same limit as on any page that asks a signed-in user for the password: a stolen session must not guess it.
    may_try = partial(ratelimit.consume, request, action="reauthenticate", user=request.user)
    form = ProfileForm(request.user, request.POST, may_try)
    if not form.is_valid():
        return _page(request, form)
    data = form.cleaned_data
    changed = own.change_profile(request.user, data["name"], data["email"])
    messages.success(request, "Saved.") if changed else messages.info(request, "Nothing changed.")
    return redirect("own:account")


@require_POST
def preferences(request: WebRequest) -> HttpResponse:
    """The page sends all preferences; the switches in the shell send one by script."""
    form = PreferencesForm(request.POST)
    valid = form.is_valid()
    if valid:
        given = {name for name in form.fields if name in request.POST}
        given |= {"utc"} if "page" in request.POST else set()
        own.change_preferences(request.user, {name: form.cleaned_data[name] for name in given})
    if "page" not in request.POST:
        return HttpResponse(status=204 if valid else 422)
    if valid:
        messages.success(request, "Saved.")
    else:
        messages.error(request, " ".join(str(error) for errors in form.errors.values() for error in errors))
    return redirect("own:account")


@require_POST
def end_sign_in(request: WebRequest, number: int) -> HttpResponse:
    return _end(request, browser_sessions.numbered(number), "That browser is signed out.")


@require_POST
def end_sign_ins(request: WebRequest) -> HttpResponse:
    return _end(request, None, "All other browsers are signed out.")


def _end(request: WebRequest, ids: list[int] | None, words: str) -> HttpResponse:
    people.end_own_sign_ins(Actor.of(request), request.user, ids, request.session.session_key or "")
    messages.success(request, words)
    return redirect("own:account")
