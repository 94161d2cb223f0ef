"""Interprets an HTTP answer before its body is read as a message: statuses, redirects, headers. Nothing here waits."""

import email.utils
import re
import time
from typing import Final

import httpx

from ...core import jsonrpc
from ...core.errors import Fault, HttpError, ProtocolError
from ...core.limits import Limits
from ...core.refusals import names_lost_session, recognised, with_words
from ...core.session import Outgoing
from ..authorizing import Refusal
from ..dialing import wire_host

#: Methods that change nothing on the server, so a same-origin 307 or 308 is followed for them.
REDIRECTABLE: Final = frozenset({"server/discover", "initialize"})
MAX_REDIRECTS: Final = 3
#: the beginning of an event stream
_EVENT: Final = re.compile(rb"\s*(?:data|event|id|retry)?:")
#: sentence for each fault; the status is filled in
_REFUSED: Final = {
    Fault.ACCESS_REFUSED: "The server refused the request, which carried no credential (HTTP {}).",
    Fault.KEY_NEEDED: "The server asks for a key or token, and no credential was sent (HTTP {}).",
    Fault.HOST_REFUSED: "The server does not accept the host name in this URL (HTTP {}).",
    Fault.ORIGIN_REFUSED: "The server refused the origin of the request (HTTP {}).",
}


def check_headers(response: httpx.Response, limits: Limits) -> None:
    """Limits the total of all headers. The engine limits each line."""
    raw = response.headers.raw
    size = sum(len(name) + len(value) + 4 for name, value in raw)
    if len(raw) > limits.header_count or size > limits.header_bytes:
        raise ProtocolError(Fault.HEADER_LIMIT, "The response headers exceed the limit.")


def media_type(response: httpx.Response) -> str:
    value: str = response.headers.get("content-type", "")
    return value.partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    return media == "application/json" or media.endswith("+json")


def demand_json(response: httpx.Response, media: str, body: bytes) -> None:
    """ProtocolError unless the body may be a message. A missing content type is accepted, a wrong one is named."""
    if not body.strip():
        raise ProtocolError(Fault.NO_ANSWER, f"The server answered with HTTP {response.status_code} and no content.")
    if is_json(media):
        if _EVENT.match(body):
            raise mislabelled("an event stream", media, "text/event-stream")
        return
    bracketed = body.lstrip()[:1] in (b"{", b"[")
    if media and bracketed and b'"jsonrpc"' in body:
        raise mislabelled("an MCP message", media, "application/json")
    if media or not bracketed:
        raise ProtocolError(
            Fault.NOT_MCP,
            f"The server answered with {media[:80] or 'unknown content'} instead of an MCP message. "
            "Check that the URL is the MCP endpoint.",
        )


def is_own_error(body: bytes, outgoing: Outgoing, limits: Limits) -> bool:
    """Whether a body is one JSON-RPC error with the id of this request (or the id as a string), and so its answer."""
    try:
        messages = jsonrpc.decode(body, limits)
    except ProtocolError:
        return False  # it is judged by its status and words
    first = messages[0]
    return isinstance(first, jsonrpc.Response) and first.error is not None and str(first.id) == str(outgoing.id)


def mislabelled(what: str, media: str, instead: str) -> ProtocolError:
    detail = f"The response body is {what}, but its content type is {media[:80]} instead of {instead}."
    return ProtocolError(Fault.INVALID_MESSAGE, detail)


def not_resumed(response: httpx.Response) -> HttpError:
    """The reply broke and cannot be continued. The server had already accepted the request."""
    detail = f"The stream broke and was not continued (HTTP {response.status_code})."
    return HttpError(Fault.CONNECTION_LOST, detail, status=response.status_code, may_have_run=True)


def same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    def port(url: httpx.URL) -> int:
        return url.port or {"http": 80, "https": 443}.get(url.scheme, -1)

    return (one.scheme, wire_host(one).lower(), port(one)) == (other.scheme, wire_host(other).lower(), port(other))


