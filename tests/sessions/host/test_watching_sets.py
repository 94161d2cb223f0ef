"""What one open session watches: the set that the server is asked for, what stays in force, and what is read when. Rows
and client are the test's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from sessions.host.answer_redaction import Redactor
from sessions.host.subscriptions.notification_counts import CountWriter, NotificationCounts
from sessions.host.subscriptions.reads import ReadReason, Reads
from sessions.host.subscriptions.watching import HELD_SECONDS, SHED_EVERY_SECONDS, Watching
from sessions.mcp.core.errors import Fault, HttpError, McpError, ProtocolError, TransportError
from sessions.mcp.core.events import AcceptedSubscriptions, Following, FollowingLost, ListKind, ResourceUpdated
from sessions.mcp.core.state import State
from sessions.subscriptions.watches import ENDED_SESSION, Watch

A, B, C = "note://a", "note://b", "note://c"
PKS = {
    A: 1,
    B: 2,
    C: 3,
    "note://d/": 4,
    "note://d/e": 5,
    "note://f": 6,
    "file:///tmp/a b": 7,
    "NOTE://größe": 8,
    "file:///tmp/": 9,
}


def rows(*uris: str, unread: tuple[str, ...] = ()) -> list[Watch]:
    return [Watch(PKS[uri], uri, 1.0, unread=uri in unread) for uri in uris]


class Rows:
    """A database with the rows of the session, which remembers what was written of them."""

    def __init__(self) -> None:
        self.watched: list[Watch] = []
        self.written: list[tuple[Any, ...]] = []

    async def read(self, job: "partial[Any]") -> list[Watch]:
        return self.watched

    async def persist(self, job: "partial[Any]") -> None:
        self.written.append((job.func.__name__, *job.args[1:]))

    def last(self, name: str) -> tuple[Any, ...]:
        return [parts for called, *parts in self.written if called == name][-1]


class Server:
    """Agrees to every set, unless it has a problem with the next one."""

    state = State.READY

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.problems: deque[McpError] = deque()
        #: the resources that it cannot take now
        self.passing: frozenset[str] = frozenset()
        #: what it says with each agreement that brings no notifications
        self.silent: Callable[[Following], None] | None = None

    async def read_resource(self, uri: str) -> Any:
        """Its answer ends the session."""
        self.state = State.DISCONNECTED
        raise ProtocolError(Fault.MESSAGE_LIMIT, "The server sent a message over the limit of 9 bytes.")

    async def follow(self, resources: Any = (), lists: Any = ()) -> AcceptedSubscriptions:
        self.asked.append(set(resources))
        if self.problems:
            raise self.problems.popleft()
        refused = dict.fromkeys(self.passing & set(resources), "not in time")
        honoured = AcceptedSubscriptions(
            frozenset(resources) - self.passing, refused=refused, passing=frozenset(refused)
        )
        if self.silent is not None:
            self.silent(Following(honoured))
        return honoured


class Requested:
    """What is to be read, and why."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.suspects: dict[str, float] = {}

    def keep(self, intervals: Any, suspects: dict[str, float]) -> None:
        self.suspects = suspects

    def request(self, uri: str, reason: ReadReason) -> None:
        self.uris.append(uri)

    async def close(self) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.database, self.server, self.reads = Rows(), Server(), Requested()
        unused: Any = None
        counts = NotificationCounts(CountWriter(unused), unused)
        parts: Any = (self.database, unused, self.server, Redactor([]), unused, counts)
        self.watching = Watching(*parts, lambda: None)
        self.watching._reads = self.reads
        self.lists: tuple[ListKind, ...] = ()
        self._requests = 0

    async def watches(self, *uris: str, unread: tuple[str, ...] = ()) -> None:
        """The rows are now these, and the worker has looked at them."""
        self.database.watched, self._requests = rows(*uris, unread=unread), self._requests + 1
        if self._requests == 1:
            self.watching.serve(1, self.lists)
        else:
            self.watching.subscriptions_changed(self._requests)
        async with asyncio.timeout(30):
            while self.watching._asked < self._requests or self.watching._news:  # noqa: ASYNC110  the rows tell nobody
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.watching.close()


