"""Streamable HTTP, both eras: legacy with wire session, GET stream and resumption; modern plain POST.

Source: 2025-11-25 and 2026-07-28 *Transports / Streamable HTTP*. A request is sent in its caller's own task;
only the standalone GET stream and the tail of a finished reply have tasks of their own.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from ..protocol.errors import Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ..protocol.limits import Limits
from ..protocol.session import Outgoing
from ..protocol.versions import Era, Revision
from . import http_answers as answers
from .base import Receiver, Transport, translated
from .egress import Policy
from .engine import engine, shared_tls
from .inflate import Inflater
from .reach import addresses, try_connection
from .sse import SseDecoder

_ACCEPT: Final = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "mcpadmin",
}
_ACCEPT_STREAM: Final = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "mcpadmin"}
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}\Z")
#: tries to resume one reply (or to reopen the GET stream) without a new event in between
_RESUMPTIONS: Final = 5
_REOPENINGS: Final = 3
#: seconds: how long the end of an answered stream may take so that its connection can be used again,
#: how long the first call waits for the GET stream, how long DELETE may take
_LINGER: Final = 0.5
_GET_HEAD: Final = 1.0
_DELETE: Final = 2.0
_LINGERING: Final = 64


@dataclass(slots=True)
class Cursor:
    """Where a broken stream continues."""

    last_id: str = ""
    retry: float = 1.0
    moved: bool = False


class StreamableHttpTransport(Transport):
    kind = "streamable_http"
    exchange = True

    def __init__(
        self,
        *,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        policy: Policy,
        limits: Limits,
        connect_timeout: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._given_url = url
        self._url = httpx.URL("http://invalid/")
        self._headers, self._policy, self._limits = headers, policy, limits
        self._connect_timeout = connect_timeout
        self._tls = tls or shared_tls()
        self._engine = engine(policy, limits, self._tls, timeout=connect_timeout)
        self._receiver: Receiver | None = None
        self._revision: Revision | None = None
        self._session_id = ""
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._lingering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return str(self._url)

    @property
    def has_wire_session(self) -> bool:
        return bool(self._session_id)

    async def resolve(self) -> str:
        self._url = parsed_url(self._given_url)
        return ", ".join(await addresses(self._url, self._policy, self._connect_timeout))

    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        self._url = parsed_url(self._given_url)
        self._receiver = receiver
        if not check:
            return "connects with the first request"
        return await try_connection(self._url, self._policy, self._tls, self._connect_timeout)

    def negotiated(self, revision: Revision | None) -> None:
        self._revision = revision
        if revision is None:
            self._session_id = ""
            self._stop_listening()

    async def ready(self) -> None:
        self._stop_listening()
        self._listening.clear()
        self._listener = asyncio.create_task(self._listen(), name="mcp GET stream")
        try:
            async with asyncio.timeout(_GET_HEAD):
                await self._listening.wait()
        except TimeoutError:
            pass  # a slow stream is no reason to wait with calls

    async def close(self) -> None:
        self._stop_listening()
        for task in self._lingering:
            task.cancel()
        try:
            if self._session_id:
                await self._delete()
        finally:
            await self._engine.aclose()

    # -- one exchange

    async def send(self, outgoing: Outgoing) -> None:
        for _ in range(answers.MAX_REDIRECTS + 1):
            response = await self._post(outgoing)
            if not 300 <= response.status_code < 400:
                await self._take(outgoing, response)
                return
            await _discard(response)
            self._url = answers.redirect_target(response, self._url, outgoing.method)
        raise HttpError(
            Fault.REDIRECTED, "The server redirects in a circle.", status=response.status_code, may_have_run=False
        )

    async def _post(self, outgoing: Outgoing) -> httpx.Response:
        headers = {**self._headers(), **_ACCEPT, **self._wire_headers(outgoing.method), **outgoing.headers}
        outgoing.left = True
        return await self._request("POST", headers, outgoing.data)

    def _wire_headers(self, method: str) -> dict[str, str]:
        if method == "initialize" or self._revision is None or self._revision.era is Era.MODERN:
            return {}
        headers = {"MCP-Protocol-Version": self._revision.name}
        if self._session_id:
            headers["Mcp-Session-Id"] = self._session_id
        return headers

    async def _request(self, verb: str, headers: Mapping[str, str], body: bytes | None = None) -> httpx.Response:
        with translated():
            request = httpx.Request(
                verb,
                self._url,
                headers=headers,
                content=body,
                extensions={"timeout": {"connect": self._connect_timeout}},
            )
            response = await self._engine.handle_async_request(request)
        try:
            answers.check_headers(response, self._limits)
        except ProtocolError:
            await _discard(response)
            raise
        return response

    async def _take(self, outgoing: Outgoing, response: httpx.Response) -> None:
        """Read one answer to its end, or to our message in it."""
        keep = False
        try:
            if not 200 <= response.status_code < 300:
                await self._refused(outgoing, response)
            elif outgoing.id is None:
                await self._body(response)  # the answer to a notification or a response of ours says nothing
            else:
                self._remember_session(outgoing, response)
                keep = await self._answered(outgoing, response)
        finally:
            if keep:
                self._let_end(response)
            else:
                await _discard(response)

    async def _answered(self, outgoing: Outgoing, response: httpx.Response) -> bool:
        """True when the answer is in, but the end of its stream is not."""
        media = answers.media_type(response)
        if media == "text/event-stream":
            return await self._stream(outgoing, response)
        body = await self._body(response)
        if not body.strip():
            raise ProtocolError(
                Fault.NO_ANSWER, f"The server answered HTTP {response.status_code} without any content."
            )
        if not answers.is_json(media) and (media or body.lstrip()[:1] not in (b"{", b"[")):
            raise ProtocolError(
                Fault.NOT_MCP,
                f"The server answered with {media[:80] or 'unknown content'} instead of an MCP message. "
                "Check that the URL is that of the MCP endpoint.",
            )
        self._deliver(body, outgoing)
        if not outgoing.answered:
            raise ProtocolError(Fault.NO_ANSWER, "The server answered, but not to this request.")
        return False

    def _deliver(self, data: bytes, outgoing: Outgoing | None, status: int | None = None) -> None:
        if self._receiver is not None:
            self._receiver.message(data, outgoing, status)

    async def _refused(self, outgoing: Outgoing, response: httpx.Response) -> None:
        """Not 2xx: a JSON-RPC error in the body speaks for itself, except where the status decides."""
        status = response.status_code
        carried = "Mcp-Session-Id" in self._wire_headers(outgoing.method)
        error = answers.status_error(response, wire_session=carried)
        if error.fault is not Fault.HTTP_STATUS:
            raise error
        if outgoing.id is not None and answers.is_json(answers.media_type(response)):
            body = await self._body(response)
            if b'"jsonrpc"' in body:
                self._deliver(body, outgoing, status)
        if not outgoing.answered:
            raise error

    def _remember_session(self, outgoing: Outgoing, response: httpx.Response) -> None:
        if outgoing.method == "initialize":
            value = response.headers.get("mcp-session-id", "")
            self._session_id = value if _SESSION_ID.match(value) else ""

    async def _body(self, response: httpx.Response) -> bytes:
        """The whole body, refused as soon as it is over the limit of a message."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self._chunks(response):
            size += len(chunk)
            if size > self._limits.message_bytes:
                raise ProtocolError(
                    Fault.MESSAGE_LIMIT, f"The answer is over the limit of {self._limits.message_bytes} bytes."
                )
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        inflater = Inflater(encoding, self._limits.inflated_bytes) if encoding not in ("", "identity") else None
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
        with translated():
            async for chunk in stream:
                yield inflater.feed(chunk) if inflater else chunk

    # -- streams

    async def _stream(self, outgoing: Outgoing, response: httpx.Response) -> bool:
        """Events until our answer; it may also come on another stream, which wakes us (then False)."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as scope:
                outgoing.on_answered = lambda: scope.reschedule(loop.time())
                await self._follow(outgoing, response)
        except TimeoutError:
            if not outgoing.answered:
                raise
            return False
        finally:
            outgoing.on_answered = None
        return True

    async def _follow(self, outgoing: Outgoing, response: httpx.Response) -> None:
        """One reply over as many connections as the server breaks it into (legacy)."""
        cursor = Cursor()
        await self._pump(response, outgoing, cursor)
        tries = 0
        while not outgoing.answered:
            if not cursor.last_id or self._revision is None or self._revision.era is Era.MODERN:
                raise TransportError(
                    Fault.CONNECTION_LOST, "The server ended the stream without an answer.", may_have_run=True
                )
            tries = 1 if cursor.moved else tries + 1
            if tries > _RESUMPTIONS:
                raise TransportError(
                    Fault.CONNECTION_LOST, "The stream broke again and again without an answer.", may_have_run=True
                )
            await asyncio.sleep(cursor.retry)
            await self._resume(outgoing, cursor)

    async def _resume(self, outgoing: Outgoing, cursor: Cursor) -> None:
        cursor.moved = False
        response = await self._get(cursor.last_id)
        try:
            if response.status_code >= 400 or answers.media_type(response) != "text/event-stream":
                error = answers.status_error(response, wire_session=bool(self._session_id))
                error.may_have_run = True
                raise error
            await self._pump(response, outgoing, cursor)
        finally:
            await _discard(response)

    async def _get(self, last_id: str) -> httpx.Response:
        headers = {**self._headers(), **_ACCEPT_STREAM, **self._wire_headers("")}
        if last_id:
            headers["Last-Event-ID"] = last_id
        return await self._request("GET", headers)

    async def _pump(self, response: httpx.Response, outgoing: Outgoing | None, cursor: Cursor) -> None:
        """Deliver events until the stream ends or our answer came. A break is an end where it can be resumed."""
        decoder = SseDecoder(self._limits.sse_event_bytes)
        try:
            async for chunk in self._chunks(response):
                for event in decoder.feed(chunk):
                    cursor.moved = True
                    cursor.last_id = event.id or cursor.last_id
                    cursor.retry = event.retry / 1000 if event.retry is not None else cursor.retry
                    if event.data and event.event == "message":
                        self._deliver(event.data, outgoing)
                if outgoing is not None and outgoing.answered:
                    return
        except TransportError:
            if not cursor.last_id:
                raise

    async def _listen(self) -> None:
        """The standalone GET stream: optional, so its failures are nobody's error."""
        cursor = Cursor()
        failures = 0
        while failures < _REOPENINGS:
            cursor.moved = False
            try:
                if not await self._listen_once(cursor):
                    return
            except ProtocolError as exc:
                if self._receiver is not None:
                    self._receiver.broken(exc, b"")
            except McpError:
                pass  # counted as a failure below; calls show a real fault of the server soon enough
            finally:
                self._listening.set()
            failures = 0 if cursor.moved else failures + 1
            await asyncio.sleep(cursor.retry * 2**failures)

    async def _listen_once(self, cursor: Cursor) -> bool:
        """False: the server offers no such stream."""
        response = await self._get(cursor.last_id)
        self._listening.set()
        try:
            if response.status_code != 200 or answers.media_type(response) != "text/event-stream":
                return response.status_code >= 500 and response.status_code != 501
            await self._pump(response, None, cursor)
            return True
        finally:
            await _discard(response)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None

    # -- ends

    def _let_end(self, response: httpx.Response) -> None:
        """Let an answered stream end by itself for a moment: a connection cut short cannot be used again."""
        end = _drain(response) if len(self._lingering) < _LINGERING else _discard(response)
        task = asyncio.create_task(end, name="mcp reply tail")
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    async def _delete(self) -> None:
        headers = {**self._headers(), **_ACCEPT_STREAM, **self._wire_headers("")}
        try:
            async with asyncio.timeout(_DELETE):
                await _discard(await self._request("DELETE", headers))
        except (McpError, TimeoutError):
            pass  # best effort: the server forgets the session by itself


def parsed_url(text: str) -> httpx.URL:
    """InvalidRequest unless it is an http or https URL with a host and without user information."""
    with translated():
        url = httpx.URL(text.strip())
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequest("The URL must begin with http:// or https:// and name a host.")
    if url.userinfo:
        raise InvalidRequest("The URL must not contain a user name or password; use a header instead.")
    return url.copy_with(fragment=None)


async def _discard(response: httpx.Response) -> None:
    with translated():
        await response.aclose()


async def _drain(response: httpx.Response) -> None:
    """Read what is left, for a moment and within a bound, then give the connection back."""
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    left = 64 * 1024
    try:
        async with asyncio.timeout(_LINGER):
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    break
    except (httpx.HTTPError, TimeoutError):
        pass  # the answer is already in; the connection is simply not used again
    finally:
        await response.aclose()
