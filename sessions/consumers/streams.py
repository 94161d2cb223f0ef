"""One topic in this process: who listens, what was sent, what has to be read again.

Feeds: every row once and in order, by their gap-free sequence. Snapshots: only what is newer or different.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from sessions.consumers.frames import EVERYBODY, Frame, encode, message
from sessions.consumers.sources import FeedPart
from sessions.consumers.viewers import Viewer
from sessions.domain.topics import Topic

WINDOW_SECONDS = 0.1
#: a page that is further behind is told to load again instead of being fed row by row
FEED_BEHIND = 20_000
#: what moved shortly before a page was made may have been committed after it; clocks of machines differ, too
OVERLAP_MS = 10_000
Dirt = tuple[str, str]  # kind of a hint, subject within the topic
EVERYTHING: Dirt = ("*", "")
#: as EVERYTHING, where a cheaper look may show that nothing moved
RECHECK: Dirt = ("?", "")
log = structlog.get_logger(__name__)


class Member(Protocol):
    """A socket as the hub sees it. While `suspended` (its rights are being judged) nothing is sent to it."""

    viewer: Viewer
    suspended: bool

    @property
    def has_room(self) -> bool: ...
    def put(self, text: str) -> None: ...
    async def room(self) -> None: ...


@dataclass(eq=False)
class Subscription:
    member: Member
    topic: Topic
    cursor: int | None
    live: bool = False
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    task: "asyncio.Task[None] | None" = None

    def offer(self, frame: Frame) -> None:
        """Send a snapshot frame unless this socket has it, or has something newer."""
        if self.member.suspended:
            return
        viewer = self.member.viewer
        if frame.audience is not EVERYBODY and not frame.audience.has(viewer.user_id, viewer.sees_personal):
            return
        text = frame.for_viewer(viewer.user_id, viewer.reads_payloads)
        version, digest = self.seen.get(frame.key, (-1, 0))
        if frame.version < version or digest == hash(text):
            return
        self.seen[frame.key] = (frame.version, hash(text))
        self.member.put(text)


class Stream(ABC):
    window = WINDOW_SECONDS

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.subscriptions: set[Subscription] = set()
        self.idle_since: float | None = None
        self._dirt: set[Dirt] = set()
        self._sent_at = float("-inf")
        self._pump: asyncio.Task[None] | None = None

    def hint(self, hint: dict[str, Any]) -> None:
        self._soil({(str(hint["kind"]), "")})

    def recheck(self) -> None:
        """Compare with the database: a hint may have been lost."""
        self._soil({RECHECK})

    def _soil(self, dirt: set[Dirt]) -> None:
        self._dirt |= dirt
        if self.subscriptions and (self._pump is None or self._pump.done()):
            self._pump = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """At once when the last frame is older than the window, else merged at its end."""
        loop = asyncio.get_running_loop()
        while self._dirt and self.subscriptions:
            if (wait := self._sent_at + self.window - loop.time()) > 0:
                await asyncio.sleep(wait)
            dirt, self._dirt = self._dirt, set()
            try:
                await self._refresh(dirt)
            except Exception:  # whatever the read raised, the slow timer tries again; the other topics live on
                log.exception("live.read_failed", topic=self.topic.name)
            self._sent_at = loop.time()

    @abstractmethod
    async def _refresh(self, dirt: set[Dirt]) -> None: ...

    @abstractmethod
    async def catch_up(self, subscription: Subscription) -> None:
        """Bring a new listener to the present; from then on it is live. Ends with `synced`."""

    def _synced(self, subscription: Subscription, seq: int | None) -> None:
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
        fell_behind: Callable[[Subscription], None],
    ) -> None:
        super().__init__(topic)
        self._read_after, self._read_head, self._kind = read_after, read_head, kind
        self._fell_behind = fell_behind
        self.head = 0

    async def _refresh(self, dirt: set[Dirt]) -> None:
        more = True
        while more and any(one.live for one in self.subscriptions):
            part = await self._read_after(self.head)
            if part.rows:
                self._deliver(part)
                self.head = max(self.head, part.rows[-1]["seq"])
            more = part.more

    def _deliver(self, part: FeedPart) -> None:
        """To all who are live now, with those who became so while the rows were read."""
        rows, texts = part.rows, {0: self._text(part)}
        for listener in list(self.subscriptions):
            cursor = listener.cursor or 0
            if listener.member.suspended or not listener.live or cursor >= rows[-1]["seq"]:
                continue
            if not listener.member.has_room:  # it reads on at its own pace, as if it had just come
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

    async def catch_up(self, subscription: Subscription) -> None:
        newest = await self._read_head()
        if subscription.cursor is None or subscription.cursor > newest:
            subscription.cursor = newest
        if newest - subscription.cursor > FEED_BEHIND:
            subscription.cursor = newest
            subscription.member.put(encode(self.topic.name, newest, "reload", []))
        await self._replay(subscription)
        self._synced(subscription, subscription.cursor)

    async def _replay(self, subscription: Subscription) -> None:
        """Read until nothing is left that the live listeners have had already; between that and `live` no await."""
        behind = True
        while behind and not subscription.member.suspended:
            await subscription.member.room()
            had, cursor = self.head, subscription.cursor or 0
            part = await self._read_after(cursor)
            if part.rows and not subscription.member.suspended:
                subscription.member.put(self._text(part))
                subscription.cursor = part.rows[-1]["seq"]
            elif not part.rows:  # what others had before this read and is not found by it was deleted since
                subscription.cursor = max(cursor, had)
            behind = part.more or (subscription.cursor or 0) < self.head
        if subscription.member.suspended:
            return
        if not any(one.live for one in self.subscriptions):
            self.head = subscription.cursor or 0
        subscription.live = True


Row = dict[str, Any]


class SnapshotStream(Stream):
    """`read` turns what is dirty into frames."""

    def __init__(self, topic: Topic, read: Callable[[set[Dirt], "SnapshotStream"], Awaitable[list[Frame]]]) -> None:
        super().__init__(topic)
        self._read = read
        self.over = False
        self.by_time = False  # the cursor is a moment in milliseconds
        self.version = -1  # of the newest frame, where the topic is about one row
        self.known: set[str] = set()

    @property
    def has_reserved_listeners(self) -> bool:
        return any(not one.member.viewer.reads_payloads for one in self.subscriptions)

    def hint(self, hint: dict[str, Any]) -> None:
        rows = hint.get("rows") or [{}]
        self._soil({(str(hint["kind"]), _subject(row)) for row in rows})

    def recheck(self) -> None:
        if not self.over:
            super().recheck()

    async def _refresh(self, dirt: set[Dirt]) -> None:
        for frame in await self._read(dirt, self):
            self._note(frame)
            self._offer(frame)

    def _offer(self, frame: Frame, but: Subscription | None = None) -> None:
        for subscription in list(self.subscriptions):
            if subscription.live and subscription is not but:
                subscription.offer(frame)

    async def catch_up(self, subscription: Subscription) -> None:
        subscription.live = True
        newest = int(time.time() * 1000) if self.by_time else None
        for frame in await self._read({EVERYTHING}, self):
            self._note(frame)
            self._offer(frame, but=subscription)  # who noted it is not asked again, so all must have it
            if self._is_own(frame):
                newest = frame.version
            if not self._has(subscription.cursor, frame):
                await subscription.member.room()
                subscription.offer(frame)
        self._synced(subscription, newest)

    def _is_own(self, frame: Frame) -> bool:
        """Of the one row that the topic is about: only its version is a cursor, those of other rows say nothing."""
        return frame.key in _OWN_KEYS or frame.key == str(self.topic.uid)

    def _has(self, cursor: int | None, frame: Frame) -> bool:
        """Whether a page that stands at `cursor` shows this already."""
        if cursor is None:
            return False
        if frame.moved is not None:
            return frame.moved < cursor - OVERLAP_MS
        return self._is_own(frame) and 0 < frame.version == cursor

    def _note(self, frame: Frame) -> None:
        self.over, self.version = frame.final, max(self.version, frame.version)


_OWN_KEYS = frozenset({"session", "call", "draft"})
_SUBJECTS = ("call", "server", "question", "subscription")


def _subject(row: dict[str, Any]) -> str:
    return str(next((row[name] for name in _SUBJECTS if row.get(name)), ""))
