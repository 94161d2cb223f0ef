"""HTTP for this transport: requests with the right headers; bodies and event streams within bounds."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx
from httpx_sse import ServerSentEvent

from ...core.errors import AuthorizationError, Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ...core.methods import REPEATABLE
from ...core.refusals import READ_BYTES, with_words, words_in
from ...core.session import Outgoing
from ...core.versions import Era, Revision
from ..authorizing import Trial
from ..base import translated
from ..cookies import Cookies
from ..egress import carrying
from ..endpoint import Endpoint
from ..engine import engine, with_host
from ..inflate import Inflater
from ..recording import UNRECORDED_EXCHANGE, Exchange
from ..sse import events
from . import answers

ACCEPT_ANY: Final = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
}
ACCEPT_STREAM: Final = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
#: we send an id back as a header (Last-Event-ID), so it must be valid in one
_EVENT_ID: Final = re.compile(r"[\x20-\x7e]{1,4096}\Z")
#: milliseconds: a server that says 0 and ends every stream must not keep us busy
_SHORTEST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 3_600_000
#: seconds: after attempts that failed, the pause doubles up to this
_LONGEST_PAUSE: Final = 30.0
#: a stream that lasted this many seconds did not fail: gateways cut silent streams
STEADY: Final = 10.0
#: seconds to read the body of a refusal, which only provides the error message
_WORDS_SECONDS: Final = 2.0
#: seconds to read a body that has no meaning
_REST: Final = 0.5
#: the first answers, which show how a server behaves: those to the opening and the lists
_BEGINNING: Final = 8
#: key in a response's extensions: whether its request carried a credential
_CREDENTIAL: Final = "credential"
#: key in a response's extensions: its Exchange
_EXCHANGE: Final = "exchange"
#: we send it back; some servers put a signed token with all of the session's state there
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,16384}\Z")


@dataclass(slots=True)
class Cursor:
    """Where to resume a broken stream; `retry` is in seconds."""

    last_id: str = ""
    retry: float = 1.0
    moved: bool = False

    def note(self, event_id: str, retry_ms: int | None) -> None:
        self.moved = True
        if _EVENT_ID.match(event_id):
            self.last_id = event_id
        if retry_ms is not None and 0 <= retry_ms <= _LONGEST_RETRY_MS:
            self.retry = max(retry_ms, _SHORTEST_RETRY_MS) / 1000

    def pause(self, failed: int) -> float:
        """Seconds to wait before the next attempt, after so many that failed: never less than the server asked for."""
        return max(self.retry, min(self.retry * 2.0 ** min(failed, 16), _LONGEST_PAUSE))


class Wire:
    """Sends requests to one endpoint. `session_id` is a secret of the legacy era."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.url = httpx.URL("http://unresolved.invalid/")
        self.revision: Revision | None = None
        self.session_id = ""
        self.limits = endpoint.limits
        #: whether the receiver is dropping the server's events (fairness.Share)
        self.crowded: Callable[[], bool] = bool
        self._headers, self._authorizer = endpoint.headers, endpoint.authorization
        self._credential, self._sent = endpoint.credential, endpoint.sent
        self._engine = engine(endpoint.policy, endpoint.limits, endpoint.tls_in_use, timeout=endpoint.connect_timeout)
        self.recorder = endpoint.recorder
        self._cookies = Cookies(self.recorder.hide)
        #: how many answers came; each may have left a connection that the server has ended since
        self._answers = 0
        self._extensions = {"timeout": {"connect": endpoint.connect_timeout}}

    @property
    def resumable(self) -> bool:
        return self.revision is not None and self.revision.era is Era.LEGACY

    def session_headers(self, method: str = "") -> dict[str, str]:
        """The headers of the legacy era for everything after `initialize`."""
        if method == "initialize" or self.revision is None or self.revision.era is Era.MODERN:
            return {}
        headers = {"MCP-Protocol-Version": self.revision.name}
        return headers | {"Mcp-Session-Id": self.session_id} if self.session_id else headers

    def remember_session(self, response: httpx.Response) -> bool:
        """False if the server named a session whose id cannot be sent back."""
        value = response.headers.get("mcp-session-id", "")
        self.session_id = value if _SESSION_ID.match(value) else ""
        if self.session_id:
            self.recorder.hide(self.session_id)
        return bool(self.session_id) or not value

    def _given(self) -> Mapping[str, str]:
        """The server's own headers, which may name another program."""
        given = self._headers()
        return given if any(name.lower() == "user-agent" for name in given) else {"User-Agent": "mcpadmin", **given}

    async def post(self, outgoing: Outgoing, headers: Mapping[str, str]) -> httpx.Response:
        whole = {**self._given(), **ACCEPT_ANY, **headers}
        if self._authorizer is None:
            return await self._request("POST", whole, outgoing)
        trial = self._authorizer.trial(outgoing.method)
        return await self._authorized(trial, "POST", whole, outgoing)

    async def get(self, last_id: str, *, interactive: bool = False) -> httpx.Response:
        """Not `interactive`: a stream that belongs to no request is no reason to ask a user to sign in."""
        headers = {**self._given(), **ACCEPT_STREAM, **self.session_headers()}
        whole = headers | {"Last-Event-ID": last_id} if last_id else headers
        if self._authorizer is None:
            return await self._request("GET", whole)
        return await self._authorized(self._authorizer.trial("", interactive=interactive), "GET", whole)

    async def delete(self) -> None:
        headers = {**self._given(), **ACCEPT_STREAM, **self.session_headers()}
        if self._authorizer is not None:
            headers |= await self._authorizer.trial("", interactive=False).headers("DELETE", str(self.url))
        await discard(await self._request("DELETE", headers))

    async def _authorized(
        self, trial: Trial, verb: str, headers: Mapping[str, str], outgoing: Outgoing | None = None
    ) -> httpx.Response:
        """Repeats only a request that was refused for lack of a token (so it did not run), and only with another
        token."""
        while True:
            token = await trial.headers(verb, str(self.url))
            response = await self._request(verb, {**headers, **token}, outgoing, token=bool(token))
            response.extensions[_CREDENTIAL] = bool(token)
            if response.status_code not in (401, 403):
                trial.answered(response.headers.get("dpop-nonce", ""))
                return response
            try:
                if not await self._admitted(trial, response):
                    return response
                if outgoing is not None and outgoing.before_repeat is not None:
                    await outgoing.before_repeat("authorization")
            except BaseException:  # whatever ended this attempt: release its response, then re-raise
                await discard(response)
                raise
            await discard(response)

    async def _admitted(self, trial: Trial, response: httpx.Response) -> bool:
        """Whether to repeat the request. The error for a missing token includes the server's words. If the server asks
        for a key in words and names no authorization server, KEY_NEEDED is raised: no one can sign in there."""
        try:
            return await trial.refused(answers.refusal(response))
        except AuthorizationError as exc:
            error = await self.refused(response)
            if error.fault is Fault.KEY_NEEDED and exc.fault is Fault.UNAUTHORIZED:
                raise error from exc
            exc.detail = with_words(exc.detail, error.words)
            raise

    async def refused(
        self, response: httpx.Response, *, wire_session: bool = False, body: bytes | None = None
    ) -> HttpError:
        """The error for a status outside 2xx and 3xx, with the words of its body (`body`: the body if already read)."""
        words = words_in(
            (await self._beginning(response) if body is None else body)[:READ_BYTES], answers.media_type(response)
        )
        credential = self._credential or bool(response.extensions.get(_CREDENTIAL))
        return answers.status_error(response, words, credential=credential, wire_session=wire_session)

    async def _beginning(self, response: httpx.Response) -> bytes:
        """The part of a body that arrives within a moment. Errors here do not affect the refusal."""
        found = b""
        try:
            async with asyncio.timeout(_WORDS_SECONDS):
                async for chunk in self._chunks(response):
                    found += chunk
                    if len(found) >= READ_BYTES:
                        break
        except (McpError, TimeoutError):
            pass
        return found

    async def _request(
        self,
        verb: str,
        headers: Mapping[str, str],
        outgoing: Outgoing | None = None,
        *,
        token: bool = False,
        again: bool = False,
    ) -> httpx.Response:
        """`again`: on a second connection, because the server ended the first while the request was on its way."""
        sent = self._cookies.added(headers, self.url)
        body, exchange = None, self.recorder.exchange(verb, str(self.url), sent)
        if outgoing is not None:
            body = outgoing.data
            self.recorder.sent(outgoing, exchange)
        try:
            with translated():
                whole = with_host(sent, self.url)
                request = httpx.Request(verb, self.url, headers=whole, content=body, extensions=self._extensions)
                request.headers.encoding = "ascii"  # known here; httpx would otherwise guess it for each header
                with carrying(outgoing):
                    response = await self._engine.handle_async_request(request)
                response.headers.encoding = "latin-1"
        except McpError as exc:
            exchange.failed(exc.fault, exc.detail)
            if exc.may_have_run:
                self._sent(token)
            if outgoing is None or again or self._engine.closed or not self._ended_before(exc, outgoing):
                raise
            return await self._request(verb, headers, outgoing, token=token, again=True)
        except asyncio.CancelledError:
            exchange.failed("cancelled", "Gave up before the server answered.")
            raise
        self._sent(token)
        self._answers += 1
        response.extensions[_EXCHANGE] = exchange
        try:
            answers.check_headers(response, self.limits)
        except ProtocolError as exc:
            exchange.failed(exc.fault, exc.detail)
            await discard(response)
            raise
        self._cookies.keep(response, self.url)
        exchange.answered(response.status_code, response.headers.raw)
        return response

    def _ended_before(self, error: McpError, outgoing: Outgoing) -> bool:
        """Whether a repeatable request was probably sent on a connection that the server had silently closed. A server
        that does so from the beginning gets a connection for each request, so that this cannot happen to a call."""
        if not self._answers or error.fault is not Fault.CONNECTION_LOST or outgoing.method not in REPEATABLE:
            return False
        if self._answers < _BEGINNING:
            self._engine.stop_reusing()
        return True

    async def body(self, response: httpx.Response) -> bytes:
        """The whole body; ProtocolError as soon as it exceeds the limit of a message."""
        parts: list[bytes] = []
        size, limit = 0, self.limits.message_bytes
        async for chunk in self._chunks(response):
            size += len(chunk)
            if size > limit:
                raise ProtocolError(Fault.MESSAGE_LIMIT, f"The response exceeds the limit of {limit} bytes.")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def rest(self, response: httpx.Response) -> None:
        """Read a body that has no meaning, within bounds: the server accepted the message. Only a connection that is read
        to its end can be reused, and some servers never end the answer to a notification."""
        try:
            async with asyncio.timeout(_REST):
                await self.body(response)
        except (McpError, TimeoutError):
            pass  # the connection is simply not reused

    async def _chunks(self, response: httpx.Response, *, endless: bool = False) -> AsyncGenerator[bytes, None]:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        stream, exchange = response.stream, exchange_of(response)
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
        try:
            with translated():
                if encoding in ("", "identity"):
                    async for chunk in stream:
                        exchange.read(len(chunk))
                        yield chunk
                    return
                inflater = Inflater(encoding, self.limits, endless=endless)
                async for chunk in stream:
                    exchange.read(len(chunk))
                    for piece in inflater.feed(chunk):
                        yield piece
        except McpError as exc:
            exchange.failed(exc.fault, exc.detail)
            raise

    def events(self, response: httpx.Response) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of a stream. ProtocolError if one exceeds its bound, TransportError if the stream breaks."""
        return events(self._chunks(response, endless=True), self.limits, self.crowded)

    async def pump(
        self, response: httpx.Response, cursor: Cursor, deliver: Callable[[bytes], None], done: Callable[[], bool]
    ) -> None:
        """Deliver the messages of an event stream until it ends or `done()`. If the stream can be resumed, a break
        counts as an end."""
        try:
            async with aclosing(self.events(response)) as stream:
                async for event in stream:
                    cursor.note(event.id, event.retry)
                    if event.data and event.event == "message":
                        deliver(event.data.encode())
                    if done():
                        return
        except TransportError:
            if not cursor.last_id or not self.resumable:
                raise

    async def close(self) -> None:
        await self._engine.aclose()


def parsed_url(text: str) -> httpx.URL:
    """InvalidRequest unless it is an http or https URL with a host and without user information."""
    with translated():
        url = httpx.URL(text.strip())
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise InvalidRequest("The URL must begin with http:// or https:// and name a host.")
    if url.userinfo:
        raise InvalidRequest("The URL must not contain a username or password; use a header instead.")
    return url.copy_with(fragment=None)


async def discard(response: httpx.Response) -> None:
    """Release a response. An unfinished one costs its connection."""
    exchange_of(response).ended()
    with translated():
        await response.aclose()


def exchange_of(response: httpx.Response) -> Exchange:
    found: Exchange = response.extensions.get(_EXCHANGE, UNRECORDED_EXCHANGE)
    return found
