"""One connection: its request arrives within limits of size and time, or is refused and the connection closed."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import autobahn.twisted.websocket
import autobahn.websocket.protocol
from daphne import http_protocol, ws_protocol
from twisted.web.http import HTTPChannel

from mcpadmin.web import bodies, pages
from mcpadmin.web.connections import HELD_BYTES, Connections
from mcpadmin.web.pages import Form, Refusal
from servers import limits
from servers.requests import counted_address

logger = logging.getLogger(__name__)
# Autobahn colours the parts of each debug message, even if it is not logged: 4 % of what a call costs this process.
_UNCOLOURED = {"hltype": lambda value: value, "hlval": lambda value: value}
vars(autobahn.websocket.protocol).update(_UNCOLOURED)
vars(autobahn.twisted.websocket).update(_UNCOLOURED)

#: how long, and how much of, a refused request is still read, so that its sender gets the answer: closing a socket
#: with unread bytes resets it, and the answer is lost
LINGER_SECONDS, LINGER_BYTES = 5.0, 64 * limits.MIB
#: bytes of an answer that a client must read per second, on average, after some time; a slower one is cut off
TAKEN_PER_SECOND, TAKING_SECONDS = 16 * limits.KIB, 60.0
#: bytes of a streamed answer that may be unread: no more is produced until the client has read the excess
AHEAD_BYTES, AHEAD_SECONDS = 8 * limits.MIB, 0.05
#: messages of a live connection that wait for the application; until it has taken them, no more are read
WAITING_MESSAGES, WAITING_SECONDS = 4, 0.01
#: messages that arrive after we closed a live connection; then it is cut off
LATE_MESSAGES = 1_000
#: looking up sign-ins, for requests with a large body only
_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="body-limit")


class BodyTooLarge(Exception):
    pass


class Request(http_protocol.WebRequest):
    """Its body stays in memory, below `limit`: an uploaded file may hold secrets."""

    limit = bodies.ANONYMOUS
    _received = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parsePOSTFormSubmission = False  # Django does; Twisted would hold the fields twice

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > limits.number(self.limit):
            raise BodyTooLarge
        super().handleContentChunk(data)

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """Daphne's own error page, with our headers and words."""
        headers, page = pages.failed(status).answer()
        self.handle_reply({"type": "http.response.start", "status": status, "headers": headers})
        self.handle_reply({"type": "http.response.body", "body": page})

    def finish(self) -> None:
        announced = self.responseHeaders.getRawHeaders(b"content-length") or [b"0"]
        whole = self.method == b"HEAD" or self.code in (204, 304) or self.sentLength >= int(announced[0])
        if not whole:
            return self._break_off()
        channel = self.channel
        super().finish()
        if channel is not None:
            send_now(channel.transport)

    def handle_exception(self, exception: BaseException) -> None:
        """Daphne would start a second answer. That fails, and with it the loop that cleans up ended requests."""
        self._break_off() if self._response_started else super().handle_exception(exception)

    def _break_off(self) -> None:
        """Only the end of the connection tells a client that nothing more comes."""
        if self.channel is not None:
            logger.error(
                "the response to %s %s was cut off", self.method.decode("latin-1"), self.path.decode("latin-1")
            )
            self.channel.give_way()

    async def taken(self) -> None:
        """Wait for a client that is far behind. The streams of agents have bounds of their own, and must not wait."""
        channel: Channel | None = self.channel
        if channel is None or channel.untaken <= AHEAD_BYTES:
            return
        if not bodies.is_of_agents(unquote(self.path.decode("latin-1"))):
            await channel.taken()

    def header(self, name: str) -> str:
        return b"; ".join(self.requestHeaders.getRawHeaders(name.encode(), [])).decode("latin-1")

    @property
    def is_from_script(self) -> bool:
        names = ("hx-request", "x-requested-with", "accept", "sec-fetch-dest")
        return bodies.sent_by_script({name: self.header(name) for name in names})


