"""Calls, the feed and the audit chain also work on PostgreSQL, and end with it as little as they can."""

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.sessions.agents.door import LEGACY, META, MODERN
from tests.sessions.live.site import Site
from tests.tools.postgres import away, cluster
from tests.tools.shared_tls import SHARED_TLS

PERMISSIONS = ["view_server", "call_tool", "view_payload", "view_auditevent"]


async def test_calls_feed_and_chain_work_on_postgresql(postgres_url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="live-pg-") as directory:
        site = await asyncio.to_thread(Site, Path(directory), DATABASE_URL=postgres_url)
        try:
            await _walk(site)
        finally:
            site.stop()


async def _walk(site: Site) -> None:
    site.do("user", "ada", PERMISSIONS)
    server = site.do("server", f"s-{uuid.uuid4().hex[:8]}")
    site.do("worker_holds", server)
    start = site.do("newest")
    async with site.browser("ada").tab() as tab:
        await tab.sub("audit", start)
        placed = [await tab.ask(op="call", server=server, tool="echo", args={"text": "x"}) for _ in range(5)]
        assert {answer["op"] for answer in placed} == {"accepted"}, placed
        assert (await tab.ask(op="cancel", call=placed[0]["call"]))["op"] == "cancelling"
        end = site.do("record", 3)
        if tab.seqs("audit")[-1:] != [end]:
            await tab.hear(lambda message: message.get("t") == "audit" and message.get("seq") == end)
        assert tab.seqs("audit") == list(range(start + 1, end + 1))
        await tab.sub(placed[1]["topic"])
        site.do("finish", placed[1]["call"], {"content": []})
        await tab.hear(lambda message: message.get("kind") == "call" and message["rows"][0].get("final"))
    assert site.do("chain_is_whole")


async def test_an_outage_is_reported_at_once_and_its_end_is_noticed_soon() -> None:
    with cluster() as url, tempfile.TemporaryDirectory(prefix="live-pg-") as directory:
        site = await asyncio.to_thread(Site, Path(directory), DATABASE_URL=url)
        try:
            await _bear_an_outage(site, url)
        finally:
            site.stop()


async def _bear_an_outage(site: Site, url: str) -> None:
    site.do("user", "ada", PERMISSIONS)
    server = site.do("server", "files")
    site.do("worker_holds", server)
    site.do("lists_are_read", server)
    agent = Agent(site, site.do("token", "ada"), "files")
    first = await agent.hello()
    assert first.status_code == 200, first.text
    async with agent.waits() as stream:
        with away(url):
            began = time.monotonic()
            for _ in range(2):  # those whose connection broke, and those who find none
                told = await asyncio.gather(*(agent.hello() for _ in range(10)))
                assert {(one.status_code, one.headers.get("retry-after")) for one in told} == {(503, "2")}
            assert time.monotonic() - began < 10
            async with asyncio.timeout(25):
                await anext(stream)  # a sign of life
            while time.monotonic() < began + 20:
                await agent.hello()
        began = time.monotonic()
        while (await agent.hello()).status_code != 200:  # noqa: ASYNC110 - the site answers it
            await asyncio.sleep(0.1)
        assert time.monotonic() - began < 6


class Agent:
    def __init__(self, site: Site, token: str, slug: str) -> None:
        self._address = f"{site.origin}/mcp/{slug}"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def hello(self) -> httpx.Response:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers = self._headers | {"Accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(timeout=30, verify=SHARED_TLS) as client:
            return await client.post(self._address, json=body, headers=headers)

    @asynccontextmanager
    async def waits(self) -> AsyncIterator[AsyncIterator[str]]:
        """With a call that goes on. Gives the lines of its stream, the first of which have come."""
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        params: dict[str, Any] = {"name": "echo", "arguments": {"text": "x"}, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        named = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        headers = self._headers | named | {"Accept": "application/json, text/event-stream"}
        async with (
            httpx.AsyncClient(timeout=60, verify=SHARED_TLS) as client,
            client.stream("POST", self._address, json=body, headers=headers) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            while await anext(lines):
                pass
            yield lines
