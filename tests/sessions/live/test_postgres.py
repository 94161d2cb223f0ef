"""Calls, the feed and the audit chain also work on PostgreSQL."""

import asyncio
import tempfile
import uuid
from pathlib import Path

from tests.sessions.live.site import Site

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
