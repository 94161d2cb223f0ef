"""The one hub of this web process: receives every hint, reads once, encodes once, sends to its sockets.

Hints may be lost (Redis is unreachable, or SUBSCRIBE has not taken effect yet). So a slow timer compares every topic
that has listeners with the database. The order is always: join first, then catch up.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog

from sessions import hints
from sessions.approvals import ending as approvals
from sessions.calls import final_states
from sessions.inbox import questions
from sessions.live import tickets, viewers
from sessions.live.call_stream import CallStream
from sessions.live.early import EarlyHints
from sessions.live.limits import TOPICS, CloseCode, sockets_per_user
from sessions.live.pulse import PipelineHealth, Pulse
from sessions.live.reader import Reader
from sessions.live.socket import Socket
from sessions.live.socket_counts import SocketCounts
from sessions.live.streams import Stream, TopicSubscription
from sessions.live.topic_reads import TopicReads
from sessions.live.topics import Topic, TopicKind

SLOW_SECONDS = 15.0
#: SUBSCRIBE returns before it takes effect: recheck soon for hints lost in the gap, and once more later
SETTLE_SECONDS = (0.0, 0.05, 0.5)
_CALL = f"{TopicKind.CALL.value}."
IDLE_SECONDS = 5.0
log = structlog.get_logger(__name__)
Watcher = Callable[[dict[str, Any] | None], None]


class Hub:
    def __init__(self) -> None:
        self.reader = Reader()
        self.sockets: set[Socket] = set()
        self.streams: dict[str, Stream] = {}
        self._own: dict[
            str, set[str]
        ] = {}  # topic of the hints -> names of its streams for personal sessions and for filtered feeds
        self._reads = TopicReads(self.reader, self._spawn_catch_up)
        self._early = EarlyHints()
        self._watchers: dict[str, list[Watcher]] = {}
        self._listener = hints.Listener(hints.GROUP, self._on_message, self._joined)
        self._socket_counts, self._writing_counts = SocketCounts(), asyncio.Lock()
        self.pulse = Pulse(self.reader, lambda: bool(self.sockets), self._send_health, self._recheck_all)
        running = (self._listener.run(), self._tick(), self.pulse.run())
        self._tasks = {asyncio.create_task(work) for work in running}
        hints.start()

    # --- sockets -------------------------------------------------------------------------------------------------
    async def add(self, socket: Socket) -> bool:
        """False if this user has reached the limit of sockets over all web processes."""
        user_id, process = socket.viewer.user_id, self._listener.channel
        self.sockets.add(socket)  # before the first await, so that a concurrent add counts it
        mine = self._count(user_id)
        if mine <= sockets_per_user():
            await self._share_counts({user_id})
            mine += await self.reader.work(partial(self._socket_counts.elsewhere, user_id, process))
        if mine > sockets_per_user():
            self.remove(socket)
            return False
        self.pulse.look()
        return True

    def _count(self, user_id: int) -> int:
        return sum(1 for socket in self.sockets if socket.viewer.user_id == user_id)

    async def _share_counts(self, user_ids: Collection[int]) -> None:
        """Tell the other web processes how many sockets these users have in this one."""
        async with self._writing_counts:  # otherwise an older number could overtake a newer one
            mine = Counter(socket.viewer.user_id for socket in self.sockets)
            counts = {user_id: mine[user_id] for user_id in user_ids}
            await self.reader.work(partial(self._socket_counts.write, self._listener.channel, counts))

    def remove(self, socket: Socket) -> None:
        if socket in self.sockets:
            self.sockets.discard(socket)
            self._spawn(self._share_counts({socket.viewer.user_id}))
        for name in list(socket.subscriptions):
            self.unsubscribe(socket, name)

    def subscribe(self, socket: Socket, topic: Topic, since: int | None) -> None:
        known = socket.subscriptions.get(topic.name)
        if known is not None and known.waits_at(since):
            return
        self.unsubscribe(socket, topic.name)
        subscription = TopicSubscription(socket, topic, since)
        socket.subscriptions[topic.name] = subscription
        self._spawn_catch_up(subscription)

    def follow(self, socket: Socket, uid: UUID, version: int) -> bool:
        """Join a call that this socket just placed. It has the row at `version`; its permission was already checked."""
        topic = Topic(TopicKind.CALL, uid)
        if socket not in self.sockets or len(socket.subscriptions) >= TOPICS:  # it may have closed meanwhile
            return False
        stream = cast("CallStream", self._stream(topic))
        socket.subscriptions[topic.name] = subscription = TopicSubscription(socket, topic, version, live=True)
        stream.follow(subscription)
        for hint in self._early.take(topic.name):
            stream.hint(hint)
        return True

    def watch(self, topic: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with each hint of a topic, and with None when hints may have been lost. For code that
        reads the rows itself, in another shape than pages do. Returns a function that ends the watch."""
        self._watchers.setdefault(topic, []).append(watcher)
        for hint in self._early.take(topic):
            watcher(hint)
        return partial(self._unwatch, topic, watcher)

    def _unwatch(self, topic: str, watcher: Watcher) -> None:
        watchers = self._watchers.get(topic, [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop(topic, None)

    def unsubscribe(self, socket: Socket, name: str) -> None:
        subscription = socket.subscriptions.pop(name, None)
        if subscription is None:
            return
        if subscription.task is not None:
            subscription.task.cancel()
        self._leave_stream(subscription)

    def _leave_stream(self, subscription: TopicSubscription) -> None:
        stream = self.streams.get(subscription.topic.name)
        if stream is not None:
            stream.subscriptions.discard(subscription)
            if not stream.subscriptions:
                stream.idle_since = asyncio.get_running_loop().time()

    def _spawn_catch_up(self, subscription: TopicSubscription) -> None:
        subscription.task = self._spawn(self._catch_up(subscription))

    async def _catch_up(self, subscription: TopicSubscription) -> None:
        socket, topic = subscription.member, subscription.topic
        try:
            if not await self.reader.run(partial(viewers.sees_row, socket.viewer, topic)):
                self._deny(subscription)
                return
            stream = self._stream(topic)
            stream.subscriptions.add(subscription)
            stream.idle_since = None
            await stream.catch_up(subscription)
        except Exception:  # the database may be away: the slow timer retries, the socket stays open
            log.exception("live.catch_up_failed", topic=topic.name)

    def _deny(self, subscription: TopicSubscription) -> None:
        self._leave_stream(subscription)  # which it joined before its permissions were checked again
        socket = subscription.member
        if isinstance(socket, Socket):
            socket.subscriptions.pop(subscription.topic.name, None)
            socket.send({"op": "denied", "t": subscription.topic.name})

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the channel layer ---------------------------------------------------------------------------------------
    def _stream(self, topic: Topic) -> Stream:
        stream = self.streams.get(topic.name)
        if stream is None:
            stream = self.streams[topic.name] = self._reads.stream(topic)
            if topic.name != topic.hint:
                self._own.setdefault(topic.hint, set()).add(topic.name)
        return stream

    def _on_message(self, message: dict[str, Any]) -> None:
        for hint in message.get("hints") or ():
            self._received(hint)

    def _joined(self) -> None:
        """Recheck soon, because hints published before the subscription took effect were missed."""
        for delay in SETTLE_SECONDS:
            asyncio.get_running_loop().call_later(delay, self._recheck_all)

    def _received(self, hint: dict[str, Any]) -> None:
        topic = str(hint["t"])
        if topic == hints.USERS:
            self._suspend(hint.get("rows") or [])
        elif topic == hints.LOST:
            self._recheck_all()
        if topic == hints.SESSIONS:
            self.pulse.beat()
        watchers = list(self._watchers.get(topic, ()))
        for watcher in watchers:
            watcher(hint)
        if streams := self._concerned(topic):
            for stream in streams:
                stream.hint(hint)
        if topic.startswith(_CALL):
            self._early.put(hint, heard=bool(watchers))

    def _concerned(self, topic: str) -> list[Stream]:
        """Includes streams of personal sessions: a hint does not say whose session changed."""
        names = (topic, *self._own.get(topic, ()))
        return [stream for name in names if (stream := self.streams.get(name)) is not None]

    def _send_health(self, health: PipelineHealth) -> None:
        for socket in list(self.sockets):
            socket.send(health.message())
        if health.state == "ok":
            self._recheck_all()  # hints may have been lost in the meantime

    def _recheck_all(self) -> None:
        for stream in self.streams.values():
            stream.recheck()
        self._recheck_watchers()

    def _recheck_watchers(self) -> None:
        for watchers in list(self._watchers.values()):
            for watcher in list(watchers):
                watcher(None)

    # --- time ----------------------------------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(SLOW_SECONDS)
            try:
                await self._recheck()
            except Exception:  # the timer survives an unavailable database
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
        self._recheck_watchers()
        self._retry_catch_ups()
        # Not awaited: a Redis that does not answer delays no check of permissions.
        self._spawn(self._share_counts({socket.viewer.user_id for socket in self.sockets}))
        await self._check_permissions(list(self.sockets))
        await self.reader.work(final_states.expire_without_worker)
        await self.reader.work(questions.expire_without_worker)
        await self.reader.work(approvals.expire_without_worker)

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

    # --- permissions ---------------------------------------------------------------------------------------------
    def _suspend(self, rows: list[dict[str, Any]]) -> None:
        """Send nothing more to the users of a hint until their permissions are checked again."""
        users, ended = {row.get("user") for row in rows}, {row.get("ended") for row in rows}
        for socket in [one for one in self.sockets if tickets.fingerprint(one.viewer.session_key) in ended]:
            socket.give_up(CloseCode.NOT_SIGNED_IN)
        affected = [socket for socket in self.sockets if None in users or socket.viewer.user_id in users]
        for socket in affected:
            socket.suspended = True
        self._spawn(self._check_suspended(affected))

    async def _check_suspended(self, sockets: list[Socket]) -> None:
        try:
            await self._check_permissions(sockets)
        except Exception:  # the database is away: they stay suspended until the slow timer can check them
            log.exception("live.permission_check_failed")

    async def _check_permissions(self, sockets: list[Socket]) -> None:
        if not sockets:
            return
        seats = {(socket.viewer.user_id, socket.viewer.session_key) for socket in sockets}
        valid = await self.reader.run(partial(viewers.valid_viewers, seats))
        for socket in sockets:
            if socket in self.sockets:
                self._apply(socket, valid.get((socket.viewer.user_id, socket.viewer.session_key)))

    def _apply(self, socket: Socket, viewer: viewers.Viewer | None) -> None:
        if viewer is None:
            socket.give_up(CloseCode.NOT_SIGNED_IN)
            return
        changed, was_suspended = viewer.permissions != socket.viewer.permissions, socket.suspended
        socket.viewer, socket.suspended = viewer, False
        kept = [one for one in socket.subscriptions.values() if viewer.may_join(one.topic)]
        lost = [one for one in socket.subscriptions.values() if not viewer.may_join(one.topic)]
        for subscription in lost:
            self.unsubscribe(socket, subscription.topic.name)
            socket.send({"op": "denied", "t": subscription.topic.name, "lacks_permission": True})
        if lost and not kept:
            socket.give_up(CloseCode.NO_PERMISSIONS)
        elif changed or was_suspended:
            self._resume(kept)
            socket.send({"op": "permissions"})  # the page asks again for what it was denied

    def _resume(self, subscriptions: list[TopicSubscription]) -> None:
        for subscription in subscriptions:
            if subscription.task is not None:
                subscription.task.cancel()
            subscription.live = False
            self._spawn_catch_up(subscription)


_hubs: "WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]" = WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop. A web process has one loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
