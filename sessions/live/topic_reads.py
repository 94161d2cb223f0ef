"""How the hub reads each kind of topic: one read for all sockets, and one query for all waiting topics."""

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from uuid import UUID

from django.utils import timezone

from servers.enums import JobKind
from servers.exporting import board as exporting
from servers.jobs import board
from servers.numbers import uuids
from sessions.connections import worker_board
from sessions.live import (
    call_frames,
    draft_frames,
    feeds,
    inbox_frames,
    server_frames,
    sign_in_frames,
    subscription_frames,
)
from sessions.live.call_frames import CallKey
from sessions.live.call_stream import CallStream
from sessions.live.feeds import FeedPart
from sessions.live.frames import Frame, encode
from sessions.live.reader import BatchedReads, Reader
from sessions.live.server_frames import ServerKey
from sessions.live.streams import EVERYTHING, RECHECK, Dirty, FeedStream, Row, SnapshotStream, Stream, TopicSubscription
from sessions.live.topics import Topic, TopicKind
from sessions.overview import numbers, server_list

#: cursors of one feed per read; other topics wait for the same thread
FEED_CURSORS = 4
#: servers that one frame names
MOVED = 100
#: topics whose hints cause the read of a whole board or page: at most one read per second
_WHOLE_PAGES = frozenset(
    {
        TopicKind.SERVERS,
        TopicKind.SESSIONS,
        TopicKind.OVERVIEW,
        TopicKind.AGENTS,
        TopicKind.JOBS,
        TopicKind.VERIFICATION,
        TopicKind.EXPORTS,
    }
)


Read = Callable[[set[Dirty], SnapshotStream], Awaitable[list[Frame]]]


