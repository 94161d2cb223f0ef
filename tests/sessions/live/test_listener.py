"""A process receives the messages of its group, outlives Redis, and says when it may have missed some."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessions.hints import listener
from sessions.hints.group_sender import GroupSender, group_channel
from sessions.hints.listener import Listener
from tests.tools.valkey import start, stop


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another process answers
            await asyncio.sleep(0.01)


async def test_a_listener_joins_again_after_redis_was_away_and_survives_what_is_no_message(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REJOIN_SECONDS", 0.02)
    path = tmp_path / "v.sock"
    config = {**settings.CHANNEL_LAYERS["default"]["CONFIG"], "hosts": [f"unix://{path}"]}
    settings.CHANNEL_LAYERS = {"default": {**settings.CHANNEL_LAYERS["default"], "CONFIG": config}}
    received: list[dict[str, Any]] = []
    joined: list[int] = []
    listening = asyncio.create_task(Listener("tests", received.append, lambda: joined.append(1)).run())
    try:
        for times in (1, 2):
            server = start(path)
            try:
                await until(lambda times=times: len(joined) == times)  # type: ignore[misc]  # bound now
                sender = GroupSender()
                sender._publish([("PUBLISH", group_channel("tests"), b"\xc1 is no message")])
                await asyncio.to_thread(sender.send, [("tests", {"type": "hints", "number": times})])
                await until(lambda times=times: len(received) == times)  # type: ignore[misc]  # the same
            finally:
                stop(server)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert [message["number"] for message in received] == [1, 2]
