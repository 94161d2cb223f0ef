"""One topic in this process: its listeners, what was sent, and what must be read again.

Feeds send every row once and in order, by their gap-free sequence. Snapshots send only what is newer or different.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from servers.audit.record import Actor
from sessions.live.feeds import FeedPart
from sessions.live.frames import EVERYBODY, Frame, encode, message
from sessions.live.topics import Topic
from sessions.live.viewers import Viewer

WINDOW_SECONDS = 0.1
#: a page further behind is asked to reload instead of receiving every row
FEED_BEHIND = 20_000
#: a change from shortly before the page was rendered may have been committed after it; clocks of machines differ, too
OVERLAP_MS = 10_000
#: how many rows besides its own a subscription remembers as sent: calls of a server, questions, approvals. Far more than
#: one read finds, and a page stays open for days
ROWS_SEEN = 500
Dirty = tuple[str, str]  # kind of a hint, subject within the topic
EVERYTHING: Dirty = ("*", "")
#: like EVERYTHING, but a cheaper check may show that nothing changed
RECHECK: Dirty = ("?", "")
log = structlog.get_logger(__name__)


class Member(Protocol):
    """A socket as the hub sees it. While `suspended` (its permissions are being checked) it receives nothing."""

    viewer: Viewer
    actor: Actor
    suspended: bool

    @property
    def has_room(self) -> bool: ...
    def put(self, text: str) -> None: ...
    async def room(self) -> None: ...


@dataclass(eq=False)
class TopicSubscription:
    member: Member
    topic: Topic
    cursor: int | None
    live: bool = False
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: the keys in `seen` whose number keeps growing, in the order in which they were last sent
    _rows: dict[str, None] = field(default_factory=dict)
    task: "asyncio.Task[None] | None" = None

    def waits_at(self, cursor: int | None) -> bool:
        """Whether it is about to catch up from there, and nothing was sent yet."""
        return self.task is not None and not self.task.done() and self.cursor == cursor and not self.seen

    def offer(self, frame: Frame) -> None:
        """Send a snapshot frame, unless this socket already has it or a newer one."""
        if self.member.suspended:
            return
        viewer = self.member.viewer
        if frame.audience is not EVERYBODY and not frame.audience.has(viewer.user_id, viewer.sees_personal):
            return
        text = frame.for_viewer(viewer.user_id, viewer.reads_payloads)
        version, digest = self.seen.get(frame.key, (-1, 0))
        if text is None or frame.version < version or digest == hash(text):
            return
        self._remember(frame, text)
        if frame.record_reading is not None and viewer.reads_payloads and viewer.user_id != frame.owner_id:
            frame.record_reading(self.member.actor)
        self.member.put(text)

    def _remember(self, frame: Frame, text: str) -> None:
        self.seen[frame.key] = (frame.version, hash(text))
        if not _is_own(self.topic, frame):
            self._rows.pop(frame.key, None)
            self._rows[frame.key] = None
            if len(self._rows) > ROWS_SEEN:
                oldest = next(iter(self._rows))
                del self._rows[oldest], self.seen[oldest]


class Stream(ABC):
    window = WINDOW_SECONDS

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.subscriptions: set[TopicSubscription] = set()
        self.idle_since: float | None = None
        self._dirty: set[Dirty] = set()
        self._sent_at = float("-inf")
        self._pump: asyncio.Task[None] | None = None

    def hint(self, hint: dict[str, Any]) -> None:
        self._mark_dirty({(str(hint["kind"]), "")})

    def recheck(self) -> None:
        """Compare with the database: a hint may have been lost."""
        self._mark_dirty({RECHECK})

    def _mark_dirty(self, dirty: set[Dirty]) -> None:
        self._dirty |= dirty
        if self.subscriptions and (self._pump is None or self._pump.done()):
            self._pump = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Refresh at once if the last frame is older than the window. Otherwise merge the changes until it ends."""
        loop = asyncio.get_running_loop()
        while self._dirty and self.subscriptions:
            if (wait := self._sent_at + self.window - loop.time()) > 0:
                await asyncio.sleep(wait)
            dirty, self._dirty = self._dirty, set()
            try:
                await self._refresh(dirty)
            except Exception:  # the slow timer retries after any failure; other topics continue
                log.exception("live.read_failed", topic=self.topic.name)
            self._sent_at = loop.time()

    @abstractmethod
    async def _refresh(self, dirty: set[Dirty]) -> None: ...

    @abstractmethod
    async def catch_up(self, subscription: TopicSubscription) -> None:
        """Bring a new listener up to date; from then on it is live. Ends with `synced`."""

    def _synced(self, subscription: TopicSubscription, seq: int | None) -> None:
        if not subscription.member.suspended:
            subscription.member.put(message({"op": "synced", "t": self.topic.name, "seq": seq}))

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)


