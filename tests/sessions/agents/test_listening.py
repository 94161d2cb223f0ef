"""A stream that stays open, and what ends a request, take no place among the requests in flight. A stream ends with the
access token that opened it."""

import asyncio
import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from servers.agents import tokens
from servers.agents.addresses import address_of
from servers.agents.tokens import principal_of
from servers.enums import AuditAction, OAuthClientKind, PolicyEffect, PolicyKind
from servers.models import (
    AgentPolicy,
    AgentRule,
    AgentToken,
    AuditEvent,
    Definition,
    OAuthClient,
    OAuthToken,
    Server,
)
from sessions import hints
from sessions.agents import changes, follows, stream_reads
from sessions.agents.policy import counting, policy_check
from sessions.models import AgentFollow, AgentSession, Subscription
from tests.servers.conftest import person
from tests.sessions.agents.door import LEGACY, Asked, Door, make_listed, token_of
from tests.sessions.subscriptions.rows import make_subscription

pytestmark = pytest.mark.django_db(transaction=True)


def token_with_one_in_flight(user: Any) -> str:
    make_listed("files")
    text = token_of(user)
    AgentPolicy.objects.create(token=principal_of(text, "").token, calls_in_flight=1)
    return text


def access_token(user: Any, seconds: float) -> str:
    """A token from a grant that lasts a week."""
    now, server = timezone.now(), make_listed("files").server
    grant = AgentToken.objects.create(
        public_id=tokens.new_public_id(),
        digest="0" * 64,
        user=user,
        name="Program",
        client=OAuthClient.objects.create(kind=OAuthClientKind.REGISTERED, client_id="program", redirect_uris=["x:y"]),
        resource=address_of("files"),
        scopes=["mcp:list"],
        expires_at=now + timedelta(days=7),
    )
    grant.servers.set([server])
    text = f"{tokens.ACCESS_PREFIX}_{grant.public_id}_{'s' * 43}"
    end = now + timedelta(seconds=seconds)
    OAuthToken.objects.create(digest=tokens.digest(text), grant=grant, refresh=False, expires_at=end)
    return text


async def listens(door: Door, token: str, slug: str = "files", **notifications: Any) -> Asked:
    """Until it is acknowledged."""
    asked = {"notifications": notifications or {"toolsListChanged": True}}
    listening = door.modern(token, slug, "subscriptions/listen", asked)
    async with asyncio.timeout(30):
        while b"acknowledged" not in listening.sent:  # noqa: ASYNC110 - it comes when the application has it
            await asyncio.sleep(0.01)
    return listening


async def test_a_stream_ends_with_the_access_token_that_opened_it_though_the_grant_goes_on(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "next_check", lambda now: now + 0.05)
    listening = await listens(door, await door.thread(access_token, ada, 3.0))
    async with asyncio.timeout(10):
        assert (await listening.response())["result"]["resultType"] == "complete"


async def test_a_revoked_token_ends_its_streams_within_five_seconds_although_the_hint_is_lost(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream_reads.CHECK_SECONDS <= 5
    monkeypatch.setattr(stream_reads, "CHECK_SECONDS", 0.2)

    def listed_token() -> str:
        make_listed("files")
        return token_of(ada)

    listening = await listens(door, await door.thread(listed_token))
    await door.thread(AgentToken.objects.update, revoked_at=timezone.now())
    async with asyncio.timeout(10):
        assert (await listening.response())["result"]["resultType"] == "complete"


async def test_who_listens_may_ask_as_much_as_before(ada: Any, door: Door) -> None:
    token = await door.thread(token_with_one_in_flight, ada)
    listening = await listens(door, token)
    asked = door.modern(token, "files", "tools/list", id=2)
    assert "result" in await asked.response()
    assert listening.open
    listening.leaves()
    await listening.ends()


def acknowledged(listening: Asked) -> Any:
    """What it follows."""
    [line] = [line for line in listening.sent.decode().splitlines() if "acknowledged" in line]
    return json.loads(line.removeprefix("data: "))["params"]["notifications"]


async def test_a_token_for_reading_follows_resources_and_no_lists(ada: Any, door: Door) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada, "read")
    listening = await listens(door, token, toolsListChanged=True, resourceSubscriptions=["note://one"])
    assert acknowledged(listening) == {"resourceSubscriptions": ["note://one"]}
    listening.leaves()
    await listening.ends()


@pytest.mark.parametrize(
    ("scope", "notifications"),
    [("read", {"toolsListChanged": True}), ("call", {"resourceSubscriptions": ["note://one"]})],
)
async def test_who_may_follow_nothing_of_what_it_asks_is_told_the_scope(
    ada: Any, door: Door, scope: str, notifications: dict[str, Any]
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada, scope)
    refused = door.modern(token, "files", "subscriptions/listen", {"notifications": notifications})
    assert (await refused.response())["error"]["data"] == {"requiredScope": "mcp:list"}
    assert refused.status == 403


