"""The stream of a session ends with the session, however that ended, and its row goes when nothing needs it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from sessions import hints
from sessions.agents import agent_sessions
from sessions.models import AgentCall, AgentSession
from tests.sessions.agents.door import Asked, Door, make_listed, token_of
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_call, make_session
from tests.sessions.mcp.client.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def token(ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is published reaches the streams of the door."""
    loop = asyncio.get_running_loop()

    def publish(topic: str, *given: Any, **more: Any) -> None:
        loop.call_soon_threadsafe(door.hint, topic)

    monkeypatch.setattr(hints, "publish", publish)
    await door.thread(make_listed, "files")
    return await door.thread(token_of, ada)


async def stream_of(door: Door, token: str, key: str) -> Asked:
    stream = door.get(token, "files", key)
    await until(lambda: stream.status == 200)
    return stream


async def test_a_session_that_gives_way_to_a_newer_one(door: Door, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_sessions, "MOST_SESSIONS", 1)
    stream = await stream_of(door, token, await door.session(token, "files"))
    await door.session(token, "files")
    await stream.ends()
    assert await door.thread(AgentSession.objects.filter(ended_at=None).count) == 1


async def test_a_session_that_its_agent_ends(door: Door, token: str) -> None:
    key = await door.session(token, "files")
    stream = await stream_of(door, token, key)
    ended = door._sent("DELETE", token, "files", b"", {"mcp_session_id": key})
    await ended.ends()
    await stream.ends()
    assert ended.status == 204


async def test_a_session_without_a_request_for_a_day(door: Door, token: str) -> None:
    stream = await stream_of(door, token, await door.session(token, "files"))
    long_ago = timezone.now() - agent_sessions.IDLE - timedelta(seconds=1)
    await door.thread(lambda: AgentSession.objects.update(last_seen_at=long_ago))
    await door.thread(agent_sessions.end_idle)
    await stream.ends()


def test_ended_sessions_are_not_read_when_one_is_opened_or_when_idle_ones_end() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the plan is SQLite's")
    now, rows = timezone.now(), AgentSession.objects
    mine = rows.filter(token_id=1, ended_at=None).order_by("-last_seen_at")
    idle = rows.filter(ended_at=None, last_seen_at__lt=now).order_by()
    for one in (mine, idle):
        assert "agent_sessions_open" in one.explain()
        assert "TEMP B-TREE" not in one.explain()
    over = rows.filter(ended_at__lt=now).order_by("ended_at")
    assert "agent_sessions_ended" in over.explain()
    assert "TEMP B-TREE" not in over.explain()


def test_a_session_that_has_ended_goes_soon_if_it_made_no_call_and_otherwise_after_a_day(ada: Any) -> None:
    session, token, now = make_session(), principal_of(ada).token, timezone.now()
    common = {"server": session.server, "token": token, "revision": "2025-11-25", "created_at": now}

    def made(key: str, ended: timedelta | None, *, called: bool = False) -> None:
        at = now - ended if ended is not None else None
        row = AgentSession.objects.create(key=key, last_seen_at=now, ended_at=at, **common)
        if called:
            AgentCall.objects.create(call=make_call(session), session=row, token=token, request_id=key)

    minute, day = timedelta(minutes=1), timedelta(days=1)
    made("open", None)
    made("just ended", 9 * minute)
    made("unused", 11 * minute)
    made("used", 11 * minute, called=True)
    made("used long ago", day + minute, called=True)
    for number in range(50):
        made(f"unused {number}", 20 * minute)
    assert agent_sessions.end_idle() == 52
    assert set(AgentSession.objects.values_list("key", flat=True)) == {"open", "just ended", "used"}
