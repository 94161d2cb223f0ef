"""The page behind an invitation or a password link: the only pages that people without an account may use.

Whatever is wrong with a link, the response is the same, so that it does not reveal whether the link ever existed.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from servers import limits
from servers.accounts import attempts, links
from servers.accounts.forms import AccountForm, NewPasswordForm
from servers.accounts.links import LinkInvalid
from servers.audit.record import client_ip
from servers.enums import LinkPurpose
from servers.models import AccountLink

_STATUS = {attempts.Refusal.LIMITED: 429, attempts.Refusal.UNCOUNTED: 503}


@never_cache
@login_not_required
@sensitive_post_parameters("password1", "password2", "new_password1", "new_password2")
@require_http_methods(["GET", "POST"])
def open_link(request: HttpRequest, token: str) -> HttpResponse:
    if request.user.is_authenticated:
        # Before the link is looked up: the page reveals nothing about it, and the wrong person cannot use it.
        return render(request, "users/link_signed_in.html", status=409)
    if refusal := attempts.count("link", client_ip(request)):
        context = {"refusal": refusal.value, "limit": limits.stated("setup_attempts")}
        return render(request, "users/link_refused.html", context, status=_STATUS[refusal])
    try:
        link = links.find(token)
        return _join(request, link) if link.purpose == LinkPurpose.INVITATION else _new_password(request, link)
    except LinkInvalid:
        return render(request, "users/link_refused.html", {"refusal": "gone"}, status=404)


def _join(request: HttpRequest, link: AccountLink) -> HttpResponse:
    form = AccountForm(request.POST if request.method == "POST" else None, initial={"email": link.email})
    if request.method == "POST" and form.is_valid():
        user = form.save(commit=False)  # hashing takes 50 ms: not while holding SQLite's only write lock
        try:
            joined = links.join(link, user, client_ip(request), getattr(request, "request_id", ""))
        except IntegrityError:
            form.add_error("username", "A user with that username already exists.")
        else:
            return _signed_in(request, joined)
    return render(request, "users/join.html", {"form": form, "link": link}, status=422 if form.errors else 200)


def _new_password(request: HttpRequest, link: AccountLink) -> HttpResponse:
    form = NewPasswordForm(link.user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        user = form.save(commit=False)
        changed = links.set_password(link, user, client_ip(request), getattr(request, "request_id", ""))
        return _signed_in(request, changed)
    context = {"form": form, "link": link}
    return render(request, "users/new_password.html", context, status=422 if form.errors else 200)


def _signed_in(request: HttpRequest, user: Any) -> HttpResponse:
    # This also gives the browser session a new key: one planted beforehand is worthless.
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect("overview")