@pytest.mark.parametrize("place", ["token", "endpoint"])
async def test_a_full_token_or_endpoint_takes_cancellations_and_answers(ada: Any, door: Door, place: str) -> None:
    """They make room."""
    token = await door.thread(token_with_one_in_flight, ada)
    if place == "endpoint":
        policies = AgentPolicy.objects
        await door.thread(policies.update, token=None, server=await door.thread(Server.objects.get))
        policy_check.memory.forget()
    key = await door.session(token, "files")
    call = {"name": "echo", "arguments": {}}
    first = door.legacy(token, "files", key, "tools/call", call, id=1)
    uid = await door.viewed()
    another = door.legacy(token, "files", key, "tools/call", call, id=2)
    assert (await another.response())["id"] == 2
    assert another.status == 429
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    for message in ({"jsonrpc": "2.0", "id": "question:x", "result": {}}, cancelled):
        told = door.post(token, "files", message, mcp_session_id=key, mcp_protocol_version=LEGACY)
        await told.ends()
        assert told.status == 202
    door.hint(f"call.{uid}")
    await first.ends()


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_a_program_that_keeps_asking_for_a_session_that_has_ended_meets_the_limit_of_requests(
    ada: Any, door: Door, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "time", SimpleNamespace(time=lambda: 600.0, monotonic=time.monotonic))

    def slow_token() -> str:
        make_listed("files")
        text = token_of(ada)
        AgentPolicy.objects.create(token=principal_of(text, "").token, requests_per_second=1)
        return text

    token = await door.thread(slow_token)
    headers, statuses = {"mcp_session_id": "ended", "accept": "text/event-stream"}, []
    for _ in range(int(counting.BURST_SECONDS) + 1):
        asked = door._sent(verb, token, "files", b"", headers)
        await asked.ends()
        statuses.append(asked.status)
    assert statuses == [404] * int(counting.BURST_SECONDS) + [429]


async def test_a_person_who_may_follow_nothing_is_refused_once_however_many_resources_are_listed(
    ada: Any, door: Door
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(lambda: token_of(person("ann", "view_server", "call_tool")))
    listening = await listens(door, token, toolsListChanged=True, resourceSubscriptions=[f"x://{n}" for n in range(50)])
    assert acknowledged(listening) == {"toolsListChanged": True}
    refused = AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY)
    assert await door.thread(refused.count) == 1
    listening.leaves()
    await listening.ends()


async def test_following_what_a_rule_denies_is_recorded(ada: Any, door: Door) -> None:
    session = await door.thread(make_listed, "files")

    def deny() -> None:
        policy = AgentPolicy.objects.create(server=session.server)
        AgentRule.objects.create(policy=policy, kind=PolicyKind.RESOURCE, pattern="x://*", effect=PolicyEffect.DENY)
        policy_check.memory.forget()

    await door.thread(deny)
    listening = await listens(
        door, await door.thread(token_of, ada), toolsListChanged=True, resourceSubscriptions=["x://1"]
    )
    assert acknowledged(listening) == {"toolsListChanged": True}
    event = await door.thread(AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY).get)
    assert (event.subject, event.actor_name, event.way) == ("x://1", "ada", "agent")
    listening.leaves()
    await listening.ends()


@pytest.mark.parametrize("lost", ["list", "policy", "update", "visit"])
async def test_a_stream_stays_open_while_the_database_is_away_and_then_tells_what_changed_meanwhile(
    ada: Any, door: Door, lost: str
) -> None:
    session = await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files", elicitation={"url": {}})
    asked = door.legacy(token, "files", key, "tools/call", {"name": "echo", "arguments": {}})
    call = await door.viewed()
    asked.leaves()
    await asked.ends()
    followed = await door.thread(make_subscription, session, "note://one")

    def changes_now() -> None:
        row = Definition.objects.get()
        row.pk, row.key, row.position = None, "another", 1
        row.save()
        Subscription.objects.update(event_count=1)

    def follow() -> None:
        mine = AgentSession.objects.get(key=key)
        AgentFollow.objects.create(session=mine, subscription=followed, uri=followed.uri, renewed_at=timezone.now())

    await door.thread(follow)
    stream = door.get(token, "files", key)
    async with asyncio.timeout(30):
        while not stream.sent:  # noqa: ASYNC110 - it comes when the application has it
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # it has looked at what it follows
    await door.thread(changes_now)
    door.database.problem = OperationalError("the database system is shutting down")
    server = f"server.{session.server.uid}"
    topic, told = {
        "list": (server, b"tools/list_changed"),
        "policy": (hints.POLICIES, b"tools/list_changed"),
        "update": (f"subscription.{followed.uid}", b"note://one"),
        "visit": (server, b"order-7"),
    }[lost]
    rows = [{"elicitation": "order-7", "call": str(call)}]
    door.hub._received({"t": topic, "seq": None, "kind": "visit" if lost == "visit" else "changed", "rows": rows})
    await asyncio.wait_for(door.database.refused.wait(), 30)
    await asyncio.sleep(0.3)
    assert stream.open
    door.database.problem = None
    async with asyncio.timeout(30):
        while told not in stream.sent and stream.open:  # noqa: ASYNC110 - it comes when the application has it
            await asyncio.sleep(0.01)
    assert stream.open
    assert b"error" not in stream.sent
    stream.leaves()
    await stream.ends()


async def test_a_stream_whose_agent_leaves_while_the_database_is_away_ends_without_an_error(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise OperationalError("the database system is shutting down")

    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    stream = door.get(token, "files", await door.session(token, "files"))
    async with asyncio.timeout(30):
        while not stream.sent:  # noqa: ASYNC110 - it comes when the application has it
            await asyncio.sleep(0.01)
    monkeypatch.setattr(follows, "stands_no_more", refuse)
    stream.leaves()
    await stream.ends()
    assert b"error" not in stream.sent
