"""The first administrator: a signed link instead of a default password.

The link carries a random number, expires after a day, and is worthless as soon as an active administrator exists; so
nothing is stored, and each start of `up` may print a new one.
"""

import secrets
from typing import Any

import structlog
from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import BaseUserCreationForm
from django.core import signing
from django.core.cache import cache
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from redis.exceptions import RedisError
from servers.audit.record import Actor, Event, record

from servers.enums import AuditAction, AuditOutcome

log = structlog.get_logger("mcpadmin.setup")

SALT = "mcpadmin.setup.first-administrator"
MAX_AGE_SECONDS = 24 * 3600
ATTEMPTS = 20
ATTEMPTS_SECONDS = 600
# Any constant that no other part of the product uses as an advisory lock.
_LOCK_ID = 7_230_001


class AdministratorExists(Exception):
    """Someone was faster."""


class AdministratorForm(BaseUserCreationForm):
    email = forms.EmailField(required=False, help_text="Optional.")

    class Meta(BaseUserCreationForm.Meta):
        fields = ("username", "email")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order_fields(["username", "email", "password1", "password2"])
        for name, complete in (("username", "username"), ("email", "email")):
            self.fields[name].widget.attrs["autocomplete"] = complete


def administrator_exists() -> bool:
    return get_user_model().objects.filter(is_superuser=True, is_active=True).exists()


def link(base_url: str) -> str:
    token = signing.dumps(secrets.token_urlsafe(16), salt=SALT)
    return base_url.rstrip("/") + reverse("setup", args=[token])


@never_cache
@login_not_required
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "POST"])
def first_administrator(request: HttpRequest, token: str) -> HttpResponse:
    if reason := _refusal(request, token):
        return _refuse(request, reason)
    form = AdministratorForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = create_administrator(form, request)
        except AdministratorExists:
            return _refuse(request, "used")
        # cycle_key inside: whoever planted a session id before has nothing.
        login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
        return redirect("/")
    return render(request, "mcpadmin/setup.html", {"form": form}, status=422 if form.errors else 200)


def create_administrator(form: AdministratorForm, request: HttpRequest) -> Any:
    """Raises AdministratorExists when another request created one since the page was shown."""
    with transaction.atomic():
        _one_at_a_time()
        if administrator_exists():
            raise AdministratorExists
        user = form.save(commit=False)
        user.is_staff = user.is_superuser = True
        user.save()
        ip, request_id = getattr(request, "client_ip", ""), getattr(request, "request_id", "")
        actor = Actor.of_user(user, ip, request_id)
        event = Event(AuditAction.ADMINISTRATOR_CREATE, AuditOutcome.OK, actor, None, subject=user.get_username())
        record(event)
    return user


def _one_at_a_time() -> None:
    """SQLite's IMMEDIATE transactions exclude each other anyway; PostgreSQL would let two see no administrator."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_ID])


def _refusal(request: HttpRequest, token: str) -> str:
    if _too_many(request):
        return "limited"
    try:
        signing.loads(token, salt=SALT, max_age=MAX_AGE_SECONDS)
    except signing.SignatureExpired:
        return "used" if administrator_exists() else "expired"
    except signing.BadSignature:
        return "invalid"
    return "used" if administrator_exists() else ""


def _too_many(request: HttpRequest) -> bool:
    """By address; when Redis cannot count, nobody is let in: sign-in needs it too."""
    key = f"setup:{getattr(request, 'client_ip', '') or request.META.get('REMOTE_ADDR', '')}"
    try:
        cache.add(key, 0, ATTEMPTS_SECONDS)
        return cache.incr(key) > ATTEMPTS
    except (RedisError, ValueError) as problem:  # ValueError: the key expired between the two commands
        log.warning("set-up attempts cannot be counted", problem=type(problem).__name__)
        return not isinstance(problem, ValueError)


def _refuse(request: HttpRequest, reason: str) -> HttpResponse:
    status = {"limited": 429, "used": 410, "expired": 410, "invalid": 404}[reason]
    return render(request, "mcpadmin/setup_refused.html", {"reason": reason}, status=status)
