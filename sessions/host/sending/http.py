"""One HTTP request to a receiver. Redirects are not followed."""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx

from servers.secret import MASK, Secret, variants
from sessions.host.answer_redaction import Redactor
from sessions.host.sending.failure import NotDelivered
from sessions.mcp.core.errors import AddressRefused, McpError
from sessions.mcp.core.limits import KIB, Limits
from sessions.mcp.transports.base import translated
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.engine import engine, shared_tls

SECONDS: Final = 20.0
#: bytes of an answer; the rest is not read
ANSWER_BYTES: Final = 64 * KIB
LONGEST_RETRY_AFTER: Final = 300.0
GUARDED: Final = (
    "The outbound guard blocks this address. An operator can allow its network with MCPADMIN_ALLOWED_NETWORKS."
)
_REASON_CHARS: Final = 200


@dataclass(frozen=True)
class Answer:
    """`headers` with names in lower case; `body` up to ANSWER_BYTES."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def send(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    policy: OutboundPolicy,
    tls: ssl.SSLContext | None = None,
    seconds: float = SECONDS,
    secrets: Iterable[Secret] = (),
) -> Answer:
    """Return the answer, whose status is 200 to 299, with as much of its body as arrived within `seconds`. Raises
    NotDelivered, whose detail quotes the receiver without the `secrets` that were sent, and without the path and query
    of the URL."""
    until = asyncio.get_running_loop().time() + seconds
    try:
        request = httpx.Request(method, url, headers=dict(headers), content=body)
        answer = await exchange(request, policy, tls, until=until)
    except TimeoutError:
        raise NotDelivered(f"The receiver did not answer within {seconds:g} s.") from None
    except AddressRefused as exc:
        raise NotDelivered(GUARDED) from exc
    except McpError as exc:
        raise NotDelivered(exc.detail) from exc
    except (httpx.InvalidURL, ValueError) as exc:
        raise NotDelivered("The address or a header cannot be written as HTTP.") from exc
    if not 200 <= answer.status < 300:
        raise NotDelivered(_refusal(answer, url, Redactor(secrets)), answer.status, _retry_after(answer))
    return answer


async def exchange(
    request: httpx.Request,
    policy: OutboundPolicy,
    tls: ssl.SSLContext | None = None,
    *,
    with_body: bool = True,
    until: float | None = None,
) -> Answer:
    """Return the answer, whatever its status. Raises McpError, also for a refused address. Without `with_body`, only
    the head is awaited. `until`: the loop time by which the head must have arrived, or TimeoutError is raised, and
    after which no more of the body is awaited; without it, the caller sets the deadline."""
    request.headers.setdefault("User-Agent", "mcpadmin")
    request.headers["Accept-Encoding"] = "identity"
    connections = engine(policy, Limits(http_connections=1), tls or shared_tls(), timeout=SECONDS)
    try:
        async with asyncio.timeout_at(until):
            with translated():
                response = await connections.handle_async_request(request)
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, headers, await _beginning(response, until) if with_body else b"")
        finally:
            with suppress(McpError), translated():
                await response.aclose()
    finally:
        await connections.aclose()


async def _beginning(response: httpx.Response, until: float | None) -> bytes:
    """The status decides, so an answer whose body breaks off, or never ends, still counts."""
    body = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    with suppress(McpError), translated():
        async with asyncio.timeout_at(until):
            async for chunk in response.stream:
                body += chunk
                if len(body) >= ANSWER_BYTES:
                    break
    return bytes(body[:ANSWER_BYTES])


def _refusal(answer: Answer, url: str, redactor: Redactor) -> str:
    if 300 <= answer.status < 400:
        return f"The receiver answered with a redirect (HTTP {answer.status}). Redirects are not followed: enter the final URL."
    quoted = _without_address(redactor.text(answer.body.decode(errors="replace")), url)
    reason = " ".join(quoted.split())[:_REASON_CHARS]
    return f"The receiver answered with HTTP {answer.status}{f': {reason}' if reason else '.'}"


def _without_address(text: str, url: str) -> str:
    """The path and query of the URL may be secret, and receivers often repeat them."""
    address = urlsplit(url)
    parts = [address.path, address.query, *(value for _, value in parse_qsl(address.query))]
    forms = {form for part in parts for form in variants(part) | variants(unquote(part))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _retry_after(answer: Answer) -> float | None:
    """Only the form in seconds is read; a date counts as none."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), LONGEST_RETRY_AFTER) if text.isascii() and text.isdigit() else None
