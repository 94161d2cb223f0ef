"""A process receives the messages of its group, outlives Redis, and says when it may have missed some."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessions.hints import listener
from sessions.hints.group_sender import GroupSender, group_channel
from sessions.hints.listener import Listener
from sessions.hints.outage import Outage
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


async def test_a_listener_outlives_an_outage_that_no_thread_can_follow(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REJOIN_SECONDS", 0.02)
    monkeypatch.setattr(listener, "outage", Outage())
    tried, start_thread = list[str](), threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "redis-outage":
            tried.append(thread.name)
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    path = tmp_path / "v.sock"
    config = {**settings.CHANNEL_LAYERS["default"]["CONFIG"], "hosts": [f"unix://{path}"]}
    settings.CHANNEL_LAYERS = {"default": {**settings.CHANNEL_LAYERS["default"], "CONFIG": config}}
    joined: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refused)
    listening = asyncio.create_task(Listener("tests", lambda _: None, lambda: joined.append(1)).run())
    server = None
    try:
        await until(lambda: len(tried) >= 2 or listening.done())
        server = await asyncio.to_thread(start, path)
        await until(lambda: joined or listening.done())
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if server is not None:
            stop(server)
    assert joined


@dataclass
class Scripted:
    """What a listener takes for Redis. While `present` is false it is silent towards those who have subscribed."""

    present: bool
    subscriptions: int = 0
    pings: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subscribed = False
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            if words[0] == b"SUBSCRIBE":
                subscribed = True
                self.subscriptions += 1
                for number, channel in enumerate(words[1:], 1):
                    writer.write(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n" % (len(channel), channel, number))
            elif words[0] == b"HELLO":
                writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            elif words[0] != b"PING":
                writer.write(b"+OK\r\n")
            elif not subscribed:
                writer.write(b"+PONG\r\n")
            elif self.present:
                self.pings += 1
                writer.write(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n")
        writer.close()


@asynccontextmanager
async def listening_to(redis: Scripted, settings: Any) -> AsyncIterator[None]:
    async with await asyncio.start_server(redis.serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        config = {**settings.CHANNEL_LAYERS["default"]["CONFIG"], "hosts": [f"redis://127.0.0.1:{port}"]}
        settings.CHANNEL_LAYERS = {"default": {**settings.CHANNEL_LAYERS["default"], "CONFIG": config}}
        task = asyncio.create_task(Listener("tests", lambda _: None, lambda: None).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(listener, "REJOIN_SECONDS", 0.01)


async def test_a_listener_joins_again_when_redis_is_gone_without_a_word(
    settings: Any, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setattr(listener, "JOIN_SECONDS", 0.2)
    redis = Scripted(present=False)
    async with listening_to(redis, settings):
        await until(lambda: redis.subscriptions == 3)


async def test_a_listener_stays_with_a_redis_that_has_nothing_to_say(settings: Any, impatient: None) -> None:
    redis = Scripted(present=True)
    async with listening_to(redis, settings):
        await until(lambda: redis.pings == 5)
    assert redis.subscriptions == 1
