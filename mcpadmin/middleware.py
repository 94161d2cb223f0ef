"""What each request gets: an id, the address of its client, and the headers that nothing else sets."""

import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import structlog
from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

from mcpadmin import health, known_browsers, setup
from mcpadmin.headers import headers_for
from servers.audit.record import client_ip, current_request
from servers.requests import WebRequest

log = structlog.get_logger("mcpadmin.request")

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# What proxies report about the connection in front of them: its scheme, or "on".
_TLS_HINTS = ("X-Forwarded-Proto", "X-Forwarded-Scheme", "X-Scheme", "X-Url-Scheme", "Forwarded", "CF-Visitor")
_TLS_SWITCHES = ("X-Forwarded-Ssl", "Front-End-Https")
#: pages whose address is a secret
_WITH_SECRETS = ("/link/", f"/{setup.PATH}")
#: Pages that a web client may open in a separate window. Without access to it, the client would assume that the window
#: was closed while its user grants access there, so the opener is kept. Frames stay forbidden, and no page trusts its
#: opener.
_IN_WINDOWS_OF_CLIENTS = ("/oauth/authorize", "/accounts/login/")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class _SyncAndAsync:
    """Middleware that is sync or async as its `get_response` is."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)  # type: ignore[type-var]  # the stubs want a function; any callable can be marked


class RequestContextMiddleware(_SyncAndAsync):
    """Sets `request.request_id`, `request.client_ip` and `request.received_ms`, binds the first two to the logs, and
    writes the access log.

    Health probes are answered here, before the check of the Host header: a load balancer asks by address.
    """

    def __call__(self, request: WebRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer(request)
        if probe := health.PROBES.get(request.path):
            return _secured(request, async_to_sync(probe)(request))
        with _context(request) as started:
            return _finish(request, self.get_response(request), started)

    async def _answer(self, request: WebRequest) -> HttpResponseBase:
        if probe := health.PROBES.get(request.path):
            return _secured(request, await probe(request))
        with _context(request) as started:
            return _finish(request, await self.get_response(request), started)


@contextmanager
def _context(request: WebRequest) -> Iterator[float]:
    """Yields when the request began. Within it, logs and audit events know the request without being handed it."""
    request.request_id = request_id(request)
    request.client_ip = client_ip(request)
    request.received_ms = time.time_ns() // 1_000_000
    request.META["REMOTE_ADDR"] = request.client_ip  # what allauth's limits count by
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request.request_id)
    token = current_request.set(request)
    try:
        yield time.perf_counter()
    finally:
        current_request.reset(token)


def _finish(request: WebRequest, response: HttpResponseBase, started: float) -> HttpResponseBase:
    response.headers["X-Request-ID"] = request.request_id
    _secured(request, response)
    if not request.path.startswith(settings.STATIC_URL):
        response.headers.setdefault("Cache-Control", "no-store")
        _log(request, response, time.perf_counter() - started)
    return response


def _secured(request: WebRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Add the headers to any response, including an error of another middleware, which the others never see."""
    if request.path in _IN_WINDOWS_OF_CLIENTS:  # also their redirects, which browsers count
        response.headers["Cross-Origin-Opener-Policy"] = "unsafe-none"
    for name, value in headers_for(response.headers.get("Content-Type", ""), secure=request.is_secure()).items():
        response.headers.setdefault(name, value)
    return response


def _log(request: WebRequest, response: HttpResponseBase, seconds: float) -> None:
    user = getattr(request, "_cached_user", None)  # request.user would cost a query where nothing asked for it
    log.info(
        "request",
        method=request.method,
        path=request.path,
        status=response.status_code,
        ms=round(seconds * 1000, 1),
        ip=request.client_ip,
        user_id=user.pk if user is not None else None,
    )


def request_id(request: WebRequest) -> str:
    given = request.headers.get("X-Request-ID", "")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


class CompressedPages(GZipMiddleware):
    """Pages only, and only responses to GET: secrets are shown only in responses to POST, or at the address of a link.
    Otherwise, what a page repeats of its address could be compared with a secret on it by the length of the response
    (BREACH). The CSRF token is masked again each time, and the length varies by up to 100 random bytes."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        page = response.headers.get("Content-Type", "").startswith("text/html") and not response.streaming
        if request.method != "GET" or not page or request.path.startswith(_WITH_SECRETS):
            return response
        return super().process_response(request, response)


class SecureCookieMiddleware(_SyncAndAsync):
    """Marks cookies Secure, unless the browser itself uses plain http: Safari would drop them.

    Where PUBLIC_URL is https, the settings mark them all. Where it is http, an unconfigured proxy may still terminate
    TLS in front: any hint of one counts, since a needless mark only costs the sign-in of a forged request.
    """

    def __call__(self, request: WebRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer(request)
        return _with_secure_cookies(request, self.get_response(request))

    async def _answer(self, request: WebRequest) -> HttpResponseBase:
        return _with_secure_cookies(request, await self.get_response(request))


def _with_secure_cookies(request: WebRequest, response: HttpResponseBase) -> HttpResponseBase:
    known_browsers.remember(request, response)
    if response.cookies and not plain_http(request):
        for cookie in response.cookies.values():
            cookie["secure"] = True
    return response


def plain_http(request: WebRequest) -> bool:
    """Whether nothing indicates that the browser uses TLS, and the host is served without it: loopback or ours."""
    if request.is_secure() or request.headers.get("Origin", "").lower().startswith("https:"):
        return False
    if any("https" in request.headers.get(name, "").lower() for name in _TLS_HINTS):
        return False
    if any(request.headers.get(name, "").strip().lower() == "on" for name in _TLS_SWITCHES):
        return False
    public = urlsplit(settings.PUBLIC_URL)
    host = split_domain_port(request.get_host())[0].strip("[]")
    return host in _LOOPBACK or (public.scheme == "http" and host == public.hostname)
