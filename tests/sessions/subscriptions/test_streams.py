"""Watching a modern server whose streams the test controls: agreement, loss, refusal and retry."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.audit import payloads
from servers.crypto import SealError
from servers.models import RedactionRule
from servers.secret import MASK
from sessions.connections.lifecycle import Lease
from sessions.enums import SubscriptionState
from sessions.host.answer_redaction import Redactor
from sessions.host.db import Database
from sessions.host.logs.session_log import ServerLog
from sessions.host.logs.writer import LogWriter
from sessions.host.subscriptions import watching
from sessions.host.subscriptions.notification_counts import CountWriter, NotificationCounts
from sessions.host.subscriptions.watching import Watching
from sessions.mcp.client import listening
from sessions.mcp.core.backoff import Backoff
from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.core.events import Following, FollowingLost, ResourceUpdated
from sessions.models import McpSession, ResourceVersion, Subscription, SubscriptionGap
from tests.sessions.host.make import make_hold, make_session
from tests.sessions.mcp.client.feeds import Feeds, Listened, feeding
from tests.sessions.mcp.transports.making import http, unconnected
from tests.sessions.subscriptions.world import subscribe

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
ONE = "note://one"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the random back-off before a retry."""
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 0.0)
    monkeypatch.setattr(watching, "Backoff", _Now)


class _Now(Backoff):
    def delay(self, retry_after: float | None = None) -> float:
        return 0.0


@pytest.fixture
def lease(valkey: Path, ada: Any) -> Lease:
    session = make_session("notes")
    subscribe(ada, session.server, ONE)
    return make_hold(session)


class World:
    """A watched session, the streams of its server, and its rows."""

    def __init__(self, db: Database, feeds: Feeds, watching: Watching) -> None:
        self.db, self.feeds, self.watching = db, feeds, watching

    async def listening(self) -> Listened:
        """The stream, once the row says listening and the first read is stored."""
        stream = await self.feeds.next()
        await self.state(SubscriptionState.LISTENING)
        await self.row(lambda row: row.newest == 1)
        return stream

    def says(self, text: str) -> None:
        contents = [{"uri": ONE, "text": text}]
        self.feeds.answers["resources/read"] = {"contents": contents, "resultType": "complete"}

    async def row(self, check: Callable[[Subscription], Any]) -> Subscription:
        """The subscription, once `check` accepts it."""
        async with asyncio.timeout(30):
            while not check(row := await self.db.read(Subscription.objects.get)):  # noqa: ASYNC110 - a row has no event
                await asyncio.sleep(0.02)  # poll the row
        return row

    async def state(self, state: SubscriptionState) -> Subscription:
        return await self.row(lambda row: row.state == state)

    async def newest(self) -> ResourceVersion:
        rows = ResourceVersion.objects.select_related("contents")
        return await self.db.read(lambda: rows.latest("number"))

    async def read_again(self, stream: Listened) -> Subscription:
        """The server reports a change; returns the row after the read."""
        before = await self.db.read(Subscription.objects.get)
        await stream.notify("resources/updated", uri=ONE)
        return await self.row(lambda row: row.last_read_at != before.last_read_at)

    async def gap(self) -> SubscriptionGap | None:
        return await self.db.read(SubscriptionGap.objects.first)


class Heard(list[Any]):
    """Dispatches the client's events as a session does."""

    routes: dict[type, Callable[[Any], None]]

    def append(self, event: Any) -> None:
        if type(event) in self.routes:
            self.routes[type(event)](event)


@asynccontextmanager
async def watched(lease: Lease, feeds: Feeds | None = None) -> AsyncIterator[World]:
    feeds = feeds or Feeds()
    db = Database()
    heard = Heard()
    async with feeding(feeds) as url:
        client = unconnected(http(url), heard)
        counts = NotificationCounts(CountWriter(db), lease)
        made = Watching(db, lease, client, Redactor(), ServerLog(LogWriter(db), lease), counts, lambda: None)
        heard.routes = {Following: made.received, FollowingLost: made.received, ResourceUpdated: made.updated}
        try:
            await client.connect()
            world = World(db, feeds, made)
            world.says("first")
            made.serve(1, ())
            yield world
        finally:
            await client.close()
            await made.close()
            db.stop()


async def test_a_stream_that_breaks_is_a_gap_which_the_next_one_closes(lease: Lease) -> None:
    async with watched(lease) as world:
        stream = await world.listening()
        world.says("second")
        stream.drop()
        row = await world.state(SubscriptionState.LOST)
        gap = await world.gap()
        assert gap is not None
        assert (gap.began_at, gap.ended_at, gap.reason) == (row.state_since, None, row.reason)
        await world.feeds.next()
        listening = await world.state(SubscriptionState.LISTENING)
        await world.row(lambda row: row.newest == 2)
        gap = await world.gap()
        assert gap is not None
        assert (gap.ended_at, gap.changed) == (listening.state_since, True)


async def test_what_is_reported_of_a_part_is_read_as_the_whole(lease: Lease) -> None:
    async with watched(lease) as world:
        stream = await world.listening()
        world.says("second")
        await stream.notify("resources/updated", uri=f"{ONE}/lines/7")
        row = await world.row(lambda row: row.newest == 2)
        await world.row(lambda row: row.event_count == 1)
        await stream.notify("resources/updated", uri="note://oneself")
        await stream.notify("resources/updated", uri=ONE + "/" * 100_000)
        await stream.notify("resources/updated", uri=ONE)
        assert await world.row(lambda row: row.event_count == 2)
        assert row.read_fault == ""


