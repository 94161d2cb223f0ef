"""The first administrator: a signed link instead of a default password.

The link carries a random number, expires after a day, and is worthless as soon as an active administrator exists; so
nothing is stored, and each start of `up` may print a new one.
"""

import secrets
import shlex
import sys
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from mcpadmin.installation import IS_PACKAGE, ROOT
from servers import limits
from servers.accounts import attempts
from servers.accounts.forms import AccountForm
from servers.advisory_locks import AdvisoryLock, in_transaction
from servers.audit.record import Actor, Event, acting, client_ip, record
from servers.enums import AuditAction, AuditOutcome

PATH = "setup/"
SALT = "mcpadmin.setup.first-administrator"
MAX_AGE_SECONDS = 24 * 3600


class AdministratorExists(Exception):
    """Another request created one first."""


@dataclass(frozen=True)
class SetupRefusal:
    status: int
    title: str
    text: str
    command: str = ""
    sign_in: bool = False
    again: bool = False  # the same link may work later


def _command() -> str:
    """For copying into a shell, which may be in another folder and know neither this interpreter nor the data
    directory."""
    folder = "" if settings.DATA_DIR == ROOT / "data" else f"MCPADMIN_DATA_DIR={shlex.quote(str(settings.DATA_DIR))} "
    program = ["-m", "mcpadmin"] if IS_PACKAGE else [str(ROOT / "manage.py")]
    return folder + shlex.join([sys.executable, *program, "setup_link"])


def _where() -> str:
    """Where to run the command: it signs the link with the secret key, and looks for an administrator in the
    database."""
    needed = [name for name in ("DATABASE_URL", "MCPADMIN_SECRET_KEY") if settings.VARIABLES_READ[name].given]
    return "on the machine that runs it" + (f", with the same {' and '.join(needed)}" if needed else "")


COMMAND = _command()
WHERE = _where()
_NEW_LINK = f"To print a new one, restart mcpadmin, or run this {WHERE}:"
USED = SetupRefusal(410, "This link has been used", "An administrator already exists.", sign_in=True)
EXPIRED = SetupRefusal(410, "This link has expired", f"Setup links work for 24 hours. {_NEW_LINK}", COMMAND)
INVALID = SetupRefusal(
    404, "This link is not valid", f"It is incomplete or belongs to another installation. {_NEW_LINK}", COMMAND
)
LIMITED = SetupRefusal(
    429,
    "Too many attempts",
    f"{limits.stated('setup_attempts')} Wait ten minutes, then open the link again.",
    again=True,
)
# Without the command: it would show a stranger where mcpadmin lives.
FORGED = SetupRefusal(404, "This link is not valid", "An administrator already exists.", sign_in=True)
UNCOUNTED = SetupRefusal(
    503,
    "Setup is not available yet",
    "Redis is not responding. Open the link again once mcpadmin reports that it is ready.",
    again=True,
)


def administrator_exists() -> bool:
    return get_user_model().objects.filter(is_superuser=True, is_active=True).exists()


def link(base_url: str) -> str:
    token = signing.dumps(secrets.token_urlsafe(16), salt=SALT)
    # Not with `reverse`, which would load every page: half a second of each start until an administrator exists.
    return f"{base_url.rstrip('/')}/{PATH}{token}/"


@never_cache
@login_not_required
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "POST"])
def first_administrator(request: HttpRequest, token: str) -> HttpResponse:
    if refusal := _refusal(request, token):
        return _refuse(request, refusal)
    form = AccountForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = create_administrator(form, request)
        except AdministratorExists:
            return _refuse(request, USED)
        # It also gives the browser session a new key: one planted beforehand is worthless.
        login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
        return redirect("/")
    return render(request, "mcpadmin/setup.html", {"form": form}, status=422 if form.errors else 200)


def create_administrator(form: AccountForm, request: HttpRequest) -> Any:
    """Raises AdministratorExists when another request created one since the page was shown."""
    user = form.save(commit=False)  # hashes the password for 50 ms: not while SQLite's only write lock is held
    user.is_staff = user.is_superuser = True
    with transaction.atomic():
        in_transaction(connection, AdvisoryLock.FIRST_ADMINISTRATOR)  # PostgreSQL would let two see no administrator
        if administrator_exists():
            raise AdministratorExists
        ip, request_id = client_ip(request), getattr(request, "request_id", "")
        with acting(Actor.of_user(user, ip, request_id)):  # it has no id yet
            user.save()
        actor = Actor.of_user(user, ip, request_id)
        record(Event(AuditAction.ADMINISTRATOR_CREATE, AuditOutcome.OK, actor, subject=user.get_username()))
    return user


def _refusal(request: HttpRequest, token: str) -> SetupRefusal | None:
    if refused := attempts.count("setup", client_ip(request)):
        return LIMITED if refused is attempts.Refusal.LIMITED else UNCOUNTED
    try:
        signing.loads(token, salt=SALT, max_age=MAX_AGE_SECONDS)
    except signing.SignatureExpired:
        return USED if administrator_exists() else EXPIRED
    except signing.BadSignature:
        return FORGED if administrator_exists() else INVALID
    return USED if administrator_exists() else None


def _refuse(request: HttpRequest, refusal: SetupRefusal) -> HttpResponse:
    return render(request, "mcpadmin/setup_refused.html", {"refusal": refusal}, status=refusal.status)