def busy(status: int = 503) -> HttpError:
    return HttpError(Fault.HTTP_STATUS, f"HTTP {status}", status=status, may_have_run=False)


@pytest.mark.parametrize(
    "problem", [busy(), busy(429), TransportError(Fault.TIMEOUT, "no answer", may_have_run=True)], ids=str
)
async def test_a_set_that_cannot_be_asked_for_leaves_the_one_before_in_force(world: World, problem: McpError) -> None:
    await world.watches(A, B, unread=(A, B))
    world.server.problems.append(problem)
    await world.watches(A, B, C, unread=(C,))
    _, _, kept = world.database.last("lost")
    assert sorted(kept) == [PKS[A], PKS[B]]
    world.reads.uris.clear()
    await world.watches(A, B, C, unread=(C,))
    assert world.server.asked[-1] == {A, B, C}
    assert world.reads.uris == [C], "of the others nothing was missed"


async def test_a_server_with_one_stream_is_asked_again_once_that_stream_is_closed(world: World) -> None:
    await world.watches(A)
    world.server.problems.append(busy(409))
    world.reads.uris.clear()
    await world.watches(A, B, unread=(B,))
    assert world.server.asked == [{A}, {A, B}, set(), {A, B}]
    assert world.database.last("lost")[2] == []
    assert sorted(world.reads.uris) == [A, B], "what changed between the two streams is read"


async def test_a_conflict_without_a_stream_of_ours_is_a_failure_like_others(world: World) -> None:
    world.server.problems.append(busy(409))
    await world.watches(A)
    assert world.server.asked == [{A}]
    assert world.database.last("lost")[2] == []


async def test_what_is_dropped_in_the_pause_after_an_earlier_drop_is_read_at_its_end(world: World) -> None:
    await world.watches(A)
    world.reads.uris.clear()
    for _ in range(3):
        world.watching.shed()
    await asyncio.sleep(0.01)
    assert world.reads.uris == [A]
    for _ in range(3):
        world.watching.shed()
    await asyncio.sleep(0.01)
    assert world.reads.uris == [A]
    due = world.watching._shed_read
    assert due is not None
    assert 0 < due.when() - asyncio.get_running_loop().time() <= SHED_EVERY_SECONDS


async def test_a_set_that_is_in_force_is_not_asked_for_again(world: World) -> None:
    await world.watches(A, B, unread=(A, B))
    await world.watches(A, B)
    assert world.server.asked == [{A, B}], "other settings, or another follower"
    await world.watches(A)
    assert world.server.asked == [{A, B}, {A}]
    await world.watches(A, unread=(A,))
    assert world.server.asked[2:] == [{A}], "it ended and was resumed"
    await world.watches()
    await world.watches()
    assert world.server.asked[3:] == [set()]


async def test_a_read_whose_answer_ended_the_session_is_recorded_and_held_in_the_next_one(world: World) -> None:
    watching = world.watching
    watching._reads = Reads(watching._read)
    await world.watches(A)
    async with asyncio.timeout(10):
        while watching._blamed is None:  # noqa: ASYNC110  the read tells nobody
            await asyncio.sleep(0)
    await watching.close()
    pk, fault, words, at = world.database.last("read_failed")
    assert (pk, fault) == (PKS[A], ENDED_SESSION)
    assert words.startswith("The session ended while this was read: The server sent a message over the limit")
    after = World()
    since = [at, at + timedelta(days=1), at - timedelta(days=1), None]
    after.database.watched = [
        replace(row, ended_session_at=when) for row, when in zip(rows(*list(PKS)[:4]), since, strict=True)
    ]
    await after.watching._read_rows()
    held = list(after.reads.suspects.values())
    assert held == [pytest.approx(HELD_SECONDS, abs=30), HELD_SECONDS, 0.0]