def redirect_target(response: httpx.Response, url: httpx.URL, method: str) -> httpx.URL:
    """Where a request may be repeated, or HttpError (redirected). A call is never repeated."""
    location = response.headers.get("location", "")
    if not location.strip():
        detail = (
            f"The server redirects (HTTP {response.status_code}) but names no address: the Location header is missing."
        )
        may_have_run = method not in REDIRECTABLE
        raise HttpError(Fault.REDIRECTED, detail, status=response.status_code, may_have_run=may_have_run)
    try:
        target = url.join(location)
    except httpx.InvalidURL:
        target = None
    allowed = method in REDIRECTABLE and response.status_code in (307, 308) and target and same_origin(url, target)
    if target is not None and allowed:
        return target.copy_with(fragment=None)
    shown = str(target.copy_with(query=None, userinfo=b"", fragment=None)) if target else "nowhere"
    raise HttpError(
        Fault.REDIRECTED,
        f"The server redirects (HTTP {response.status_code}) to {shown[:300]}. Redirects are not followed: "
        "if that is the right address, enter it as the URL.",
        status=response.status_code,
        may_have_run=method not in REDIRECTABLE,
        location=shown[:2000],
    )


def status_error(
    response: httpx.Response, words: str = "", *, credential: bool, wire_session: bool = False
) -> HttpError:
    """The error for a status outside 2xx and 3xx whose body is not an answer. `words`: the server's own. `credential`,
    `wire_session`: whether the request carried one."""
    status = response.status_code
    lost_session = wire_session and (status == 404 or (status == 400 and names_lost_session(words)))
    pause = retry_after(response)
    fault, detail, certain = _meaning(status, lost_session=lost_session, pauses=pause is not None)
    # A server that names its authorization server asks for a token in the standard way, whatever the body says.
    challenged = any("resource_metadata" in challenge for challenge in _challenges(response))
    if fault is not Fault.SESSION_GONE and not (status == 401 and challenged):
        refused = recognised(status, words, credential=credential)
        if refused is not None:
            fault, detail, certain = refused, _REFUSED[refused].format(status), True
    return HttpError(
        fault,
        with_words(detail, words),
        status=status,
        may_have_run=not certain,
        retry_after=pause,
        challenges=_challenges(response),
        words=words,
    )


def refusal(response: httpx.Response) -> Refusal:
    """A 401 or 403 in the form that an Authorizer's Trial reads."""
    return Refusal(response.status_code, _challenges(response), response.headers.get("dpop-nonce", "")[:1024])


def _challenges(response: httpx.Response) -> tuple[str, ...]:
    return tuple(value[:2000] for value in response.headers.get_list("www-authenticate")[:8])


def _meaning(status: int, *, lost_session: bool, pauses: bool) -> tuple[Fault, str, bool]:
    """The fault, a sentence, and whether the server certainly did not execute the request. `pauses`: it says when to
    retry."""
    if status == 401:
        return Fault.UNAUTHORIZED, "The server requires authorization (HTTP 401). Check the credentials.", True
    if status == 403 and pauses:
        words = "The server, or a gateway in front of it, is temporarily refusing requests (HTTP 403 with Retry-After)."
        return Fault.RATE_LIMITED, words, True
    if status == 403:
        return Fault.FORBIDDEN, "The server forbids this (HTTP 403). Check what the credentials may do.", True
    if lost_session:
        return Fault.SESSION_GONE, f"The server lost the session (HTTP {status}).", True
    if status == 404:
        return Fault.HTTP_STATUS, "Not found (HTTP 404). Check the path of the URL.", False
    if status == 402:
        return Fault.HTTP_STATUS, "The server requires payment (HTTP 402).", False
    if status == 429:
        return Fault.RATE_LIMITED, "The server's rate limit was reached (HTTP 429).", False
    if status >= 500:
        return Fault.HTTP_STATUS, f"The server, or a gateway in front of it, failed (HTTP {status}).", False
    return Fault.HTTP_STATUS, f"The server answered with HTTP {status}.", False


def retry_after(response: httpx.Response) -> float | None:
    """Seconds from the header Retry-After, which has two forms."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
