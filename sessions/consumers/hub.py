"""The one listener of this web process: hears every hint, reads once, encodes once, sends to its sockets.

Hints may be lost (Redis away, or the silent moment between SUBSCRIBE and its effect), so a slow timer compares every
listened topic with the database. The order is always: join first, then catch up.
"""

import asyncio
from functools import partial
from typing import Any, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog

from sessions import bus
from sessions.consumers import viewers
from sessions.consumers.call_stream import CallStream
from sessions.consumers.early import EarlyHints
from sessions.consumers.limits import TOPICS, sockets_per_user
from sessions.consumers.reader import Reader
from sessions.consumers.socket import Socket
from sessions.consumers.streams import Stream, Subscription
from sessions.consumers.topic_reads import TopicReads
from sessions.domain import questions, tickets
from sessions.domain.calls import expire_due
from sessions.domain.topics import Topic, TopicKind

SLOW_SECONDS = 15.0
#: SUBSCRIBE returns before it works: what fell into the gap is looked for soon, and once more when all is calm
SETTLE_SECONDS = (0.0, 0.05, 0.5)
_CALL = f"{TopicKind.CALL.value}."
IDLE_SECONDS = 5.0
log = structlog.get_logger(__name__)


class Hub:
    def __init__(self) -> None:
        self.reader = Reader()
        self.sockets: set[Socket] = set()
        self.streams: dict[str, Stream] = {}
        self._own: dict[str, set[str]] = {}  # topic of hints: names of the streams of people's own sessions
        self._reads = TopicReads(self.reader, self._spawn_catch_up)
        self._early = EarlyHints()
        listener = bus.Listener(bus.GROUP, self._told, self._joined)
        self._tasks = {asyncio.create_task(listener.run()), asyncio.create_task(self._tick())}
        bus.start()

    # --- sockets -------------------------------------------------------------------------------------------------
    def add(self, socket: Socket) -> bool:
        """False when this user has as many sockets in this process as one may."""
        mine = sum(1 for other in self.sockets if other.viewer.user_id == socket.viewer.user_id)
        if mine >= sockets_per_user():
            return False
        self.sockets.add(socket)
        return True

    def remove(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        for name in list(socket.subscriptions):
            self.unsubscribe(socket, name)

    def subscribe(self, socket: Socket, topic: Topic, since: int | None) -> None:
        self.unsubscribe(socket, topic.name)
        subscription = Subscription(socket, topic, since)
        socket.subscriptions[topic.name] = subscription
        self._spawn_catch_up(subscription)

    def follow(self, socket: Socket, uid: UUID, version: int) -> bool:
        """Join a call that this socket placed just now: it has the row as it was then, and its right was judged."""
        topic = Topic(TopicKind.CALL, uid)
        if len(socket.subscriptions) >= TOPICS:
            return False
        stream = cast("CallStream", self._stream(topic))
        socket.subscriptions[topic.name] = subscription = Subscription(socket, topic, version, live=True)
        stream.follow(subscription)
        for hint in self._early.take(topic.name):
            stream.hint(hint)
        return True

    def unsubscribe(self, socket: Socket, name: str) -> None:
        subscription = socket.subscriptions.pop(name, None)
        if subscription is None:
            return
        if subscription.task is not None:
            subscription.task.cancel()
        stream = self.streams.get(name)
        if stream is not None:
            stream.subscriptions.discard(subscription)
            if not stream.subscriptions:
                stream.idle_since = asyncio.get_running_loop().time()

    def _spawn_catch_up(self, subscription: Subscription) -> None:
        subscription.task = self._spawn(self._catch_up(subscription))

    async def _catch_up(self, subscription: Subscription) -> None:
        socket, topic = subscription.member, subscription.topic
        try:
            if not await self.reader.run(partial(viewers.sees_row, socket.viewer, topic)):
                self._deny(subscription)
                return
            stream = self._stream(topic)
            stream.subscriptions.add(subscription)
            stream.idle_since = None
            await stream.catch_up(subscription)
        except Exception:  # the database may be away: the slow timer tries again, the socket stays
            log.exception("live.catch_up_failed", topic=topic.name)

    def _deny(self, subscription: Subscription) -> None:
        socket = subscription.member
        if isinstance(socket, Socket):
            socket.subscriptions.pop(subscription.topic.name, None)
            socket.send({"op": "denied", "t": subscription.topic.name})

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the layer -----------------------------------------------------------------------------------------------
    def _stream(self, topic: Topic) -> Stream:
        stream = self.streams.get(topic.name)
        if stream is None:
            stream = self.streams[topic.name] = self._reads.stream(topic)
            if topic.identity is not None:
                self._own.setdefault(topic.hint, set()).add(topic.name)
        return stream

    def _told(self, message: dict[str, Any]) -> None:
        for hint in message.get("hints") or ():
            self._hear(hint)

    def _joined(self) -> None:
        """What was written before that is found by a recheck."""
        for delay in SETTLE_SECONDS:
            asyncio.get_running_loop().call_later(delay, self._recheck_all)

    def _hear(self, hint: dict[str, Any]) -> None:
        topic = str(hint["t"])
        if topic == bus.USERS:
            self._suspend(hint.get("rows") or [])
        elif topic == bus.LOST:
            self._recheck_all()
        elif streams := self._concerned(topic):
            for stream in streams:
                stream.hint(hint)
        elif topic.startswith(_CALL):
            self._early.put(hint)

    def _concerned(self, topic: str) -> list[Stream]:
        """Those of people's own sessions too: a hint does not say whose it is."""
        names = (topic, *self._own.get(topic, ()))
        return [stream for name in names if (stream := self.streams.get(name)) is not None]

    def _recheck_all(self) -> None:
        for stream in self.streams.values():
            stream.recheck()

    # --- time ----------------------------------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(SLOW_SECONDS)
            try:
                await self._recheck()
            except Exception:  # the timer outlives a database that is away
                log.exception("live.slow_timer_failed")

    async def _recheck(self) -> None:
        now = asyncio.get_running_loop().time()
        for name, stream in list(self.streams.items()):
            if stream.idle_since is not None and now - stream.idle_since > IDLE_SECONDS:
                del self.streams[name]
                self._forget_own(stream.topic)
                await stream.close()
                continue
            stream.recheck()
        self._retry_catch_ups()
        await self._judge(list(self.sockets))
        await self.reader.work(expire_due)
        await self.reader.work(questions.expire_due)

    def _forget_own(self, topic: Topic) -> None:
        names = self._own.get(topic.hint, set())
        names.discard(topic.name)
        if not names:
            self._own.pop(topic.hint, None)

    def _retry_catch_ups(self) -> None:
        for socket in self.sockets:
            for subscription in socket.subscriptions.values():
                if not subscription.live and subscription.task is not None and subscription.task.done():
                    self._spawn_catch_up(subscription)

    # --- rights --------------------------------------------------------------------------------------------------
    def _suspend(self, rows: list[dict[str, Any]]) -> None:
        """Nothing more leaves for the users of a hint until they were judged again."""
        users, ended = {row.get("user") for row in rows}, {row.get("ended") for row in rows}
        for socket in [one for one in self.sockets if tickets.fingerprint(one.viewer.session_key) in ended]:
            socket.give_up(4401)
        affected = [socket for socket in self.sockets if None in users or socket.viewer.user_id in users]
        for socket in affected:
            socket.suspended = True
        self._spawn(self._judge_in_time(affected))

    async def _judge_in_time(self, sockets: list[Socket]) -> None:
        try:
            await self._judge(sockets)
        except Exception:  # the database is away: they stay suspended until the slow timer can judge them
            log.exception("live.judging_failed")

    async def _judge(self, sockets: list[Socket]) -> None:
        if not sockets:
            return
        seats = {(socket.viewer.user_id, socket.viewer.session_key) for socket in sockets}
        valid = await self.reader.run(partial(viewers.judge, seats))
        for socket in sockets:
            if socket in self.sockets:
                self._apply(socket, valid.get((socket.viewer.user_id, socket.viewer.session_key)))

    def _apply(self, socket: Socket, viewer: viewers.Viewer | None) -> None:
        if viewer is None:
            socket.give_up(4401)
            return
        changed, was_suspended = viewer.rights != socket.viewer.rights, socket.suspended
        socket.viewer, socket.suspended = viewer, False
        kept = [one for one in socket.subscriptions.values() if viewer.may_join(one.topic)]
        lost = [one for one in socket.subscriptions.values() if not viewer.may_join(one.topic)]
        for subscription in lost:
            self.unsubscribe(socket, subscription.topic.name)
            socket.send({"op": "denied", "t": subscription.topic.name})
        if lost and not kept:
            socket.give_up(4403)
        elif changed or was_suspended:
            self._resume(kept)

    def _resume(self, subscriptions: list[Subscription]) -> None:
        for subscription in subscriptions:
            if subscription.task is not None:
                subscription.task.cancel()
            subscription.live = False
            self._spawn_catch_up(subscription)


_hubs: "WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]" = WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop; a web process has one loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