class FeedStream(Stream):
    def __init__(
        self,
        topic: Topic,
        read_after: Callable[[int], Awaitable[FeedPart]],
        read_head: Callable[[], Awaitable[int]],
        kind: str,
        fell_behind: Callable[[TopicSubscription], None],
    ) -> None:
        super().__init__(topic)
        self._read_after, self._read_head, self._kind = read_after, read_head, kind
        self._fell_behind = fell_behind
        self.head = 0

    async def _refresh(self, dirty: set[Dirty]) -> None:
        more = True
        while more and any(one.live for one in self.subscriptions):
            part = await self._read_after(self.head)
            if part.rows:
                self._deliver(part)
            self.head = max(self.head, part.end)
            more = part.more

    def _deliver(self, part: FeedPart) -> None:
        """Send to all listeners that are live now, including those that became live during the read."""
        rows, texts = part.rows, {0: self._text(part)}
        for listener in list(self.subscriptions):
            cursor = listener.cursor or 0
            if listener.member.suspended or not listener.live or cursor >= rows[-1]["seq"]:
                continue
            if not listener.member.has_room:  # it continues at its own pace, like a new listener
                listener.live = False
                self._fell_behind(listener)
                continue
            skip = next(index for index, row in enumerate(rows) if row["seq"] > cursor)
            if skip not in texts:
                texts[skip] = self._encode(rows[skip:])
            listener.member.put(texts[skip])
            listener.cursor = rows[-1]["seq"]

    def _text(self, part: FeedPart) -> str:
        return part.text or self._encode(part.rows)

    def _encode(self, rows: list[dict[str, Any]]) -> str:
        return encode(self.topic.name, rows[-1]["seq"], self._kind, rows)

    async def catch_up(self, subscription: TopicSubscription) -> None:
        newest = await self._read_head()
        if subscription.cursor is None or subscription.cursor > newest:
            subscription.cursor = newest
        if newest - subscription.cursor > FEED_BEHIND:
            subscription.cursor = newest
            subscription.member.put(encode(self.topic.name, newest, "reload", []))
        await self._replay(subscription)
        self._synced(subscription, subscription.cursor)

    async def _replay(self, subscription: TopicSubscription) -> None:
        """Read until nothing is left that live listeners already have. No await between that check and `live`."""
        behind = True
        while behind and not subscription.member.suspended:
            await subscription.member.room()
            had, cursor = self.head, subscription.cursor or 0
            part = await self._read_after(cursor)
            if part.rows and not subscription.member.suspended:
                subscription.member.put(self._text(part))
                subscription.cursor = part.end
            elif not part.rows:  # rows that others got before this read, but which it does not find, were deleted
                subscription.cursor = max(cursor, had)
            behind = part.more or (subscription.cursor or 0) < self.head
        if subscription.member.suspended:
            return
        if not any(one.live for one in self.subscriptions):
            self.head = subscription.cursor or 0
        subscription.live = True


Row = dict[str, Any]


class SnapshotStream(Stream):
    """`read` turns the dirty set into frames."""

    def __init__(self, topic: Topic, read: Callable[[set[Dirty], "SnapshotStream"], Awaitable[list[Frame]]]) -> None:
        super().__init__(topic)
        self._read = read
        self.by_time = False  # True: the cursor is a time in milliseconds
        self.version = -1  # of the newest frame, if the topic is about one row

    @property
    def has_reserved_listeners(self) -> bool:
        return any(not one.member.viewer.reads_payloads for one in self.subscriptions)

    def hint(self, hint: dict[str, Any]) -> None:
        rows = hint.get("rows") or [{}]
        self._mark_dirty({(str(hint["kind"]), _subject(row)) for row in rows})

    async def _refresh(self, dirty: set[Dirty]) -> None:
        for frame in await self._read(dirty, self):
            self._note(frame)
            self._offer(frame)

    def _offer(self, frame: Frame, but: TopicSubscription | None = None) -> None:
        for subscription in list(self.subscriptions):
            if subscription.live and subscription is not but:
                subscription.offer(frame)

    async def catch_up(self, subscription: TopicSubscription) -> None:
        subscription.live = True
        newest = int(time.time() * 1000) if self.by_time else None
        try:
            frames = await self._read({EVERYTHING}, self)
        except Exception:  # whatever it was, the slow timer retries
            subscription.live = False
            raise
        for frame in frames:  # a noted version is not read again, so every listener must get it, and before newer ones
            self._note(frame)
            self._offer(frame, but=subscription)
            if _is_own(self.topic, frame):
                newest = frame.version
        seen = dict(subscription.seen)
        for frame in frames:
            if not self._has(subscription.cursor, frame):
                await subscription.member.room()
                if subscription.seen.get(frame.key) == seen.get(frame.key):  # otherwise a newer one came meanwhile
                    subscription.offer(frame)
        self._synced(subscription, newest)

    def _has(self, cursor: int | None, frame: Frame) -> bool:
        """Whether a page at `cursor` already shows this frame."""
        if cursor is None:
            return False
        if frame.moved is not None:
            return frame.moved < cursor - OVERLAP_MS
        return _is_own(self.topic, frame) and 0 < frame.version == cursor

    def _note(self, frame: Frame) -> None:
        self.version = max(self.version, frame.version)


_OWN_KEYS = frozenset({"session", "call", "draft"})


def _is_own(topic: Topic, frame: Frame) -> bool:
    """Whether the frame is about the topic's own row. Only its version is a cursor; other versions are not."""
    return frame.key in _OWN_KEYS or frame.key == str(topic.uid)


_SUBJECTS = ("call", "server", "question", "approval", "subscription")


def _subject(row: dict[str, Any]) -> str:
    return str(next((row[name] for name in _SUBJECTS if row.get(name)), ""))
