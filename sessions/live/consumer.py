"""The live socket of a browser tab at /ws/: hello, topics, calls. All code here is async; hub.py does the rest."""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.staticfiles.storage import staticfiles_storage

from servers.audit.record import Actor
from servers.json import text as json_text
from servers.json.text import JsonProblem
from servers.limits import stated
from sessions.live import limits, socket_calls, tickets, viewers
from sessions.live.frames import message
from sessions.live.hub import hub
from sessions.live.limits import CloseCode, size_of
from sessions.live.socket import Socket
from sessions.live.topics import parse
from sessions.mcp.core.flow import TokenBucket

log = structlog.get_logger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):
    socket: Socket | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Like the base class, but without a task and a wait per message, and without a channel layer: the hub listens for
        the whole process, and a Redis subscription per socket would cost ten times as much.

        Daphne cancels an application that is still busy 2 s after its browser left. It then gets no `disconnect`.
        """
        self.scope, self.base_send = scope, send
        try:
            while True:
                await self.dispatch(await receive())
        except StopConsumer:
            pass
        finally:
            await self._leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Like the base class, but without a thread hop per message: nothing here holds a database connection.

        A failure ends the socket, and the hub forgets it: no one would tell it that this application is gone.
        """
        try:
            await getattr(self, get_handler_name(message))(message)
        except StopConsumer:
            raise
        except Exception:  # whatever it was: the page connects again
            if self._closing:
                raise
            log.exception("live.socket_failed")
            self._shut(CloseCode.FAILED)

    async def connect(self) -> None:
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._bucket = TokenBucket(limits.MESSAGES_PER_SECOND, limits.MESSAGES_BURST)
        self._topics = TokenBucket(limits.MESSAGES_PER_SECOND, limits.TOPICS_BURST)
        await self.accept()
        self._hello_timer = asyncio.get_running_loop().call_later(limits.HELLO_SECONDS, self._no_hello)
        if not self.scope["user"].is_authenticated:
            self._shut(CloseCode.NOT_SIGNED_IN)

    async def disconnect(self, code: int) -> None:
        self._closing = True
        self._hello_timer.cancel()
        await self._leave()

    async def _leave(self) -> None:
        if self.socket is not None:
            hub().remove(self.socket)
            await self.socket.end()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._closing:
            return
        if text_data is None or (size := size_of(text_data)) > limits.CALL_BYTES:
            return self._shut(CloseCode.MESSAGE_TOO_LARGE)
        body = await self._decode(text_data)
        if body is None:
            return self._shut(CloseCode.PROTOCOL_VIOLATED)
        if size > limits.TEXT_BYTES and body.get("op") != "call":
            return self._shut(CloseCode.MESSAGE_TOO_LARGE)
        if body.get("op") != "call" and not self._bucket.allow(time.monotonic()):
            return self._shut(CloseCode.TOO_MANY_MESSAGES)
        await self._handle(body)

    async def _decode(self, text: str) -> dict[str, Any] | None:
        """Decode strictly, so that arguments mean what the page wrote. Big messages are decoded off the loop."""
        try:
            big = len(text) > limits.TEXT_BYTES
            body = await hub().reader.work(partial(json_text.loads, text)) if big else json_text.loads(text)
        except JsonProblem:
            return None
        return body if isinstance(body, dict) else None

    async def _handle(self, body: dict[str, Any]) -> None:
        if self.socket is None:
            if body.get("op") == "hello":
                return await self._hello(body)
            return self._shut(CloseCode.NOT_SIGNED_IN)
        handler = _HANDLERS.get(str(body.get("op")))
        if handler is None:
            return self._shut(CloseCode.PROTOCOL_VIOLATED)
        handler(self, self.socket, body)

    # --- hello ---------------------------------------------------------------------------------------------------
    async def _hello(self, body: dict[str, Any]) -> None:
        viewer = await self._viewer(str(body.get("ticket", "")))
        if self._closing:
            return
        if viewer is None:
            return self._shut(CloseCode.NOT_SIGNED_IN)
        actor = Actor.of_user(viewer.user, str(self.scope.get("client_ip", "")), uuid.uuid4().hex)
        backlog = self.scope.get("backlog", lambda: 0)
        socket = Socket(viewer, actor, self.send, self._shut, backlog)
        try:
            if not await hub().add(socket):
                return self._shut(CloseCode.TOO_MANY_SOCKETS)
            if self._closing:
                return
            self.socket = socket
        finally:
            if self.socket is None:  # also when this application is cancelled: no one else knows this socket yet
                hub().remove(socket)
                await socket.end()
        self._hello_timer.cancel()
        socket.send(_WELCOME | {"build": getattr(staticfiles_storage, "manifest_hash", "")})
        if (health := hub().pulse.health) is not None:
            socket.send(health.message())

    async def _viewer(self, ticket: str) -> viewers.Viewer | None:
        session_key = self.scope["session"].session_key or ""
        if not await hub().reader.work(partial(tickets.redeem, ticket, session_key)):
            return None
        seat = (int(self.scope["user"].pk), session_key)
        return (await hub().reader.run(partial(viewers.valid_viewers, [seat]))).get(seat)

    def _no_hello(self) -> None:
        if self.socket is None:
            self._shut(CloseCode.NO_HELLO)

    # --- operations ----------------------------------------------------------------------------------------------
    def _sub(self, socket: Socket, body: dict[str, Any]) -> None:
        topics = body.get("topics")
        for name, since in (topics if isinstance(topics, dict) else {}).items():
            topic = parse(name)
            crowded = name not in socket.subscriptions and len(socket.subscriptions) >= limits.TOPICS
            if topic is None:
                socket.send({"op": "denied", "t": name[:120]})
            elif not socket.viewer.may_join(topic):
                socket.send({"op": "denied", "t": name[:120], "lacks_permission": True})
            elif crowded:
                socket.send({"op": "denied", "t": name[:120], "why": stated("socket_topics")})
            elif not self._topics.allow(time.monotonic()):
                return self._shut(CloseCode.TOO_MANY_MESSAGES)
            else:
                hub().subscribe(socket, topic, since if isinstance(since, int) and 0 <= since < 2**63 else None)

    def _unsub(self, socket: Socket, body: dict[str, Any]) -> None:
        names = body.get("topics")
        for name in names if isinstance(names, list) else []:
            hub().unsubscribe(socket, str(name))

    def _ping(self, socket: Socket, body: dict[str, Any]) -> None:
        socket.send({"op": "pong", "ref": body.get("ref")})

    def _call(self, socket: Socket, body: dict[str, Any]) -> None:
        self._spawn(socket_calls.call(hub(), socket, body))

    def _cancel(self, socket: Socket, body: dict[str, Any]) -> None:
        self._spawn(socket_calls.cancel(hub().reader, socket, body))

    def _spawn(self, work: Any) -> None:
        """A call continues when its socket closes: an accepted call stays accepted."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- closing -------------------------------------------------------------------------------------------------
    def _shut(self, code: CloseCode) -> None:
        """Close once, from anywhere. The hub forgets the socket at once, without waiting for the browser's reply."""
        if self._closing:
            return
        self._closing = True
        if self.socket is not None:
            hub().remove(self.socket)
        self._spawn(self._close(code))

    async def _close(self, code: CloseCode) -> None:
        """A close frame has no room for words, so they are sent before it."""
        if words := limits.refusal(code):
            await self.send(message({"op": "refused", "words": words}))
        await self.close(code.value)  # autobahn refuses anything but a plain int


#: `build` is added: if it differs after a reconnect, the page knows that mcpadmin was updated
_WELCOME: dict[str, Any] = {
    "op": "welcome",
    "largest": {"bytes": limits.CALL_BYTES, "words": f"This call is too large. {stated('socket_call_bytes')}"},
}
_HANDLERS: dict[str, Callable[[LiveConsumer, Socket, dict[str, Any]], None]] = {
    "sub": LiveConsumer._sub,
    "unsub": LiveConsumer._unsub,
    "ping": LiveConsumer._ping,
    "call": LiveConsumer._call,
    "cancel": LiveConsumer._cancel,
}
