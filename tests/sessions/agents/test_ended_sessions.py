"""The stream of a session ends with the session, however that ended."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from sessions import hints
from sessions.agents import agent_sessions
from sessions.models import AgentSession
from tests.sessions.agents.door import Asked, Door, make_listed, token_of
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