class TopicReads:
    def __init__(self, reader: Reader, fell_behind: Callable[[TopicSubscription], None]) -> None:
        self.reader, self._fell_behind = reader, fell_behind
        self._calls: BatchedReads[CallKey, Frame] = BatchedReads(reader, call_frames.call_frames)
        self._call_versions: BatchedReads[UUID, int] = BatchedReads(reader, call_frames.call_versions)
        self._servers: BatchedReads[ServerKey, Frame] = BatchedReads(reader, server_frames.server_frames)
        self._drafts: BatchedReads[UUID, Frame] = BatchedReads(reader, draft_frames.draft_frames)

    def stream(self, topic: Topic) -> Stream:
        if topic.kind is TopicKind.CALL:  # first: a page follows each call
            return CallStream(topic, self._read_call, self._read_progress)
        if topic.feed:
            return self._feed(topic)
        readers: dict[TopicKind, Read] = {
            TopicKind.SERVERS: self._read_list,
            TopicKind.SERVER: partial(self._read_server, timezone.now()),
            TopicKind.DRAFT: self._read_draft,
            TopicKind.INBOX: partial(self._read_rows, inbox_frames.frames),
            TopicKind.SUBSCRIPTIONS: self._read_subscriptions,
            TopicKind.SUBSCRIPTION: self._read_subscription,
            TopicKind.SESSIONS: partial(self._read_mark, worker_board.mark),
            TopicKind.SIGN_INS: partial(self._read_rows, sign_in_frames.frames),
            TopicKind.OWN_SIGN_INS: partial(self._read_rows, sign_in_frames.own_frames),
            TopicKind.OVERVIEW: partial(self._read_mark, numbers.mark),
            TopicKind.JOBS: partial(self._read_mark, board.mark),
            TopicKind.VERIFICATION: partial(self._read_mark, partial(board.mark, JobKind.VERIFICATION)),
            TopicKind.EXPORTS: partial(self._read_mark, exporting.mark),
            TopicKind.AGENTS: partial(self._read_mark, numbers.agents_mark),
        }
        stream = SnapshotStream(topic, readers[topic.kind])
        stream.by_time = topic.kind is TopicKind.SUBSCRIPTIONS
        if topic.kind in _WHOLE_PAGES:
            stream.window = 1.0  # each refresh reads a whole board or page
        return stream

    def _feed(self, topic: Topic) -> FeedStream:
        """After a restart all sockets need the same rows: one read and one encoding serve them."""
        parts: BatchedReads[int, FeedPart] = BatchedReads(
            self.reader, partial(feeds.feeds_after, topic), most=FEED_CURSORS
        )

        async def read_after(seq: int) -> FeedPart:
            return await parts.get(seq) or FeedPart([], False)

        read_head = partial(feeds.feed_head, topic)
        return FeedStream(
            topic, read_after, lambda: self.reader.run(read_head), feeds.feed_kind(topic), self._fell_behind
        )

    async def _read_list(self, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        """One frame for any number of servers: a mark, and which ones moved. None: too many, or not known. A page asks
        for those that it shows, with the permissions of its own user."""
        uids = _subjects(dirty)
        moved = sorted(map(str, uids)) if uids is not None and len(uids) <= MOVED else None
        row = {"mark": await self.reader.run(server_list.mark), "servers": moved}
        return [Frame(encode(stream.topic.name, None, "moved", [row]), None, stream.topic.name)]

    async def _read_server(self, since: datetime, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        """`since`: the page already shows calls that are older than its first listener."""
        topic = stream.topic
        frames: list[Frame | None] = []
        everything = not dirty.isdisjoint({EVERYTHING, RECHECK})
        if everything or any(kind == "session" for kind, _ in dirty):
            frames.append(await self._servers.get((topic.row, topic.identity)))
        if everything or any(kind == "catalog" for kind, _ in dirty):
            frames.append(await self.reader.run(partial(server_frames.catalog_frame, topic)))
        if everything or any(kind == "tasks" for kind, _ in dirty):
            mark = [{"mark": str(time.time_ns())}]  # unique: a frame that equals the previous one is not sent
            frames.append(Frame(encode(topic.name, None, "tasks", mark), None, "tasks"))
        called = _uids(subject for kind, subject in dirty if kind == "call")
        if everything or called:
            read = partial(call_frames.server_call_frames, topic, None if everything else called, since)
            frames.extend(await self.reader.run(read))
        return [frame for frame in frames if frame is not None]

    async def _read_call(self, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        if dirty == {RECHECK} and await self._call_versions.get(stream.topic.row) == stream.version:
            return []
        frame = await self._calls.get((stream.topic.row, stream.has_reserved_listeners))
        return [frame] if frame else []

    async def _read_progress(self, row: Row, stream: SnapshotStream) -> Frame | None:
        read = partial(call_frames.progress_frame, stream.topic.row, row, stream.has_reserved_listeners)
        return await self.reader.run(read)

    async def _read_rows(
        self, read: Callable[[list[UUID] | None], list[Frame]], dirty: set[Dirty], stream: SnapshotStream
    ) -> list[Frame]:
        return await self.reader.run(partial(read, _subjects(dirty)))

    async def _read_subscriptions(self, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        """Read many in parts, so that other reads get their turn in between: a server may report everything it
        watches."""
        uids, most, read = _subjects(dirty), subscription_frames.MOST, subscription_frames.board_frames
        if uids is None:
            return await self.reader.run(partial(read, None))
        parts = [uids[start : start + most] for start in range(0, len(uids), most)]
        return [frame for part in parts for frame in await self.reader.run(partial(read, part))]

    async def _read_subscription(self, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        return await self.reader.run(partial(subscription_frames.frames_of, stream.topic.row))

    async def _read_mark(self, read: Callable[[], str], dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        """A page with a different mark reloads its parts with the permissions of its own user."""
        mark = await self.reader.run(read)
        return [Frame(encode(stream.topic.name, None, "moved", [{"mark": mark}]), None, stream.topic.name)]

    async def _read_draft(self, dirty: set[Dirty], stream: SnapshotStream) -> list[Frame]:
        frame = await self._drafts.get(stream.topic.row)
        return [frame] if frame else []


def _subjects(dirty: Iterable[Dirty]) -> list[UUID] | None:
    """The uids of the dirty rows; None for all rows."""
    subjects = {subject for _, subject in dirty}
    uids = _uids(subjects)
    return uids if len(uids) == len(subjects) else None


def _uids(words: Iterable[str]) -> list[UUID]:
    return list(set(uuids(words)))
