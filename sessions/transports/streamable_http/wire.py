"""HTTP as this transport uses it: requests with the right headers, bodies and event streams within bounds."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx
from httpx_sse import ServerSentEvent

from ...protocol.errors import Fault, InvalidRequest, ProtocolError, TransportError
from ...protocol.session import Outgoing
from ...protocol.versions import Era, Revision
from ..authorizing import Trial
from ..base import translated
from ..endpoint import Endpoint
from ..engine import engine
from ..inflate import Inflater
from ..sse import events
from . import answers

ACCEPT_ANY: Final = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "mcpadmin",
}
ACCEPT_STREAM: Final = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "mcpadmin"}
#: an id comes back as a header (Last-Event-ID), so it must be fit for one
_EVENT_ID: Final = re.compile(r"[\x20-\x7e]{1,4096}\Z")
#: milliseconds: a server that says 0 and ends every stream must not keep us busy
_SHORTEST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 3_600_000
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}\Z")


@dataclass(slots=True)
class Cursor:
    """Where a broken stream continues; `retry` is in seconds."""

    last_id: str = ""
    retry: float = 1.0
    moved: bool = False

    def note(self, event_id: str, retry_ms: int | None) -> None:
        self.moved = True
        if _EVENT_ID.match(event_id):
            self.last_id = event_id
        if retry_ms is not None and 0 <= retry_ms <= _LONGEST_RETRY_MS:
            self.retry = max(retry_ms, _SHORTEST_RETRY_MS) / 1000


class Wire:
    """Requests to one endpoint. `session_id` is a secret of the legacy era."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.url = httpx.URL("http://unresolved.invalid/")
        self.revision: Revision | None = None
        self.session_id = ""
        self.limits = endpoint.limits
        #: whether what the server sends is thrown away (fairness.Share)
        self.crowded: Callable[[], bool] = bool
        self._headers, self._authorizer = endpoint.headers, endpoint.authorization
        self._engine = engine(endpoint.policy, endpoint.limits, endpoint.tls_in_use, timeout=endpoint.connect_timeout)
        self._extensions = {"timeout": {"connect": endpoint.connect_timeout}}

    @property
    def resumable(self) -> bool:
        return self.revision is not None and self.revision.era is Era.LEGACY

    def session_headers(self, method: str = "") -> dict[str, str]:
        """What the legacy era puts on everything after `initialize`."""
        if method == "initialize" or self.revision is None or self.revision.era is Era.MODERN:
            return {}
        headers = {"MCP-Protocol-Version": self.revision.name}
        return headers | {"Mcp-Session-Id": self.session_id} if self.session_id else headers

    def remember_session(self, response: httpx.Response) -> None:
        value = response.headers.get("mcp-session-id", "")
        self.session_id = value if _SESSION_ID.match(value) else ""

    async def post(self, data: bytes, headers: Mapping[str, str], outgoing: Outgoing) -> httpx.Response:
        whole = {**self._headers(), **ACCEPT_ANY, **headers}
        if self._authorizer is None:
            return await self._request("POST", whole, data)
        trial = self._authorizer.trial(outgoing.method)
        return await self._authorized(trial, "POST", whole, data, outgoing.before_repeat)

    async def get(self, last_id: str, *, interactive: bool = False) -> httpx.Response:
        """Not `interactive`: a stream beside the requests is no reason to ask a person for anything."""
        headers = {**self._headers(), **ACCEPT_STREAM, **self.session_headers()}
        whole = headers | {"Last-Event-ID": last_id} if last_id else headers
        if self._authorizer is None:
            return await self._request("GET", whole)
        return await self._authorized(self._authorizer.trial("", interactive=interactive), "GET", whole)

    async def delete(self) -> None:
        headers = {**self._headers(), **ACCEPT_STREAM, **self.session_headers()}
        if self._authorizer is not None:
            headers |= await self._authorizer.trial("", interactive=False).headers("DELETE", str(self.url))
        await discard(await self._request("DELETE", headers))

    async def _authorized(
        self,
        trial: Trial,
        verb: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        before_repeat: Callable[[str], Awaitable[None]] | None = None,
    ) -> httpx.Response:
        """Sent once more only when it was refused for want of a token (so it did not run), and there is another."""
        while True:
            token = await trial.headers(verb, str(self.url))
            response = await self._request(verb, {**headers, **token}, body)
            if response.status_code not in (401, 403):
                trial.answered(response.headers.get("dpop-nonce", ""))
                return response
            try:
                if not await trial.refused(answers.refusal(response)):
                    return response
                if before_repeat is not None:
                    await before_repeat("authorization")
            except BaseException:  # whatever ends this try, its answer is given back before it is raised again
                await discard(response)
                raise
            await discard(response)

    async def _request(self, verb: str, headers: Mapping[str, str], body: bytes | None = None) -> httpx.Response:
        with translated():
            request = httpx.Request(verb, self.url, headers=headers, content=body, extensions=self._extensions)
            request.headers.encoding = "ascii"  # known here; httpx would guess it anew for each header
            response = await self._engine.handle_async_request(request)
            response.headers.encoding = "latin-1"
        try:
            answers.check_headers(response, self.limits)
        except ProtocolError:
            await discard(response)
            raise
        return response

    async def body(self, response: httpx.Response) -> bytes:
        """The whole body, refused as soon as it is over the limit of a message."""
        parts: list[bytes] = []
        size, limit = 0, self.limits.message_bytes
        async for chunk in self._chunks(response):
            size += len(chunk)
            if size > limit:
                raise ProtocolError(Fault.MESSAGE_LIMIT, f"The answer is over the limit of {limit} bytes.")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _chunks(self, response: httpx.Response, *, endless: bool = False) -> AsyncGenerator[bytes, None]:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
        with translated():
            if encoding in ("", "identity"):
                async for chunk in stream:
                    yield chunk
                return
            inflater = Inflater(encoding, self.limits, endless=endless)
            async for chunk in stream:
                for piece in inflater.feed(chunk):
                    yield piece

    def events(self, response: httpx.Response) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of a stream, each within its bound; ProtocolError beyond, TransportError when it breaks."""
        return events(self._chunks(response, endless=True), self.limits, self.crowded)

    async def pump(
        self, response: httpx.Response, cursor: Cursor, deliver: Callable[[bytes], None], done: Callable[[], bool]
    ) -> None:
        """Deliver the messages of an event stream until it ends or `done()`. A break counts as an end where the
        stream can be resumed."""
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
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequest("The URL must begin with http:// or https:// and name a host.")
    if url.userinfo:
        raise InvalidRequest("The URL must not contain a user name or password; use a header instead.")
    return url.copy_with(fragment=None)


async def discard(response: httpx.Response) -> None:
    """Give a response back; an unfinished one costs its connection."""
    with translated():
        await response.aclose()