def send_now(wire: Any) -> None:
    """Send what was written. Twisted alone does so with the next turn of its loop, after all that waits in this one: the
    answer of an agent's call leaves 0.3 ms later. What is not sent here, Twisted sends."""
    ends = wire is None or wire.disconnecting or wire._writeDisconnecting
    if not ends and wire.connected and not wire.producerPaused:
        wire.doWrite()


@contextmanager
def sending_now(wire: Any) -> Iterator[None]:
    """Send at the end what is written meanwhile. Twisted would ask the loop for a turn to send it, and withdraw that: two
    system calls."""
    wire.startWriting = lambda: None
    try:
        yield
    finally:
        del wire.startWriting
        send_now(wire)
        if wire.connected and (unsent(wire) or wire.disconnecting or wire._writeDisconnecting):
            wire.startWriting()


def unsent(wire: Any) -> int:
    """Bytes that were written and that the kernel has not taken."""
    return len(wire.dataBuffer) - wire.offset + int(wire._tempDataLen)


class Channel(HTTPChannel):
    """`seconds`: from the first byte of a request to its last, and the longest a connection waits for a request."""

    requestFactory = Request

    def __init__(self, open_connections: Connections, seconds: float) -> None:
        super().__init__()
        self._connections, self._seconds = open_connections, seconds
        self.address = ""
        self._receiving = self._refused = False
        self._lingered = 0
        self._writing_since = 0.0
        self._written = self._taken = 0

    @property
    def _wire(self) -> Any:
        """The transport, which has more attributes than Twisted's types say."""
        return self.transport

    @property
    def _producer(self) -> Any:
        return self._networkProducer

    @property
    def _needed(self) -> str:
        """The limit of the requested route for a signed-in user."""
        return bodies.limit_of(self._asked_path)

    @property
    def _asked_path(self) -> str:
        path: Any = self._path
        return unquote(path.decode("latin-1").partition("?")[0])

    # -- the connection

    def connectionMade(self) -> None:
        super().connectionMade()
        self._wire.connection = self  # its WebSocket finds the connection here
        self.address = counted_address(str(getattr(self._wire.getPeer(), "host", "")))
        if full := self._connections.add(self):
            self._refuse(pages.too_many_connections(full), linger=False)

    def connectionLost(self, reason: Any = None) -> None:
        self._connections.remove(self)
        super().connectionLost(reason)

    def give_way(self) -> None:
        self._wire.abortConnection()

    # -- time

    def dataReceived(self, data: bytes) -> None:
        """The clock runs from the first byte of a request, and no later byte resets it."""
        if self._refused:
            return self._discard(data)
        if not self._receiving and not self._handlingRequest:
            self._receiving = True
            self.setTimeout(self._seconds)
        super(HTTPChannel, self).dataReceived(data)

    def timeoutConnection(self) -> None:
        if self._receiving:
            self._refuse(pages.too_slow())
        elif self._is_taking():
            self.setTimeout(self._seconds)
        else:
            super().timeoutConnection()

    def forceAbortClient(self) -> None:
        if self._is_taking():
            self._abortingCall = self.callLater(self.abortTimeout, self.forceAbortClient)
        else:
            super().forceAbortClient()

    def loseConnection(self) -> None:
        """Pending answers are sent first; a client that reads none of them is cut off."""
        super().loseConnection()
        if self._abortingCall is None:
            self._abortingCall = self.callLater(self.abortTimeout, self.forceAbortClient)

    # -- what the client takes

    @property
    def untaken(self) -> int:
        return unsent(self._wire) if self._wire else 0

    def writeHeaders(self, *head: Any) -> None:
        self._count(super().writeHeaders, *head)

    def write(self, data: bytes) -> None:
        self._count(super().write, data)

    def writeSequence(self, iovec: Any) -> None:
        self._count(super().writeSequence, iovec)

    def _count(self, write: Callable[..., None], *what: Any) -> None:
        """`write` only adds to the unread bytes."""
        before = self.untaken
        if before < HELD_BYTES:
            self._writing_since, self._written, self._taken = time.monotonic(), before, 0
        write(*what)
        after = self.untaken
        self._written += after - before
        if after >= HELD_BYTES:
            self._connections.hold(self)

    def _is_taking(self) -> bool:
        """Whether the client took some of the answer since this was last asked, and enough since it was written: a slow
        download goes on."""
        seconds = time.monotonic() - self._writing_since
        before, self._taken = self._taken, self._written - self.untaken
        enough = seconds < TAKING_SECONDS or self._taken >= TAKEN_PER_SECOND * seconds
        return self.untaken > 0 and self._taken > before and enough

    async def taken(self) -> None:
        """Wait until the client has read the excess. A client that does not is disconnected."""
        asked = time.monotonic()
        while self.untaken > AHEAD_BYTES and self._wire.connected:
            await asyncio.sleep(AHEAD_SECONDS)
            if time.monotonic() - asked >= self._seconds:
                asked = time.monotonic()
                if not self._is_taking():
                    return self.give_way()

    # -- size

    def lineReceived(self, line: bytes) -> None:
        if self._receivedHeaderSize + len(line) > limits.number("request_head_bytes"):
            return self._refuse(pages.head_too_large())
        super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        if self._receivedHeaderCount >= limits.number("request_headers"):
            self._refuse(pages.head_too_large())
            return False
        return bool(super().headerReceived(line))

    def lineLengthExceeded(self, line: bytes) -> None:
        self._refuse(pages.head_too_large())

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        if header == b"Content-Length" and data.isdigit() and len(data) > 15:
            self._refuse(pages.too_large(bodies.ANONYMOUS))
            return False
        return bool(super()._maybeChooseTransferDecoder(header, data))

    def allHeadersReceived(self) -> None:
        request = self.requests[-1]
        if self._refused:
            return
        if self.length is not None and self.length <= limits.number(bodies.ANONYMOUS):
            return super().allHeadersReceived()
        proof = bodies.proof_of(self._asked_path, request.header("cookie"), request.header("authorization"))
        if proof is not None:
            self._pause()
            loop = asyncio.get_event_loop()
            loop.run_in_executor(_threads, proof).add_done_callback(lambda found: self._checked(request, found))
            request.gotLength(self.length)  # nothing is read until the check is over
        elif self.length is None:
            super().allHeadersReceived()  # no length is known: its bytes are counted
        else:
            self._refuse_body(request, known=False)

    def _checked(self, request: Request, found: "asyncio.Future[bool]") -> None:
        """Whether the sender of a large body is signed in is known now."""
        if self._refused or not self._wire or not self._wire.connected:
            return
        if found.exception() is not None:
            logger.warning("the sign-in of a large request could not be checked", exc_info=found.exception())
            return self._refuse(pages.not_checked(), self._form(request))
        if not found.result() and self.length is not None:
            return self._refuse_body(request, known=False)
        if found.result():
            request.limit = self._needed
        if self.length is not None and self.length > limits.number(request.limit):
            return self._refuse_body(request, known=True)
        super().allHeadersReceived()
        self._resume()

    def rawDataReceived(self, data: bytes) -> None:
        try:
            super().rawDataReceived(data)
        except BodyTooLarge:
            request = self.requests[-1]
            self._refuse_body(request, known=request.limit != bodies.ANONYMOUS)

    def allContentReceived(self) -> None:
        if self._refused:
            return
        self._receiving = False
        self._connections.busy(self)
        super().allContentReceived()

    def requestDone(self, request: Request) -> None:
        self._connections.idle(self)
        super().requestDone(request)

    def _pause(self) -> None:
        self.paused = True
        self._producer.pauseProducing()

    def _resume(self) -> None:
        self.paused = False
        self._producer.resumeProducing()
        self.dataReceived(b"")

    # -- refusing

    def _respondToBadRequestAndDisconnect(self) -> None:
        self._refuse(pages.malformed())

    def _refuse_body(self, request: Request, *, known: bool) -> None:
        """`known`: the sender is signed in. A script whose sign-in has expired is asked to sign in and send again, a program
        whose token does not count to get another."""
        form = self._form(request)
        fits = self.length is not None and self.length <= limits.number(self._needed)
        if not known and form == "text" and fits:
            return self._refuse(pages.sign_in_first(), form)
        path, may_fit = self._asked_path, fits or self.length is None
        if not known and may_fit and bodies.has_bearer_token(path, request.header("authorization")):
            return self._refuse(pages.token_refused(path), form)
        if known:
            return self._refuse(pages.too_large(request.limit), form)
        of_program = form in ("json-rpc", "problem")
        retry = "Send a valid token." if of_program else "If this was a form, sign in and send it again."
        self._refuse(pages.too_large(bodies.ANONYMOUS, retry if may_fit else ""), form)

    def _form(self, request: Request) -> Form:
        """The form of a refusal: for a page, a script or an agent."""
        if bodies.is_of_agents(self._asked_path):
            return "json-rpc"
        if bodies.is_of_api(self._asked_path):
            return "problem"
        return "text" if request.is_from_script else "page"

    def _refuse(self, refusal: Refusal, form: Form = "page", *, linger: bool = True) -> None:
        """Answer, then close: at once, or after reading on for a while so that the answer arrives."""
        if self._refused:
            return
        self._refused = self.paused = True
        self._receiving = False
        self.setTimeout(None)
        self.clearLineBuffer()
        self._producer.unregisterProducer()
        self.write(refusal.response(form))
        if not linger:
            return self.loseConnection()
        self._wire.loseWriteConnection()
        self._wire.resumeProducing()
        self._abortingCall = self.callLater(LINGER_SECONDS, super().forceAbortClient)

    def _discard(self, data: bytes) -> None:
        self._lingered += len(data)
        if self._lingered > LINGER_BYTES:
            self._wire.abortConnection()


