"""What a stream follows while the bundle or the session that it belongs to changes. Rows are real, hints are the test's."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from django.db import transaction
from django.utils import timezone

from servers.agents.tokens import Principal
from servers.enums import PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentRule, Bundle, BundleMember
from sessions import hints
from sessions.agents import endpoints, follows
from sessions.agents.changes import Changes
from sessions.agents.endpoints import Entry
from sessions.agents.policy import policy_check
from sessions.agents.stream_reads import StreamReads
from sessions.live.early import EarlyHints
from sessions.live.hub import Hub
from sessions.live.reader import Reader
from sessions.models import AgentFollow, AgentSession, Subscription
from tests.servers.conftest import person
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db(transaction=True)
ONE, TWO = "note://one", "note://two"
T = TypeVar("T")


class World:
    """A bundle with a member whose resources a session follows."""

    def __init__(self) -> None:
        notes = make_session("notes")
        self.principal = principal_of(person("ann", "view_server", "call_tool"))
        self.bundle = Bundle.objects.create(slug="team", name="Team")
        self.member = BundleMember.objects.create(
            bundle=self.bundle, server=notes.server, alias="notes", resources=["*"]
        )
        now = timezone.now()
        self.session = AgentSession.objects.create(
            key="k",
            token_id=self.principal.token.pk,
            bundle=self.bundle,
            revision="2025-11-25",
            created_at=now,
            last_seen_at=now,
        )
        self.one, self.two = (make_subscription(notes, uri) for uri in (ONE, TWO))
        for row in (self.one, self.two):
            AgentFollow.objects.create(session=self.session, subscription=row, uri=shown(row), renewed_at=now)
        place = self.place()
        self.legacy, self.modern = Entry(self.principal, place, self.session), Entry(self.principal, place)
        self.hub: Any = object.__new__(Hub)
        self.hub._watchers, self.hub._early, self.hub._own = {}, EarlyHints(), {}
        self.hub.streams, self.hub.reader = {}, Reader()

    def place(self) -> endpoints.Endpoint | endpoints.BundleEndpoint:
        return endpoints.endpoint_of(self.principal, "team")

    def followed(self) -> list[follows.Followed]:
        return [follows.Followed(row.uid, shown(row), row.event_count, row.newest) for row in (self.one, self.two)]

    async def hides(self, *uris: str) -> None:
        self.member.resources = ["*", *(f"!{uri}" for uri in uris)]
        await self.hub.reader.work(self.member.save)
        self.hints(f"bundle.{self.bundle.uid}")

    async def denies(self, uri: str) -> None:
        def write() -> None:
            policy, _ = AgentPolicy.objects.get_or_create(server=self.member.server)
            AgentRule.objects.create(policy=policy, effect=PolicyEffect.DENY, kind=PolicyKind.RESOURCE, pattern=uri)

        await self.hub.reader.work(write)
        policy_check.memory.forget()
        self.hints(hints.POLICIES)

    async def unsubscribes(self, row: Subscription) -> None:
        await self.hub.reader.work(partial(follows.unfollow, self.legacy, shown(row)))
        self.hints(f"agent.{self.session.uid}")

    async def update(self, row: Subscription) -> None:
        row.event_count += 1
        await self.hub.reader.work(row.save)
        self.hints(f"subscription.{row.uid}")

    async def reads(self, row: Subscription, *, events: int = 0) -> None:
        """A new version, announced by this many notifications, which were already counted."""

        @transaction.atomic
        def write() -> None:
            add_version(row, f"version {row.newest + 1}", events=events)
            row.event_count -= 1
            row.save()

        await self.hub.reader.work(write)
        self.hints(f"subscription.{row.uid}")

    def hints(self, topic: str) -> None:
        self.hub._received({"t": topic, "seq": None, "kind": "changed", "rows": None})


class CheckedChanges(Changes):
    """Says when it has read again what it may follow."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.checks = asyncio.Queue[None]()

    async def _still_valid(self) -> bool:
        valid = await super()._still_valid()
        self.checks.put_nowait(None)
        return valid


