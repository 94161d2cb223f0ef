"""A client with the scripted task server, in both eras over stdio and HTTP."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.client import Answer, InputRequest
from sessions.mcp.core.tasks import EXTENSION, TaskOptions
from sessions.mcp.transports.registry import StdioSpec
from tests.sessions.mcp.client.task_server import TaskServer, over_http
from tests.sessions.mcp.transports.making import FlowSecrets, connected, http
from tests.sessions.mcp.transports.scripted_http import scripted_http

SERVER = str(Path(__file__).with_name("task_server.py"))
DECLARED = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}


@dataclass
class Setting:
    made: FlowSecrets
    era: str
    transport: str

    async def seen(self, method: str) -> list[dict[str, Any]]:
        """The messages of this method that the server has received, as it reports them."""
        result = await self.made.client.call_tool("seen", {}, task=TaskOptions(support="forbidden"))
        return [message for message in json.loads(result.content[0]["text"]) if message.get("method") == method]


async def answer(asked: InputRequest) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"v": "blue"}}


@asynccontextmanager
async def setting(
    era: str, transport: str, *, poll: int = 100, answers: Answer = answer, server: TaskServer | None = None
) -> AsyncIterator[Setting]:
    more: dict[str, Any] = {"capabilities": DECLARED, "answers": {"elicitation/create": answers}}
    if transport == "stdio":
        async with connected(StdioSpec(sys.executable, (SERVER, era, str(poll))), **more) as made:
            yield Setting(made, era, transport)
    else:
        served = over_http(server or TaskServer(era, poll=poll))
        async with scripted_http(served) as peer, connected(http(peer.url), **more) as made:
            yield Setting(made, era, transport)


EVERYWHERE = [(era, transport) for era in ("legacy", "modern") for transport in ("stdio", "http")]


@pytest.fixture(params=EVERYWHERE, ids=lambda param: "-".join(param))
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    async with setting(*request.param) as made:
        yield made


def text(result: Any) -> Any:
    return json.loads(result.content[0]["text"])


async def until_seen(here: Setting, method: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while True:
            if found := await here.seen(method):
                return found
            await asyncio.sleep(0.02)
