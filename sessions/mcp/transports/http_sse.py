"""HTTP+SSE: one GET whose event stream carries everything from the server, and a POST for each message to it.

Source: 2024-11-05 *Transports / HTTP with SSE*; deprecated since 2025-03-26 and not defined in the modern era.
There are no event ids and no resumption: when the stream ends, the connection ends.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

import httpx
from httpx_sse import ServerSentEvent

from ..core.errors import Fault, HttpError, InvalidRequest, McpError, NotReady, ProtocolError, TransportError
from ..core.methods import INITIALIZE
from ..core.session import Outgoing
from ..core.versions import Revision
from .base import Receiver, Transport, translated
from .dialing import addresses
from .endpoint import Endpoint
from .streamable_http import answers
from .streamable_http.wire import Wire, discard, exchange_of, parsed_url

#: seconds that a POST may continue after its answer arrived: some servers end the POST last
_GRACE: Final = 0.2
#: shorter parts of an endpoint's URL are words, not ids
_ID_CHARS: Final = 10


class HttpSseTransport(Transport):
    """Duplex: the id of an answer decides which request it belongs to, not the POST."""

    kind = "http_sse"
    exchange = False
    legacy_only = True

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._connect_timeout = endpoint, endpoint.connect_timeout
        self._wire = Wire(endpoint)
        self._stream_url = ""
        self._receiver: Receiver | None = None
        self._reader: asyncio.Task[None] | None = None
        self._over = False

    @property
    def url(self) -> str:
        """The URL of the stream. The endpoint's URL is not shown because it contains the session id."""
        return self._stream_url

    async def resolve(self) -> str:
        return ", ".join(await addresses(parsed_url(self._endpoint.url), self._endpoint.policy, self._connect_timeout))

    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        """Open the stream and wait for its `endpoint` event. `check` changes nothing: this already connects."""
        self._receiver = receiver
        self._wire.crowded = lambda: receiver.shedding
        response = await self._opened()
        self._stream_url = str(self._wire.url)
        named = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(response, named), name="mcp SSE stream")
        try:
            async with asyncio.timeout(self._connect_timeout):
                self._wire.url = await named
        except TimeoutError:
            detail = f"The server opened an event stream, but named no endpoint within {self._connect_timeout:g} s."
            raise ProtocolError(Fault.NO_ENDPOINT, detail, may_have_run=False) from None
        return "the event stream is open and named its endpoint"

    async def send(self, outgoing: Outgoing) -> None:
        if self._reader is None or self._over:
            raise NotReady("The server's event stream is not open.")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as scope:
                outgoing.on_answered = lambda: scope.reschedule(loop.time() + _GRACE)
                await self._post(outgoing)
        except TimeoutError:
            if not outgoing.answered:
                raise
        finally:
            outgoing.on_answered = None

    async def _post(self, outgoing: Outgoing) -> None:
        headers = self._wire.session_headers(outgoing.method) | outgoing.headers
        response = await self._wire.post(outgoing, headers)
        try:
            if 300 <= response.status_code < 400:
                raise _redirected(response, outgoing.method)
            if not 200 <= response.status_code < 300:
                raise await self._wire.refused(response)  # fails only its own request
            await self._wire.rest(response)  # the answer to a POST has no meaning
        finally:
            await discard(response)

    def negotiated(self, revision: Revision | None) -> None:
        self._wire.revision = revision

    async def close(self) -> None:
        self._over = True
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))
        await self._wire.close()

    # -- the stream

    async def _opened(self) -> httpx.Response:
        self._wire.url = parsed_url(self._endpoint.url)
        try:
            async with asyncio.timeout(2 * self._connect_timeout):  # connecting also has its own deadline
                return await self._get()
        except TimeoutError:
            detail = f"The server did not open the event stream within {2 * self._connect_timeout:g} s."
            raise TransportError(Fault.TIMEOUT, detail, may_have_run=False) from None

    async def _get(self) -> httpx.Response:
        for _ in range(answers.MAX_REDIRECTS + 1):
            response = await self._wire.get("", interactive=True)
            if response.status_code == 200 and answers.media_type(response) == "text/event-stream":
                return response
            try:
                if not 300 <= response.status_code < 400:
                    raise _no_stream(response) if response.is_success else await self._wire.refused(response)
            finally:
                await discard(response)
            # Like `initialize`, opening the stream changes nothing on the server.
            self._wire.url = answers.redirect_target(response, self._wire.url, INITIALIZE)
        detail = "The server redirects in a loop."
        raise HttpError(Fault.REDIRECTED, detail, status=response.status_code, may_have_run=False)

    async def _read(self, response: httpx.Response, named: "asyncio.Future[httpx.URL]") -> None:
        error: McpError = TransportError(Fault.CONNECTION_LOST, "The server ended the event stream.", may_have_run=True)
        try:
            async with aclosing(self._wire.events(response)) as stream:
                async for event in stream:
                    self._take(event, response, named)
        except McpError as exc:
            error = exc
        finally:
            with suppress(McpError):
                await discard(response)
        self._lose(error, named)

    def _take(self, event: ServerSentEvent, response: httpx.Response, named: "asyncio.Future[httpx.URL]") -> None:
        assert self._receiver is not None  # noqa: S101  set before the stream is read
        if not named.done():
            self._first(event, named)
        elif event.event == "message" and event.data:
            data = event.data.encode()
            self._wire.recorder.received(data, exchange=exchange_of(response))
            self._receiver.message(data)
        elif event.event == "endpoint":
            self._receiver.line("sse", "The server named a second endpoint, which is not used.")

    def _first(self, event: ServerSentEvent, named: "asyncio.Future[httpx.URL]") -> None:
        """Wait for the endpoint. Some servers greet with an event of another name; a message cannot come before it."""
        try:
            if event.event == "endpoint":
                target = endpoint(self._wire.url, event.data)
                self._hide(target)
                named.set_result(target)
            elif event.data and event.event != "message":
                assert self._receiver is not None  # noqa: S101  set before the stream is read
                self._receiver.line("sse", f"The server sent the event {event.event[:40]!r} before its endpoint.")
            elif event.data:
                detail = "The event stream began with a message instead of naming its endpoint."
                raise ProtocolError(Fault.NO_ENDPOINT, detail, may_have_run=False)
        except McpError as exc:
            named.set_exception(exc)

    def _hide(self, target: httpx.URL) -> None:
        """The endpoint contains the session id, in its query or in its path."""
        known = set(self._wire.url.path.split("/"))
        for value in (*target.params.values(), *(part for part in target.path.split("/") if part not in known)):
            if len(value) >= _ID_CHARS:
                self._wire.recorder.hide(value)

    def _lose(self, error: McpError, named: "asyncio.Future[httpx.URL]") -> None:
        if not named.done():
            named.set_exception(_before_endpoint(error))
        elif not self._over and self._receiver is not None:
            self._over = True
            self._receiver.lost(error)