async def test_a_stream_that_ended_for_good_is_asked_for_again(world: World) -> None:
    await world.watches(A)
    world.watching.received(FollowingLost("The server ended the subscription.", retried=False))
    await world.watches(A, unread=(A,))
    assert world.server.asked == [{A}, {A}]


async def test_the_lists_alone_are_asked_for_again_when_their_stream_ended_for_good(world: World) -> None:
    world.lists = (ListKind.TOOLS,)
    await world.watches()
    await world.watches()
    assert world.server.asked == [set()]
    world.watching.received(FollowingLost("The server ended the subscription.", retried=False))
    await asyncio.sleep(0.01)
    await world.watches()
    assert world.server.asked == [set(), set()]


@pytest.mark.parametrize("final", [True, False])
async def test_a_server_that_agrees_and_sends_nothing_is_no_listening_one_again_and_again(
    world: World, final: bool
) -> None:
    def silent(following: Following) -> None:
        world.watching.received(following)
        world.watching.received(FollowingLost("no stream", retried=False, final=final))

    world.server.silent = silent
    world.watching._backoff.first = 0.02
    await world.watches(A, unread=(A,))
    await asyncio.sleep(1)
    assert world.server.asked == [{A}] if final else 2 <= len(world.server.asked) <= 12
    assert world.reads.uris == [A], "once; then it is polled"
    assert all(parts[0] == [] for name, *parts in world.database.written if name == "settled")
    assert world.database.last("lost")[0] == "no stream"
    world.server.silent = None
    await world.watches(A, B, unread=(B,))
    assert sorted(world.database.last("settled")[0]) == [PKS[A], PKS[B]]
    assert sorted(world.reads.uris) == [A, A, B], "what changed unheard is read"


async def test_a_resource_that_the_server_could_not_take_at_the_moment_is_asked_for_again(world: World) -> None:
    world.watching._backoff.first = 0.02
    world.server.passing = frozenset({B})
    await world.watches(A, B, unread=(A, B))
    assert world.database.last("settled")[:2] == [[PKS[A]], {}]
    reason, _, kept = world.database.last("lost")
    assert (reason, kept) == ("Request failed: not in time", [PKS[A]])
    world.server.passing = frozenset()
    async with asyncio.timeout(10):
        while world.watching._listening != {A, B}:  # noqa: ASYNC110  the rows tell nobody
            await asyncio.sleep(0.01)
    assert world.server.asked == [{A, B}] * len(world.server.asked)


async def test_a_change_of_a_part_is_read_for_every_parent_that_is_watched(world: World) -> None:
    await world.watches("note://d/", "note://d/e", "note://f")
    world.reads.uris.clear()
    world.watching.updated(ResourceUpdated("note://d/e/g/h"))
    assert world.reads.uris == ["note://d/e", "note://d/"]
    assert {pk: number for pk, (number, _) in world.watching._counts._counts.numbers.items()} == {
        PKS["note://d/e"]: 1,
        PKS["note://d/"]: 1,
    }
    world.reads.uris.clear()
    world.watching.updated(ResourceUpdated("note://d/"))
    world.watching.updated(ResourceUpdated("note://f"))
    world.watching.updated(ResourceUpdated("note://" + "d/" * 5_000))
    assert world.reads.uris == ["note://d/", "note://f"]


async def test_a_change_is_read_under_the_spelling_that_was_subscribed(world: World) -> None:
    await world.watches(A, "file:///tmp/a b", "NOTE://größe")
    world.reads.uris.clear()
    for uri in ("file:///tmp/a%20b", "file:///tmp/a%20b/part", "note://gr%c3%b6%C3%9Fe", "note://A", "note://\ud800"):
        world.watching.updated(ResourceUpdated(uri))
    assert world.reads.uris == ["file:///tmp/a b", "file:///tmp/a b", "NOTE://größe"]
    await world.watches("file:///tmp/", "file:///tmp/a b")
    world.reads.uris.clear()
    world.watching.updated(ResourceUpdated("file:///tmp/a%20b"))
    assert sorted(world.reads.uris) == ["file:///tmp/", "file:///tmp/a b"]
