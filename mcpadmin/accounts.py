"""Signing in: who may sign in, where the browser returns to, and what a page gets once its sign-in has expired.

A request made by a script gets 401 instead of a redirect: the script signs the person in beside the page and repeats
its request (static/js/sign-in.js). Only an address that answers GET is a valid place to return to.
"""

import inspect
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.auth_backends import AuthenticationBackend
from allauth.account.views import LoginView
from allauth.core.internal import ratelimit
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from mcpadmin import known_browsers, setup
from mcpadmin.errors import ExceptionMiddleware
from mcpadmin.web.bodies import sent_by_script
from servers import limits
from servers.accounts import browser_sessions

log = structlog.get_logger("mcpadmin.accounts")
_WITH_PASSWORDS = ("/accounts/", "/account/")
_OF_A_BROWSER = {"login_failed": f"{limits.number('sign_in_failures')}/5m/key"}


class Backend(AuthenticationBackend):
    """Reads a user with their preferences, which every page needs, in one query."""

    def get_user(self, user_id: int) -> Any:
        found = get_user_model()._default_manager.select_related("preferences").filter(pk=user_id).first()
        return found if self.user_can_authenticate(found) else None

    def _authenticate_by_username(self, username: str, password: str) -> Any:
        """Try the account with exactly this name first: if several differ only in case, allauth lets none sign in."""
        exact = get_user_model()._default_manager.filter(username=username).first()
        return self._check_password(exact, password) if exact else super()._authenticate_by_username(username, password)


class ClosedSignup(DefaultAccountAdapter):
    """Accounts are created by an administrator; the first one with the setup link of `manage.py up`."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Also after signing in: an address that only answers POST would greet the user with 405."""
        return super().is_safe_url(url) and answers_get(urlsplit(url).path)

    @property
    def error_messages(self) -> dict[str, str]:
        words = f"Too many failed sign-ins. {limits.stated('sign_in_failures')} {limits.stated('sign_in_failures_per_address')}"
        return DefaultAccountAdapter.error_messages | {"too_many_login_attempts": f"{words} Wait, then try again."}

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """An attempt refused without a check, after too many, is also a failed sign-in: the audit log records each one.
        In a browser that this user has signed in with before, only its own attempts count."""
        browser = known_browsers.key(request, str(credentials.get("username", "")))
        try:
            if not browser:
                return super().pre_authenticate(request, **credentials)
            self._login_failed_rl_usage = ratelimit.consume(
                request, app="allauth.account", action="login_failed", config=_OF_A_BROWSER, key=f"browser:{browser}"
            )
            if not self._login_failed_rl_usage:
                raise self.validation_error("too_many_login_attempts")
        except ValidationError:
            user_login_failed.send(__name__, credentials=credentials, request=request, reason="throttled")
            raise


class SignIn(LoginView):
    """Before setup, no one can sign in: the page then points to the printed link."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        if not setup.administrator_exists():
            people = get_user_model()._default_manager.filter(is_active=True)
            context |= {"setup_command": setup.COMMAND, "setup_where": setup.WHERE, "anyone": people.exists()}
        return context


class SignInRequired(LoginRequiredMiddleware):
    def handle_no_permission(  # type: ignore[override]  # the stubs allow redirects only
        self, request: HttpRequest, view_func: Callable[..., Any]
    ) -> HttpResponse:
        if sent_by_script(request.headers):
            return _not_done("Sign in, then send this again.", 401)
        page = page_of(request)
        login_url = self.get_login_url(view_func)
        return redirect_to_login(page, login_url) if page else redirect(login_url)


class UncountedAttempts(ExceptionMiddleware):
    """While Redis is unavailable, no password is checked, because attempts cannot be counted."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, RedisError) or not request.path.startswith(_WITH_PASSWORDS):
            return None
        log.warning("an attempt with a password cannot be counted", path=request.path, problem=type(exception).__name__)
        title, words = (
            "Redis is not responding",
            "Passwords cannot be checked without it. Wait a moment, then try again.",
        )
        if sent_by_script(request.headers):
            return _not_done(f"{title}. {words}", 503)
        context = {"status": 503, "title": title, "text": words}
        return render(request, "mcpadmin/refused.html", context, status=503)


class BrowserSessionMiddleware:
    """Keeps when each browser session was last seen, for the people that it belongs to."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        user = getattr(request, "_cached_user", None)  # request.user would cost a query where nothing asked for it
        if user is not None and user.is_authenticated:
            browser_sessions.note(request, user)
        return response


def page_of(request: HttpRequest) -> str:
    """The page that a request belongs to: its own address, the page that sent it, or the nearest one above. Empty if
    there is none."""
    if answers_get(request.path):
        return request.get_full_path()
    sender = urlsplit(request.headers.get("Referer", ""))
    if sender.netloc == request.get_host() and answers_get(sender.path):
        return sender._replace(scheme="", netloc="", fragment="").geturl()
    above = request.path.rstrip("/")
    while above := above.rpartition("/")[0]:
        if answers_get(f"{above}/"):
            return f"{above}/"
    return ""


def answers_get(path: str) -> bool:
    """Django keeps the methods that a view allows in the closure of its decorator, and shows them nowhere else."""
    try:
        view: Any = resolve(path).func
    except Resolver404:
        return False
    while view is not None:
        if hasattr(view, "view_class"):
            return hasattr(view.view_class, "get")
        methods = (
            inspect.getclosurevars(view).nonlocals.get("request_method_list") if inspect.isfunction(view) else None
        )
        if methods is not None and "GET" not in methods:
            return False
        view = getattr(view, "__wrapped__", None)
    return True


@never_cache
@login_not_required
@require_safe
def browser_session(request: HttpRequest) -> JsonResponse:
    """Who is signed in with this browser, and the token that its forms now need: signing in replaces the token."""
    return JsonResponse({"user": request.user.pk, "csrf": get_token(request)})


@require_safe
def signed_in(request: HttpRequest) -> HttpResponse:
    """Where a sign-in in its own tab ends: it notifies the page that waits for it."""
    return render(request, "account/signed_in.html")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A script renews its token and resends once: a request that is refused here had no effect."""
    if sent_by_script(request.headers):
        return _not_done("This page is out of date.", 403, **{"X-CSRF": "renew"})
    return render(request, "403_csrf.html", {"page": page_of(request)}, status=403)


def too_many_requests(request: HttpRequest) -> HttpResponse:
    """The response when one of allauth's request limits is exceeded."""
    words = f"{limits.stated('sign_in_requests_per_address')} Wait a minute, then try again."
    if sent_by_script(request.headers):
        return _not_done(f"Too many requests. {words}", 429)
    context = {"status": 429, "title": "Too many requests", "text": words}
    return render(request, "mcpadmin/refused.html", context, status=429)


def _not_done(words: str, status: int, **headers: str) -> HttpResponse:
    """htmx would replace what the person sees with the message."""
    return HttpResponse(words, status=status, content_type="text/plain", headers={"HX-Reswap": "none"} | headers)


@login_not_required
@require_safe
def forgotten_password(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Says who can issue a password link: nobody can request one here."""
    return render(request, "account/forgotten_password.html")
