"""One request, one POST, one reply; and recovery when the reply breaks.

Source: 2025-11-25 and 2026-07-28 *Transports / Streamable HTTP*. Each request runs in its caller's own task. Only the
standalone GET stream and the tail of a finished reply have their own tasks.
"""

import asyncio
from typing import Final

import httpx

from ...core import methods
from ...core.errors import Fault, HttpError, McpError, ProtocolError, TransportError
from ...core.session import Outgoing
from ...core.versions import Revision
from ..base import Receiver, Transport
from ..dialing import addresses, try_connection
from ..endpoint import Endpoint
from . import answers
from .listener import Listener
from .wire import STEADY, Cursor, Wire, discard, exchange_of, parsed_url

#: attempts to resume one reply without a new event, or a stream that lasted, in between
_RESUMPTIONS: Final = 5
#: of a server, or a gateway before it, that is about to serve again
_GATEWAY_STATUS: Final = frozenset({502, 503, 504})
#: seconds: how long to wait for the end of an answered stream, so that its connection can be reused, and for DELETE
_LINGER: Final = 0.5
_DELETE: Final = 2.0
_LINGERING: Final = 64
_BAD_SESSION: Final = (
    "The server's Mcp-Session-Id header cannot be sent back: it is longer than 16 KiB, or contains characters "
    "other than visible ASCII. The session is used without it."
)


