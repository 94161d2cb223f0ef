"""Sends the requests of authorization flows through the same guarded engine as all others, with narrow bounds.

All addresses come from untrusted servers, so none of them may lead to this machine unless the operator entered a
server that is there. Metadata requests follow redirects only within one origin. A token request is never sent to a
second address.
"""

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import httpx

from ..core.errors import AuthorizationError, Fault, InvalidRequest, ProtocolError, TransportError
from ..core.limits import KIB, Limits
from ..oauth.exchange import HttpRequest, HttpResponse
from ..oauth.urls import demand_elsewhere, demand_secure, is_local, origin
from .base import translated
from .dialing import wire_host
from .egress import OutboundPolicy
from .engine import engine, shared_tls, with_host
from .recording import UNRECORDED, Recorder

#: seconds for one request including all its redirects; bytes of its answer
SECONDS: Final = 10.0
BYTES: Final = 64 * KIB
HOPS: Final = 5
_WHAT: Final = "An address of the authorization server"
_LIMITS: Final = Limits(http_connections=4)


class AuthorizationHttp:
    """A callable that sends one request. `tls`: the context for requests to the origin of `server_url`, or for all if
    that is empty. `elsewhere`: for other origins, to which the server's client certificate is not presented. None: the
    shared context. `entered`: further addresses that the operator named."""

    def __init__(
        self,
        policy: OutboundPolicy,
        tls: ssl.SSLContext | None = None,
        *,
        server_url: str = "",
        entered: Iterable[str] = (),
        elsewhere: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._policy, self._seconds, self._recorder = policy, seconds, recorder
        self._tls, self._elsewhere = tls or shared_tls(), elsewhere or shared_tls()
        self._origin = origin(server_url) if server_url else None
        self._local = not server_url or any(map(is_local, (server_url, *entered)))

    def _policy_for(self, request: HttpRequest) -> OutboundPolicy:
        """A name may resolve to this machine, too. If the server's own name does, that is what the operator entered."""
        own = self._local or origin(request.url) == self._origin
        return self._policy if own else replace(self._policy, allow_loopback=False)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        demand_secure(request.url, _WHAT)
        if not self._local:
            demand_elsewhere(request.url, _WHAT)
        _demand_sendable(request.url)
        tls = self._tls if self._origin in (None, origin(request.url)) else self._elsewhere
        connections = engine(self._policy_for(request), _LIMITS, tls, timeout=self._seconds)
        try:
            async with asyncio.timeout(self._seconds):
                return await _followed(connections, request, self._recorder)
        except TimeoutError:
            host = wire_host(httpx.URL(request.url))
            detail = f"{host} did not answer within {self._seconds:g} s."
            raise TransportError(Fault.TIMEOUT, detail, may_have_run=False) from None
        finally:
            await connections.aclose()


def _demand_sendable(url: str) -> None:
    """Some URLs look like valid https URLs but cannot be dialed: https://999.1.1.1, or 70,000 characters."""
    try:
        httpx.URL(url)
    except httpx.InvalidURL as exc:
        words = f"An address of the authorization server is not valid, so it is not used: {url[:200]!r}."
        raise AuthorizationError(words) from exc


async def _followed(connections: httpx.AsyncBaseTransport, request: HttpRequest, recorder: Recorder) -> HttpResponse:
    url = request.url
    for _ in range(HOPS + 1):
        response = await _sent(connections, request, url, recorder)
        if not 300 <= response.status < 400:
            return response
        url = _next(request, url, response)
    raise _redirected(request.url, "in a loop", response.status)


async def _sent(
    connections: httpx.AsyncBaseTransport, request: HttpRequest, url: str, recorder: Recorder
) -> HttpResponse:
    headers = {"Accept-Encoding": "identity", "User-Agent": "mcpadmin", **request.headers}
    host = wire_host(httpx.URL(url))
    exchange = recorder.exchange(request.verb, url, headers, authorization=True)  # never a body: it holds the secrets
    try:
        with translated():
            whole = with_host(headers, httpx.URL(url))
            asked = httpx.Request(request.verb, url, headers=whole, content=request.body)
            response = await connections.handle_async_request(asked)
            exchange.answered(response.status_code, response.headers.raw)
            try:
                body = await _body(response)
                exchange.read(len(body))
                return HttpResponse(response.status_code, _headers(response), body)
            finally:
                exchange.ended()
                await response.aclose()
    except asyncio.CancelledError:
        exchange.failed("cancelled", "Gave up before the server answered.")
        raise
    except TransportError as exc:
        exchange.failed(exc.fault, exc.detail)
        # This is not the request that needed the token. The server refused that one, so it certainly did not run.
        raise TransportError(exc.fault, f"{host}: {exc.detail}", may_have_run=False) from exc
    except (ProtocolError, InvalidRequest) as exc:  # nor does this error say anything about the MCP server
        exchange.failed(exc.fault, exc.detail)
        raise AuthorizationError(f"{host}: {exc.detail}") from exc


def _headers(response: httpx.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


async def _body(response: httpx.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise AuthorizationError("The authorization server compressed a response, which was not requested.")
    body = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    async for chunk in response.stream:
        body += chunk
        if len(body) > BYTES:
            raise AuthorizationError(f"A response of the authorization server exceeds the limit of {BYTES} bytes.")
    return bytes(body)


def _next(request: HttpRequest, url: str, response: HttpResponse) -> str:
    try:
        target = str(httpx.URL(url).join(response.headers.get("location", "")))
    except httpx.InvalidURL:
        raise _redirected(url, "nowhere", response.status) from None
    if request.verb != "GET" or origin(target) != origin(url):
        raise _redirected(url, f"to {origin(target)[:200] or 'nowhere'}", response.status)
    return target


def _redirected(url: str, where: str, status: int) -> AuthorizationError:
    host = wire_host(httpx.URL(url))
    return AuthorizationError(f"{host} redirects {where} (HTTP {status}). The redirect was not followed.")
