"""How the hub reads each kind of topic: one read for all sockets, and one query for all topics that wait."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from uuid import UUID

from django.utils import timezone

from sessions.consumers import question_frames, sign_in_frames, sources, subscription_frames, worker_frames
from sessions.consumers.call_stream import CallStream
from sessions.consumers.frames import Frame
from sessions.consumers.reader import Reader, Together
from sessions.consumers.sources import CallKey, FeedPart, ServerKey
from sessions.consumers.streams import EVERYTHING, RECHECK, Dirt, FeedStream, Row, SnapshotStream, Stream, Subscription
from sessions.domain.topics import Topic, TopicKind

#: reads from so many places of one feed in a row; other topics wait for the same thread
FEED_CURSORS = 4


class TopicReads:
    def __init__(self, reader: Reader, fell_behind: Callable[[Subscription], None]) -> None:
        self.reader, self._fell_behind = reader, fell_behind
        self._calls: Together[CallKey, Frame] = Together(reader, sources.call_frames)
        self._call_versions: Together[UUID, int] = Together(reader, sources.call_versions)
        self._servers: Together[ServerKey, Frame] = Together(reader, sources.server_frames)
        self._drafts: Together[UUID, Frame] = Together(reader, sources.draft_frames)

    def stream(self, topic: Topic) -> Stream:
        if topic.feed:
            return self._feed(topic)
        readers = {
            TopicKind.SERVERS: self._read_list,
            TopicKind.SERVER: partial(self._read_server, timezone.now()),
            TopicKind.DRAFT: self._read_draft,
            TopicKind.INBOX: partial(self._read_rows, question_frames.frames),
            TopicKind.SUBSCRIPTIONS: partial(self._read_rows, subscription_frames.board_frames),
            TopicKind.SUBSCRIPTION: self._read_subscription,
            TopicKind.SESSIONS: self._read_workers,
            TopicKind.SIGN_INS: partial(self._read_rows, sign_in_frames.frames),
            TopicKind.OWN_SIGN_INS: partial(self._read_rows, sign_in_frames.own_frames),
        }
        if topic.kind is TopicKind.CALL:
            return CallStream(topic, self._read_call, self._read_progress)
        stream = SnapshotStream(topic, readers[topic.kind])
        stream.by_time = topic.kind is TopicKind.SUBSCRIPTIONS
        if topic.kind is TopicKind.SESSIONS:
            stream.window = 1.0  # a whole board is read for it
        return stream

    def _feed(self, topic: Topic) -> FeedStream:
        """After a restart all sockets want the same rows: one read and one encoding serve them."""
        parts: Together[int, FeedPart] = Together(self.reader, partial(sources.feeds_after, topic), most=FEED_CURSORS)

        async def read_after(seq: int) -> FeedPart:
            return await parts.get(seq) or FeedPart([], False)

        read_head = partial(sources.feed_head, topic)
        return FeedStream(
            topic, read_after, lambda: self.reader.run(read_head), sources.feed_kind(topic), self._fell_behind
        )

    async def _read_list(self, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        uids = _subjects(dirt)
        frames = await self.reader.run(partial(sources.server_list_frames, uids))
        if uids is None:  # everything was read, so what was shown before and is not there now is gone
            gone = stream.known - {frame.key for frame in frames}
            frames += [sources.gone_frame(UUID(key)) for key in gone if " " not in key]
        stream.known = (
            {frame.key for frame in frames} if uids is None else stream.known | {frame.key for frame in frames}
        )
        return frames

    async def _read_server(self, since: datetime, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        """`since`: calls older than the first listener stand on its page already."""
        topic = stream.topic
        frames: list[Frame | None] = []
        everything = not dirt.isdisjoint({EVERYTHING, RECHECK})
        if everything or any(kind == "session" for kind, _ in dirt):
            frames.append(await self._servers.get((topic.row, topic.identity)))
        if everything or any(kind == "catalog" for kind, _ in dirt):
            frames.append(await self.reader.run(partial(sources.catalog_frame, topic)))
        called = _uids(subject for kind, subject in dirt if kind == "call")
        if everything or called:
            read = partial(sources.server_call_frames, topic, None if everything else called, since)
            frames.extend(await self.reader.run(read))
        return [frame for frame in frames if frame is not None]

    async def _read_call(self, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        if dirt == {RECHECK} and await self._call_versions.get(stream.topic.row) == stream.version:
            return []
        frame = await self._calls.get((stream.topic.row, stream.has_reserved_listeners))
        return [frame] if frame else []

    async def _read_progress(self, row: Row, stream: SnapshotStream) -> Frame | None:
        read = partial(sources.progress_frame, stream.topic.row, row, stream.has_reserved_listeners)
        return await self.reader.run(read)

    async def _read_rows(
        self, read: Callable[[list[UUID] | None], list[Frame]], dirt: set[Dirt], stream: SnapshotStream
    ) -> list[Frame]:
        return await self.reader.run(partial(read, _subjects(dirt)))

    async def _read_subscription(self, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        return await self.reader.run(partial(subscription_frames.frames_of, stream.topic.row))

    async def _read_workers(self, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        return await self.reader.run(worker_frames.frames)

    async def _read_draft(self, dirt: set[Dirt], stream: SnapshotStream) -> list[Frame]:
        frame = await self._drafts.get(stream.topic.row)
        return [frame] if frame else []


def _subjects(dirt: Iterable[Dirt]) -> list[UUID] | None:
    """The rows that are dirty; None for all of them."""
    uids = _uids(subject for _, subject in dirt)
    return uids if len(uids) == len(set(dirt)) else None


def _uids(words: Iterable[str]) -> list[UUID]:
    found = set()
    for word in words:
        try:
            found.add(UUID(word))
        except ValueError:
            continue
    return list(found)