class StreamableHttpTransport(Transport):
    kind = "streamable_http"
    exchange = True

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._wire = Wire(endpoint)
        self._listener = Listener(self._wire, self._deliver, self._broken, self._feed)
        self._receiver: Receiver | None = None
        self._lingering: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return str(self._wire.url)

    @property
    def has_wire_session(self) -> bool:
        return bool(self._wire.session_id)

    async def resolve(self) -> str:
        self._wire.url = parsed_url(self._endpoint.url)
        return ", ".join(await addresses(self._wire.url, self._endpoint.policy, self._endpoint.connect_timeout))

    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        self._wire.url = parsed_url(self._endpoint.url)
        self._receiver = receiver
        self._wire.crowded = lambda: receiver.shedding
        if not check:
            return "connects with the first request"
        end = self._endpoint
        return await try_connection(self._wire.url, end.policy, end.tls_in_use, end.connect_timeout)

    def negotiated(self, revision: Revision | None) -> None:
        self._wire.revision = revision
        if revision is None:
            self._wire.session_id = ""
            self._listener.stop()

    async def ready(self) -> None:
        if self._endpoint.feed:
            await self._listener.start()

    async def close(self) -> None:
        self._listener.stop()
        for task in self._lingering:
            task.cancel()
        try:
            if self._wire.session_id:
                await self._delete()
        finally:
            await self._wire.close()

    async def _delete(self) -> None:
        try:
            async with asyncio.timeout(_DELETE):
                await self._wire.delete()
        except (McpError, TimeoutError):
            pass  # best effort: the server will expire the session itself

    # -- one exchange

    async def send(self, outgoing: Outgoing) -> None:
        for _ in range(answers.MAX_REDIRECTS + 1):
            headers = self._wire.session_headers(outgoing.method) | outgoing.headers
            response = await self._wire.post(outgoing, headers)
            if not 300 <= response.status_code < 400:
                # Read from the sent headers: another request may have renewed the session in the meantime.
                await self._take(outgoing, response, with_session="Mcp-Session-Id" in headers)
                return
            await discard(response)
            self._wire.url = answers.redirect_target(response, self._wire.url, outgoing.method)
        detail = "The server redirects in a loop."
        raise HttpError(Fault.REDIRECTED, detail, status=response.status_code, may_have_run=False)

    async def _take(self, outgoing: Outgoing, response: httpx.Response, *, with_session: bool) -> None:
        """Read one answer to its end, or until it delivered our message."""
        keep = False
        try:
            if not 200 <= response.status_code < 300:
                await self._refused(outgoing, response, with_session=with_session)
            elif outgoing.id is None:
                await self._wire.rest(response)  # the answer to a notification or to our response has no meaning
            else:
                if outgoing.method == "initialize" and not self._wire.remember_session(response):
                    self._broken(ProtocolError(Fault.INVALID_MESSAGE, _BAD_SESSION))
                keep = await self._answered(outgoing, response)
        finally:
            if keep:
                self._let_end(response)
            else:
                await discard(response)

    async def _answered(self, outgoing: Outgoing, response: httpx.Response) -> bool:
        """True if the answer has arrived but its stream has not ended."""
        media = answers.media_type(response)
        if media == "text/event-stream":
            return await self._stream(outgoing, response)
        body = await self._wire.body(response)
        answers.demand_json(response, media, body)
        self._deliver(body, response, outgoing)
        if not outgoing.answered:
            no_answer = ProtocolError(Fault.NO_ANSWER, "The server answered, but not to this request.")
            raise outgoing.unreadable or no_answer
        return False

    async def _refused(self, outgoing: Outgoing, response: httpx.Response, *, with_session: bool) -> None:
        """Not 2xx: deliver a JSON-RPC error from the body, unless the status alone decides. If its id is not ours, its
        text may decide too. If it is ours, the text of an answer to a call does not: tools have sessions and keys of
        their own."""
        body = await self._error_body(outgoing, response, with_session=with_session)
        error = await self._wire.refused(response, wire_session=with_session, body=body)
        if body is not None and b'"jsonrpc"' in body:
            is_call = outgoing.method not in methods.REPEATABLE
            own = is_call and answers.is_own_error(body, outgoing, self._wire.limits)
            if own or error.fault is Fault.HTTP_STATUS:
                self._deliver(body, response, outgoing, response.status_code)
        if not outgoing.answered:
            raise error

    async def _error_body(self, outgoing: Outgoing, response: httpx.Response, *, with_session: bool) -> bytes | None:
        """The whole body if it may be an answer; None if only its words count."""
        status = response.status_code
        decided = status in (401, 403, 421, 429) or (status == 404 and with_session)
        if decided or outgoing.id is None or not answers.is_json(answers.media_type(response)):
            return None
        return await self._wire.body(response)

    def _deliver(
        self, data: bytes, response: httpx.Response, outgoing: Outgoing | None = None, status: int | None = None
    ) -> None:
        self._wire.recorder.received(data, outgoing, exchange_of(response))
        if self._receiver is not None:
            self._receiver.message(data, outgoing, status)

    def _broken(self, error: McpError) -> None:
        if self._receiver is not None:
            self._receiver.broken(error, b"")

    def _feed(self, lost: str, retried: bool) -> None:
        if self._receiver is not None:
            self._receiver.feed(lost, retried=retried)

    # -- replies that are streams

    async def _stream(self, outgoing: Outgoing, response: httpx.Response) -> bool:
        """Read events until our answer arrives. It may also arrive on another stream, which wakes us (then False)."""
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
        """Read one reply over as many connections as the server splits it into (legacy). Never repeat the POST."""
        loop, cursor, tries, failed = asyncio.get_running_loop(), Cursor(), 0, 0
        await self._pump(response, outgoing, cursor)
        while not outgoing.answered:
            tries = 1 if cursor.moved else tries + 1
            if not cursor.last_id or not self._wire.resumable or tries > _RESUMPTIONS:
                detail = "The server ended the stream without an answer."
                if outgoing.unreadable is not None:
                    detail = f"{detail} {outgoing.unreadable.detail}"
                raise TransportError(Fault.CONNECTION_LOST, detail, may_have_run=True)
            await asyncio.sleep(cursor.pause(failed))
            began = loop.time()
            try:
                await self._resume(outgoing, cursor)
            except McpError as exc:  # the request itself left long ago
                starting = isinstance(exc, HttpError) and exc.status in _GATEWAY_STATUS
                if tries >= _RESUMPTIONS or not (starting or isinstance(exc, TransportError)):
                    raise exc.again(may_have_run=True) from exc
                failed += 1
            else:
                failed = 0
                if loop.time() - began >= STEADY:
                    tries = 0

    async def _resume(self, outgoing: Outgoing, cursor: Cursor) -> None:
        cursor.moved = False
        response = await self._wire.get(cursor.last_id)
        try:
            if response.status_code >= 300 or answers.media_type(response) != "text/event-stream":
                raise answers.not_resumed(response)
            await self._pump(response, outgoing, cursor)
        finally:
            await discard(response)

    async def _pump(self, response: httpx.Response, outgoing: Outgoing, cursor: Cursor) -> None:
        def deliver(data: bytes) -> None:
            self._deliver(data, response, outgoing)

        await self._wire.pump(response, cursor, deliver, lambda: outgoing.answered)

    def _let_end(self, response: httpx.Response) -> None:
        """Give an answered stream a moment to end: a connection that is cut short cannot be reused."""
        end = _drain(response) if len(self._lingering) < _LINGERING else discard(response)
        task = asyncio.create_task(end, name="mcp reply tail")
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)


async def _drain(response: httpx.Response) -> None:
    """Read the rest, within bounds of time and size, then release the connection."""
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
        pass  # the answer has arrived; the connection is simply not reused
    finally:
        await discard(response)