async def test_content_that_cannot_be_encrypted_is_a_failed_read_of_which_the_page_knows(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(lease) as world:
        stream = await world.listening()
        world.says("second")

        def made(*given: Any) -> None:
            raise SealError("The key ring cannot be read.")

        with monkeypatch.context() as away:
            away.setattr(payloads, "made", made)
            await stream.notify("resources/updated", uri=ONE)
            row = await world.row(lambda row: row.read_fault)
        assert (row.newest, "The key ring cannot be read." in row.read_detail) == (1, True)
        await stream.notify("resources/updated", uri=ONE)
        row = await world.row(lambda row: row.newest == 2)
        assert row.read_fault == ""


async def test_a_server_without_subscriptions_refuses_in_its_own_words(lease: Lease) -> None:
    feeds = Feeds()
    feeds.refusals = [(-32601, 404)]
    async with watched(lease, feeds) as world:
        row = await world.state(SubscriptionState.REFUSED)
        assert "read every 60 s instead" in row.reason
        await world.row(lambda row: row.newest == 1)
        assert await world.gap() is None


async def test_what_the_server_does_not_agree_to_is_refused(lease: Lease) -> None:
    async with watched(lease) as world:
        stream = await world.feeds.next(acknowledge=False)
        await stream.acknowledge({})
        row = await world.state(SubscriptionState.REFUSED)
        assert "did not accept" in row.reason


async def test_a_server_that_could_not_be_asked_is_asked_again(lease: Lease) -> None:
    feeds = Feeds()
    async with watched(lease, feeds) as world:
        (await feeds.next(acknowledge=False)).drop()
        await world.feeds.next()
        await world.state(SubscriptionState.LISTENING)


async def test_a_read_that_fails_is_shown_and_the_resource_stays_watched(lease: Lease) -> None:
    async with watched(lease) as world:
        stream = await world.listening()
        del world.feeds.answers["resources/read"]
        world.feeds.refusals_of["resources/read"] = -32002
        await stream.notify("resources/updated", uri=ONE)
        row = await world.row(lambda row: row.read_fault)
        assert (row.state, row.newest) == (SubscriptionState.LISTENING, 1)
        world.says("second")
        del world.feeds.refusals_of["resources/read"]
        await stream.notify("resources/updated", uri=ONE)
        await world.row(lambda row: row.newest == 2 and not row.read_fault)


async def test_an_answer_without_contents_is_a_failed_read(lease: Lease) -> None:
    async with watched(lease) as world:
        stream = await world.listening()
        world.feeds.answers["resources/read"] = {"contents": "second", "resultType": "complete"}
        await stream.notify("resources/updated", uri=ONE)
        row = await world.row(lambda row: row.read_fault)
        assert (row.read_fault, row.newest) == (str(Fault.INVALID_RESULT), 1)


async def test_notifications_that_were_shed_are_made_good_by_a_read(lease: Lease) -> None:
    async with watched(lease) as world:
        await world.listening()
        world.says("second")
        world.watching.shed()
        await world.row(lambda row: row.newest == 2)


async def test_the_end_of_the_session_says_why_no_one_listens(lease: Lease) -> None:
    async with watched(lease) as world:
        await world.listening()
        world.watching.over(TransportError(Fault.CONNECTION_LOST, "The pipe broke.", may_have_run=True))
        await world.watching.close()
        row = await world.state(SubscriptionState.WAITING)
        gap = await world.gap()
        assert gap is not None
        assert row.reason == gap.reason == "Connection lost: The pipe broke."


async def test_a_session_that_another_took_over_writes_no_more(lease: Lease) -> None:
    async with watched(lease) as world:
        await world.listening()
        await world.db.read(lambda: McpSession.objects.update(epoch=99))
        await world.watching.close()
        row = await world.db.read(Subscription.objects.get)
        assert (row.state, await world.gap()) == (SubscriptionState.LISTENING, None)


async def test_a_version_holds_no_more_of_a_resource_than_the_result_of_a_call_that_reads_it(lease: Lease) -> None:
    token = f"ghp_{'A' * 36}"
    await asyncio.to_thread(RedactionRule.objects.create, path="$..password", part="result")
    async with watched(lease) as world:
        stream = await world.listening()
        world.says(json.dumps({"password": "hunter2", "token": token, "n": 1}))
        await world.read_again(stream)
        version = await world.newest()
        [item] = json.loads(payloads.read(version.contents) or "")
        assert json.loads(item["text"]) == {"password": MASK, "token": MASK, "n": 1}


async def test_what_differs_only_in_masked_values_is_no_new_version(lease: Lease) -> None:
    await asyncio.to_thread(RedactionRule.objects.create, path="$..password", part="result")
    async with watched(lease) as world:
        stream = await world.listening()
        numbers = []
        for password, number in (("first", 1), ("second", 1), ("third", 2)):
            world.says(json.dumps({"password": password, "n": number}))
            numbers.append((await world.read_again(stream)).newest)
        assert numbers == [2, 2, 3]
