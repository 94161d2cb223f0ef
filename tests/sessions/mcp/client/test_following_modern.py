"""The listen stream of a modern session, against a scripted HTTP peer: what is requested, acknowledged, lost and
requested again."""

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sessions.mcp.client import listening
from sessions.mcp.client.client import Client
from sessions.mcp.core.backoff import Backoff
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.events import (
    EventsDropped,
    Following,
    FollowingLost,
    ListChanged,
    ListKind,
    OtherNotification,
    ProtocolViolation,
    ResourceUpdated,
)
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.tasks import EXTENSION
from sessions.mcp.transports.egress import socket_factory
from tests.sessions.mcp.transports.making import LOCAL, FlowSecrets, connected, http

from .feeds import EVERYTHING, Feeds, feeding
from .waiting import until

pytestmark = pytest.mark.integration

A, B, C = "note://a", "note://b", "note://c"


def listen_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "mcp listen"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the random delay, up to a second and more, before listening again, and the time that a replaced stream stays
    open."""
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 0.0)
    monkeypatch.setattr(listening, "_OVERLAP", 0.0)


async def followed(made: FlowSecrets, feeds: Feeds, **wanted: Any) -> Any:
    """The stream of `follow(**wanted)`, acknowledged in full."""
    asking = asyncio.create_task(made.client.follow(**wanted))
    stream = await feeds.next()
    await asking
    return stream


async def test_what_is_wanted_is_asked_for_and_what_was_agreed_comes_back() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        asking = asyncio.create_task(made.client.follow({A, B}, {ListKind.TOOLS, ListKind.RESOURCE_TEMPLATES}))
        stream = await feeds.next(acknowledge=False)
        assert stream.wished == {
            "toolsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": [A, B],
        }
        assert stream.asked.headers["mcp-method"] == "subscriptions/listen"
        await stream.acknowledge({"resourceSubscriptions": [A], "toolsListChanged": True})
        honoured = await asking
        assert (honoured.resources, honoured.lists, honoured.tasks) == ({A}, {ListKind.TOOLS}, set())
        assert honoured.refused.keys() == {B, ListKind.RESOURCE_TEMPLATES}
        assert [event.honoured for event in made.of(Following)] == [honoured]


async def test_changes_reach_the_owner_as_they_do_in_the_legacy_era() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        stream = await followed(made, feeds, resources=[A], lists=list(ListKind))
        await stream.notify("resources/updated", uri=A)
        for kind in ("tools", "prompts", "resources"):
            await stream.notify(f"{kind}/list_changed")
        await until(lambda: len(made.of(ListChanged)) == 3)
        assert made.of(ResourceUpdated) == [ResourceUpdated(A)]
        assert [event.kind for event in made.of(ListChanged)] == ["tools", "prompts", "resources"]


async def test_an_idle_stream_has_one_task_and_no_deadline() -> None:
    """The request time-out covers only the acknowledgement; silence afterwards is not a fault."""
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url), timeouts=Timeouts(request=0.2)) as made:
        stream = await followed(made, feeds, resources=[A])
        assert len(listen_tasks()) == 1
        await asyncio.sleep(0.6)
        assert not made.of(FollowingLost)
        await stream.notify("resources/updated", uri=A)
        await until(lambda: made.of(ResourceUpdated))


async def test_an_acknowledgement_that_never_comes_is_an_error_and_the_stream_is_closed() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url), timeouts=Timeouts(request=0.2)) as made:
        with pytest.raises(McpError) as caught:
            await made.client.follow([A])
        assert caught.value.fault is Fault.TIMEOUT
        stream = await feeds.next(acknowledge=False)
        await asyncio.wait_for(stream.gone.wait(), 30)
        assert (made.client.in_flight, listen_tasks()) == (0, [])


async def test_a_wait_for_an_acknowledgement_that_is_cancelled_closes_the_stream() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        asking = asyncio.create_task(made.client.follow([A]))
        stream = await feeds.next(acknowledge=False)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.wait_for(stream.gone.wait(), 30)
        assert (made.client.in_flight, listen_tasks()) == (0, [])


async def test_a_new_set_is_acknowledged_before_the_stream_of_the_old_one_is_closed() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        old = await followed(made, feeds, resources=[A])
        asking = asyncio.create_task(made.client.follow([A, B]))
        new = await feeds.next(acknowledge=False)
        await old.notify("resources/updated", uri=A)
        await until(lambda: made.of(ResourceUpdated))
        assert not old.gone.is_set()
        await new.acknowledge()
        assert (await asking).resources == {A, B}
        await asyncio.wait_for(old.gone.wait(), 30)
        await new.notify("resources/updated", uri=B)
        await until(lambda: ResourceUpdated(B) in made.events)
        assert (made.client.in_flight, len(listen_tasks())) == (1, 1)
        assert not made.of(FollowingLost)


async def test_what_the_old_stream_brings_after_the_new_one_was_acknowledged_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 60.0)
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        old = await followed(made, feeds, resources=[A])
        await followed(made, feeds, resources=[A, B])
        await old.notify("resources/updated", uri=A)
        await until(lambda: made.of(ResourceUpdated) == [ResourceUpdated(A)])
        await followed(made, feeds, resources=[B])
        await asyncio.wait_for(old.gone.wait(), 30)
        assert len(listen_tasks()) == 2, "only the stream of the set before is kept"
        await made.client.follow()
        assert (made.client.in_flight, listen_tasks(), made.of(FollowingLost)) == (0, [], [])


@pytest.mark.parametrize("end", ["drop", "finish"])
async def test_an_old_stream_that_the_server_ends_is_no_loss_and_not_opened_again(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 60.0)
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        old = await followed(made, feeds, resources=[A])
        await followed(made, feeds, resources=[A, B])
        done = getattr(old, end)()
        if done is not None:
            await done
        await until(lambda: len(listen_tasks()) == 1)
        assert (feeds.peer.count("subscriptions/listen"), made.of(FollowingLost)) == (2, [])


async def test_a_lost_stream_that_waits_to_be_opened_again_is_not_when_a_new_set_replaced_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 60.0)
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 60.0)
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        old = await followed(made, feeds, resources=[A])
        old.drop()
        await until(lambda: made.of(FollowingLost))
        await followed(made, feeds, resources=[A, B])
        await until(lambda: len(listen_tasks()) == 1)
        assert feeds.peer.count("subscriptions/listen") == 2


async def test_a_new_set_that_cannot_be_asked_for_leaves_the_old_one_followed() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        old = await followed(made, feeds, resources=[A])
        asking = asyncio.create_task(made.client.follow([B]))
        (await feeds.next(acknowledge=False)).drop()
        with pytest.raises(McpError):
            await asking
        await old.notify("resources/updated", uri=A)
        await until(lambda: made.of(ResourceUpdated))
        assert len(listen_tasks()) == 1


async def test_wanting_nothing_closes_the_stream() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        stream = await followed(made, feeds, resources=[A])
        assert not (await made.client.follow()).resources
        await asyncio.wait_for(stream.gone.wait(), 30)
        assert (made.client.in_flight, listen_tasks()) == (0, [])


@pytest.mark.parametrize("end", ["drop", "finish", "cancel"])
async def test_a_stream_that_ends_is_reported_and_opened_again_under_a_new_id(end: str) -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        first = await followed(made, feeds, resources=[A], lists=[ListKind.TOOLS])
        done = getattr(first, end)()
        if done is not None:
            await done
        second = await feeds.next()
        assert second.wished == first.wished
        assert second.asked.id != first.asked.id
        await until(lambda: len(made.of(Following)) == 2)
        kinds = [type(event) for event in made.events if type(event) in (Following, FollowingLost)]
        assert kinds == [Following, FollowingLost, Following]
        assert made.of(FollowingLost)[0].retried
        await second.notify("resources/updated", uri=A)
        await until(lambda: made.of(ResourceUpdated))
        assert (made.client.in_flight, len(listen_tasks())) == (1, 1)


async def test_many_losses_are_reported_once_until_it_works_again() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        first = await followed(made, feeds, resources=[A])
        feeds.refusals = [(-32603, 200)] * 3
        first.drop()
        await feeds.next()
        await until(lambda: len(made.of(Following)) == 2)
        assert len(made.of(FollowingLost)) == 1


@pytest.mark.parametrize("refusal", [(-32601, 404), (-32601, 200), (-32602, 400)])
async def test_a_server_without_subscriptions_is_no_error_and_not_asked_again(refusal: tuple[int, int]) -> None:
    feeds = Feeds()
    feeds.refusals = [refusal] * 5
    async with feeding(feeds) as url, connected(http(url)) as made:
        honoured = await made.client.follow([A], [ListKind.TOOLS])
        assert (honoured.resources, honoured.lists) == (set(), set())
        assert honoured.refused.keys() == {A, ListKind.TOOLS}
        assert f"error {refusal[0]}" in honoured.refused[A]
        await until(lambda: not listen_tasks())
        assert feeds.peer.count("subscriptions/listen") == 1


async def test_a_server_that_forgets_how_to_listen_is_given_up_with_its_words() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        first = await followed(made, feeds, resources=[A])
        feeds.refusals = [(-32601, 404)] * 5
        await first.finish()
        await until(lambda: not listen_tasks())
        assert [event.retried for event in made.of(FollowingLost)] == [True, False]
        assert "error -32601" in made.of(FollowingLost)[1].reason


async def test_a_server_that_is_full_is_asked_again_until_it_agrees() -> None:
    feeds = Feeds()
    feeds.refusals = [(-32603, 200)] * 2
    async with feeding(feeds) as url, connected(http(url)) as made:
        honoured = await made.client.follow([A])
        assert "error -32603" in honoured.refused[A]
        await feeds.next()
        await until(lambda: made.of(Following))
        assert made.of(Following)[0].honoured.resources == {A}


async def test_what_is_not_declared_is_not_asked_for_and_says_why() -> None:
    feeds = Feeds({"tools": {}, "resources": {"listChanged": True}})
    async with feeding(feeds) as url, connected(http(url)) as made:
        asking = asyncio.create_task(made.client.follow([A], [ListKind.TOOLS, ListKind.RESOURCES], ["task-1"]))
        stream = await feeds.next()
        assert stream.wished == {"resourcesListChanged": True}
        honoured = await asking
        assert honoured.lists == {ListKind.RESOURCES}
        assert honoured.refused.keys() == {A, ListKind.TOOLS, "task-1"}
        assert "does not offer subscriptions to resources" in honoured.refused[A]


async def test_tasks_are_followed_where_both_sides_know_the_extension() -> None:
    known = {"extensions": {EXTENSION: {}}}
    feeds = Feeds(EVERYTHING | known)
    async with feeding(feeds) as url, connected(http(url), capabilities=known) as made:
        asking = asyncio.create_task(made.client.follow(tasks=["t1", "t2"]))
        stream = await feeds.next(acknowledge=False)
        assert stream.wished == {"taskIds": ["t1", "t2"]}
        await stream.acknowledge({"taskIds": ["t2"]})
        honoured = await asking
        assert (honoured.tasks, honoured.refused.keys()) == ({"t2"}, {"t1"})
        await stream.notify("tasks", taskId="t2", status="working")
        await until(lambda: made.of(OtherNotification))
        assert made.of(OtherNotification)[0].params["taskId"] == "t2"


async def test_nothing_declared_means_that_no_request_is_made() -> None:
    feeds = Feeds({"tools": {}})
    async with feeding(feeds) as url, connected(http(url)) as made:
        assert (await made.client.follow([A], [ListKind.TOOLS])).refused.keys() == {A, ListKind.TOOLS}
        assert feeds.peer.count("subscriptions/listen") == 0


async def test_messages_of_other_subscriptions_are_ignored_and_counted() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        stream = await followed(made, feeds, resources=[A])
        for foreign in ("listen-0", 1, [], {"a": 1}, "sub-1"):
            await stream.notify("resources/updated", of=foreign, uri=A)
            await stream.notify("subscriptions/acknowledged", of=foreign, notifications={})
        await stream.notify("resources/updated", uri=B)
        await until(lambda: made.of(ResourceUpdated))
        assert made.of(ResourceUpdated) == [ResourceUpdated(B)]
        assert made.client.late_notifications == 10
        assert len(made.of(Following)) == 1


async def test_a_second_acknowledgement_is_a_violation_and_changes_nothing() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        stream = await followed(made, feeds, resources=[A])
        await stream.acknowledge({})
        await until(lambda: made.of(ProtocolViolation))
        assert len(made.of(Following)) == 1


async def test_a_flood_is_cut_but_following_and_its_loss_are_always_reported() -> None:
    feeds = Feeds()
    few = Limits(events_per_second=1, events_burst=5)
    async with feeding(feeds) as url, connected(http(url, limits=few), limits=few) as made:
        stream = await followed(made, feeds, resources=[A])
        for _ in range(200):
            await stream.notify("resources/updated", uri=A)
        await stream.finish()
        await feeds.next()
        await until(lambda: len(made.of(Following)) == 2)
        assert len(made.of(FollowingLost)) == 1
        assert len(made.of(ResourceUpdated)) < 200
        assert sum(event.count for event in made.of(EventsDropped)) >= 190


async def test_losses_in_a_row_are_waited_out_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def delay(self: Backoff, retry_after: float | None = None) -> float:
        seen.append(self.attempts)
        self.attempts += 1
        return 0.0

    monkeypatch.setattr(Backoff, "delay", delay)
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        stream = await followed(made, feeds, resources=[A])
        for _ in range(3):
            await stream.finish()
            stream = await feeds.next()
        assert seen == [0, 1, 2]
        monkeypatch.setattr(listening, "_STEADY", 0.0)
        await until(lambda: len(made.of(Following)) == 4)
        await stream.finish()
        await feeds.next()
        assert seen == [0, 1, 2, 0]


async def test_a_server_that_cannot_be_reached_any_more_ends_the_session_and_the_listening() -> None:
    feeds = Feeds()
    async with AsyncExitStack() as server:
        url = await server.enter_async_context(feeding(feeds))
        async with connected(http(url)) as made:
            await followed(made, feeds, resources=[A])
            await server.aclose()
            reason = await asyncio.wait_for(made.client.closed, 30)
            assert reason is not None
            await until(lambda: not listen_tasks())


async def test_all_subscriptions_together_have_a_deadline() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url), timeouts=Timeouts(request=60, total=0.2)) as made:
        with pytest.raises(McpError) as caught:
            await made.client.follow([A])
        assert caught.value.fault is Fault.TOTAL_DEADLINE
        assert listen_tasks() == []


async def test_closing_the_client_ends_the_stream_and_its_task() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url:
        async with connected(http(url)) as made:
            stream = await followed(made, feeds, resources=[A])
        await asyncio.wait_for(stream.gone.wait(), 30)
        await until(lambda: not listen_tasks())
        assert not made.of(FollowingLost)


async def test_closing_while_an_acknowledgement_is_awaited_is_an_error_of_the_waiter() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        asking = asyncio.create_task(made.client.follow([A]))
        await feeds.next(acknowledge=False)
        await made.client.close()
        with pytest.raises(McpError) as caught:
            await asking
        assert caught.value.fault is Fault.CLOSED


async def test_two_sets_wanted_at_once_are_asked_for_one_after_the_other() -> None:
    feeds = Feeds()
    async with feeding(feeds) as url, connected(http(url)) as made:
        asking = [asyncio.create_task(made.client.follow([uri])) for uri in (A, B, C)]
        streams = [await feeds.next() for _ in asking]
        await asyncio.gather(*asking)
        assert [stream.wished["resourceSubscriptions"] for stream in streams] == [[A], [B], [C]]
        await asyncio.wait_for(streams[1].gone.wait(), 30)
        assert (made.client.in_flight, len(listen_tasks())) == (1, 1)


async def test_calls_go_on_beside_the_stream() -> None:
    feeds = Feeds(EVERYTHING)
    feeds.answers["tools/call"] = {"content": [{"type": "text", "text": "ok"}]}
    feeds.answers["tools/list"] = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    async with feeding(feeds) as url, connected(http(url)) as made:
        await followed(made, feeds, resources=[A])
        client: Client = made.client
        results = await asyncio.gather(*(client.call_tool("t", {}) for _ in range(20)))
        assert all(result.content for result in results)


def test_a_peer_that_vanished_without_a_word_is_noticed_by_the_kernel() -> None:
    """An event stream has no deadline, so TCP keepalive probes its connection."""
    opened = socket_factory(LOCAL)((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 80)))
    with opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        silence = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        tries = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert silence + tries * opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) <= 180