def endpoint(stream: httpx.URL, reference: str) -> httpx.URL:
    """The URL for POSTs, from the data of the `endpoint` event. Another origin would receive our credentials."""
    if not reference.strip():
        raise ProtocolError(Fault.NO_ENDPOINT, "The server named an empty endpoint.", may_have_run=False)
    try:
        with translated():
            target = parsed_url(str(stream.join(reference.strip())))
    except InvalidRequest as exc:
        detail = "The server named an endpoint that is not an http or https URL."
        raise ProtocolError(Fault.ENDPOINT_REFUSED, detail, may_have_run=False) from exc
    if not answers.same_origin(stream, target):
        shown = str(target.copy_with(path="/", query=None))[:300]
        detail = f"The server wants messages to be sent to another origin ({shown}). They would carry your credentials there."
        raise ProtocolError(Fault.ENDPOINT_REFUSED, detail, may_have_run=False)
    return target


def _no_stream(response: httpx.Response) -> McpError:
    shown = answers.media_type(response)[:80] or "unknown content"
    detail = f"The server answered a GET with {shown} (HTTP {response.status_code}) instead of an event stream."
    return ProtocolError(Fault.NOT_MCP, detail, may_have_run=False)


def _before_endpoint(error: McpError) -> McpError:
    if error.fault is not Fault.CONNECTION_LOST:
        return error
    detail = "The server ended the event stream before it named its endpoint."
    return ProtocolError(Fault.NO_ENDPOINT, detail, may_have_run=False)


def _redirected(response: httpx.Response, method: str) -> HttpError:
    """A redirect of a POST is not followed; it fails only its own request."""
    location = response.headers.get("location", "")[:300]
    return HttpError(
        Fault.REDIRECTED,
        f"The server redirects the message {method} (HTTP {response.status_code}). Redirects are not followed.",
        status=response.status_code,
        may_have_run=True,
        location=location,
    )