class Factory(http_protocol.HTTPFactory):
    """`open_connections` and `seconds` are set before the first connection."""

    open_connections: Connections
    seconds: float

    def protocol(self) -> Channel:
        return Channel(self.open_connections, self.seconds)

    def buildProtocol(self, addr: Any) -> Channel:
        channel: Channel = super().buildProtocol(addr)
        channel.requestFactory = Request
        channel.timeOut = self.seconds  # type: ignore[assignment]  # any number of seconds will do
        return channel

    def log(self, request: Any) -> None:
        """Twisted's own access log would be formatted for each request and then dropped."""


class WebSocketProtocol(ws_protocol.WebSocketProtocol):
    """If a browser sends faster than the application reads, its messages wait in the browser."""

    _paused = False
    _late = 0

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.state != self.STATE_OPEN:
            self._late += 1
            if self._late > LATE_MESSAGES:
                self.dropConnection(abort=True)
            return
        super().onMessage(payload, isBinary)
        if not self._paused and self.application_queue.qsize() > WAITING_MESSAGES:
            self._paused = True
            self.transport.pauseProducing()
            self._look_again()

    def _look_again(self) -> None:
        asyncio.get_running_loop().call_later(WAITING_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if self.state == self.STATE_CLOSED:
            return
        if self.application_queue.qsize() > WAITING_MESSAGES:
            return self._look_again()
        self._paused = False
        self.transport.resumeProducing()

    def serverSend(self, content: Any, binary: bool = False) -> None:
        with sending_now(self.transport):
            super().serverSend(content, binary)

    def connectionLost(self, reason: Any = None) -> None:
        """The channel that this connection began as does not learn its end."""
        found: Channel | None = getattr(self.transport, "connection", None)
        if found is not None:
            found._connections.remove(found)
        super().connectionLost(reason)


class WebSocketFactory(ws_protocol.WebSocketFactory):
    protocol = WebSocketProtocol