class Stream:
    """A running stream of an agent, and the URIs of the updates on it. Its token always counts."""

    def __init__(self, world: World, entry: Entry) -> None:
        async def still_valid(principal: Principal, address: str) -> Principal:
            return principal

        self.world, self.told = world, asyncio.Queue[str]()
        admission = SimpleNamespace(draining=False, on_drain=lambda wake: lambda: None, still_valid=still_valid)
        connection = SimpleNamespace(closed=False, address="", on_close=lambda wake: None)
        reads = StreamReads(world.hub.reader)
        parts: tuple[Any, ...] = (admission, reads, entry, connection)
        self.changes = CheckedChanges(world.hub, *parts, granted=frozenset(), stands=entry.session is not None)
        self._running: asyncio.Task[None] | None = None

    async def opens(self) -> None:
        await self.changes.join()
        await self.changes.follow(self.world.followed())
        self._running = asyncio.create_task(self.changes.run(cast(Any, self)))

    async def event(self, message: bytes) -> None:
        self.told.put_nowait(json.loads(message)["params"]["uri"])

    async def looks(self) -> None:
        """Wait until the stream reads what it was notified of. Later notifications come after that."""
        async with asyncio.timeout(30):
            while self.changes._follows_dirty:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.01)

    async def keep_alive(self) -> None:
        pass

    async def next(self, found: Awaitable[T]) -> T:
        """`found`, unless the stream ends before it."""
        assert self._running is not None
        wanted = asyncio.ensure_future(found)
        await asyncio.wait({wanted, self._running}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            wanted.cancel()
            self._running.result()
            raise AssertionError("the stream ended")
        return wanted.result()

    async def ended(self) -> None:
        assert self._running is not None
        async with asyncio.timeout(30):
            await asyncio.shield(self._running)

    async def closes(self) -> None:
        if self._running is not None:
            self._running.cancel()
        await self.changes.close()


def shown(row: Subscription) -> str:
    return row.uri.replace("note://", "note://notes.mcp/")


@pytest.fixture
def world() -> World:
    return World()


async def test_a_resource_that_leaves_the_bundle_ends_only_its_own_updates(world: World) -> None:
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        await world.hides(ONE)
        await stream.next(stream.changes.checks.get())
        await world.update(world.one)
        await world.update(world.two)
        assert await stream.next(stream.told.get()) == shown(world.two)
        assert stream.told.empty()
    finally:
        await stream.closes()


@pytest.mark.parametrize("how", ["hides", "denies"])
async def test_a_listener_learns_by_the_end_of_its_stream_that_it_follows_less(world: World, how: str) -> None:
    stream = Stream(world, world.modern)
    await stream.opens()
    try:
        await world.denies("note://other")
        await stream.next(stream.changes.checks.get())
        await world.update(world.one)
        assert await stream.next(stream.told.get()) == shown(world.one)
        await getattr(world, how)(ONE)
        await stream.ended()
    finally:
        await stream.closes()


async def test_a_change_that_was_found_without_a_notification_is_reported_once(world: World) -> None:
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        await world.reads(world.one)
        await stream.looks()
        await world.update(world.two)
        assert await stream.next(stream.told.get()) == shown(world.two), "the first version is no change"
        await world.reads(world.one)
        assert await stream.next(stream.told.get()) == shown(world.one)
        await world.update(world.one)
        assert await stream.next(stream.told.get()) == shown(world.one)
        await world.reads(world.one, events=1)
        await stream.looks()
        await world.update(world.two)
        assert await stream.next(stream.told.get()) == shown(world.two), "it was told by its notification"
        assert stream.told.empty()
    finally:
        await stream.closes()


async def test_a_resource_that_comes_back_is_followed_again_by_its_session(world: World) -> None:
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        for hidden in ([ONE], []):
            await world.hides(*hidden)
            await stream.next(stream.changes.checks.get())
        await world.update(world.one)
        assert await stream.next(stream.told.get()) == shown(world.one)
        assert len(world.hub._watchers[f"subscription.{world.one.uid}"]) == 1
    finally:
        await stream.closes()


async def test_a_resource_that_a_session_unsubscribes_from_is_told_no_more(world: World) -> None:
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        await world.unsubscribes(world.one)
        await stream.next(stream.changes.checks.get())
        await world.update(world.one)
        await world.update(world.two)
        assert await stream.next(stream.told.get()) == shown(world.two)
        assert stream.told.empty()
    finally:
        await stream.closes()


async def test_a_stream_that_opens_follows_nothing_that_its_bundle_hides(world: World) -> None:
    await world.hides(ONE)
    world.legacy = replace(world.legacy, place=await world.hub.reader.run(world.place))
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        await world.update(world.one)
        await world.update(world.two)
        assert await stream.next(stream.told.get()) == shown(world.two)
        assert stream.told.empty()
    finally:
        await stream.closes()


async def test_a_stream_of_a_bundle_reads_it_again_once_a_second_however_much_its_servers_do(world: World) -> None:
    stream = Stream(world, world.legacy)
    await stream.opens()
    try:
        for _ in range(20):
            world.hints(f"server.{world.member.server.uid}")
            await asyncio.sleep(0.01)
        await world.hides(ONE)
        async with asyncio.timeout(30):
            while len(world.hub._watchers.get(f"subscription.{world.one.uid}", ())) > 0:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.01)
        assert stream.changes.checks.qsize() < 10, "the first hint, the change of the bundle, and one for each second"
    finally:
        await stream.closes()
