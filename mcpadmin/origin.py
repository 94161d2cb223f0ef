"""The origin check of every websocket, where only pages of this site may open one, and of requests of agents.

Browsers send cookies with a cross-site handshake, so only the Origin header distinguishes our pages from those of
other sites. A missing header is refused: every browser sends it.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from servers.requests import client_address

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_PORTS = {"http": "80", "https": "443"}
_LONGEST = 512


class SameOriginOnly:
    """Refuses a handshake with 403, before it is accepted, unless its Origin is this site or a trusted one.

    Adds to the scope: `client_ip`, and `backlog`, which says how many bytes the browser has not taken yet.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if allowed(scope):
            inner = {**scope, "client_ip": client_ip(scope), "backlog": backlog_of(send)}
            return await self.application(inner, receive, send)
        await receive()  # websocket.connect
        await send({"type": "websocket.close", "code": 4403})


def allowed(scope: Scope) -> bool:
    origins, hosts = _values(scope, b"origin"), _values(scope, b"host")
    if len(origins) != 1 or len(hosts) != 1:
        return False
    return _trusted(origins[0]) or _same(origins[0], _scheme(scope), hosts[0])


def serves_host(scope: Scope) -> bool:
    hosts = _values(scope, b"host")
    name = split_domain_port(hosts[0])[0] if len(hosts) == 1 else ""
    return bool(name) and validate_host(name, settings.ALLOWED_HOSTS)


def is_own_or_absent(scope: Scope) -> bool:
    """For requests that need no browser: without an Origin, no page of another site sent them."""
    return not any(name == b"origin" for name, _ in scope["headers"]) or allowed(scope)


def _trusted(origin: str) -> bool:
    """Like Django's CSRF check: whole origins, or with "*." every subdomain of one."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = _origin_parts(origin)
    patterns = [trusted.split("://*", 1) for trusted in settings.CSRF_TRUSTED_ORIGINS if "://*" in trusted]
    return parts is not None and any(
        parts.scheme == scheme and is_same_domain(parts.netloc, domain) for scheme, domain in patterns
    )


def _same(origin: str, scheme: str, host: str) -> bool:
    """Scheme, host and port of an Origin (RFC 6454) against those of the request's own Host, if we serve that host."""
    parts = _origin_parts(origin)
    if parts is None or parts.scheme != scheme:
        return False
    name, port = split_domain_port(host)
    if not name or not validate_host(name, settings.ALLOWED_HOSTS):
        return False
    origin_name, origin_port = split_domain_port(parts.netloc)
    return (origin_name, origin_port or _PORTS[scheme]) == (name, port or _PORTS[scheme])


def _origin_parts(origin: str) -> SplitResult | None:
    """None unless it is a serialized origin: not for `null`, another scheme, a path or user information."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    plain = f"{parts.scheme}://{parts.netloc}" == origin and "@" not in parts.netloc
    return parts if plain and parts.scheme in _PORTS else None


def _scheme(scope: Scope) -> str:
    """http or https as the browser saw it; a proxy's word counts only where the settings say so."""
    if settings.SECURE_PROXY_SSL_HEADER:
        name, secure_value = settings.SECURE_PROXY_SSL_HEADER
        header = name.removeprefix("HTTP_").replace("_", "-").lower().encode()
        forwarded = _values(scope, header)
        return "https" if forwarded and forwarded[0].split(",")[0].strip() == secure_value else "http"
    return "https" if scope.get("scheme") in ("wss", "https") else "http"


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header and len(value) <= _LONGEST]


def client_ip(scope: Scope) -> str:
    # Of any length: strangers control its left part, and behind a proxy the peer's address is the proxy's own.
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return client_address(str((scope.get("client") or [""])[0]), ",".join(forwarded))


def backlog_of(send: Send) -> Callable[[], int]:
    """ASGI cannot say how much of what was sent is still unread; Daphne's `send` is bound to a Twisted transport that
    can. Under another server the bound on our own queue remains."""
    protocol = send.args[0] if isinstance(send, partial) and send.args else None
    transport = getattr(protocol, "transport", None)

    def backlog() -> int:
        buffered = len(getattr(transport, "dataBuffer", b"")) - getattr(transport, "offset", 0)
        return max(0, buffered) + int(getattr(transport, "_tempDataLen", 0))

    return backlog
