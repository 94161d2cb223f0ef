"""People at browsers: a socket that reconnects, what it received, and the calls that it requested."""

import asyncio
import contextlib
import json
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import websockets

from tests.faults.plant import Plant
from tests.sessions.live.site import Browser
from tests.tools.shared_tls import SHARED_TLS

ANSWER_SECONDS = 60.0
BACK_SECONDS = 1.0
_LOST = (OSError, websockets.WebSocketException, httpx.HTTPError, TimeoutError, KeyError)


class Gone(Exception):
    """The socket broke before the reply arrived, so it is unknown whether the request did."""


class Person:
    """One tab. `feeds` names its topics. `seqs` holds what it received, in the order of arrival."""

    def __init__(self, browser: Browser, http: httpx.AsyncClient, *feeds: str, seed: int = 0) -> None:
        self._browser, self._http = browser, http
        self._cursors: dict[str, int | None] = dict.fromkeys(feeds, 0)
        self._dice = random.Random(seed)
        self._refs = 0
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ends: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._connection: Any = None
        self.welcomed = asyncio.Event()
        self.seqs: dict[str, list[int]] = defaultdict(list)
        self.rows: list[dict[str, Any]] = []
        self.keeps_rows = False
        self.connects = 0
        self.strange: list[dict[str, Any]] = []

    async def live(self) -> None:
        """Connect, listen, and reconnect after a loss, until cancelled."""
        while True:
            try:
                await self._one_connection()
            except _LOST:
                pass
            finally:
                self.welcomed.clear()
                self._lose()
            await asyncio.sleep(self._dice.uniform(0, BACK_SECONDS))

    async def _one_connection(self) -> None:
        ticket = await self._ticket()
        async with self._browser.dial(open_timeout=20, ping_interval=None) as self._connection:
            await self._say(op="hello", ticket=ticket, v=1)
            async for text in self._connection:
                await self._hear(json.loads(text))

    async def _ticket(self) -> str:
        site = self._browser.site
        cookie = self._browser.cookie
        headers = {"Cookie": cookie, "X-CSRFToken": cookie.rpartition("=")[2], "Origin": site.origin}
        answer = await self._http.post(f"{site.origin}/live/ticket/", headers=headers)
        return str(answer.json()["ticket"]) if answer.status_code == 200 else self._refused(answer)

    def _refused(self, answer: httpx.Response) -> str:
        raise KeyError(f"no ticket: {answer.status_code}")

    async def _hear(self, frame: dict[str, Any]) -> None:
        if frame.get("op") == "welcome":
            self.connects += 1
            if topics := self._cursors | dict.fromkeys(f"call.{uid}" for uid in self._ends):
                await self._say(op="sub", topics=topics)
            self.welcomed.set()
        elif (asked := self._asked.pop(frame.get("ref", 0), None)) is not None:
            asked.set_result(frame)
        elif (topic := frame.get("t", "")) in self._cursors:
            self._fed(topic, frame)
        elif topic.startswith("call."):
            self._call_moved(topic.removeprefix("call."), frame)

    def _fed(self, topic: str, frame: dict[str, Any]) -> None:
        rows = frame.get("rows") or []
        if frame.get("kind") == "reload" or frame.get("op") == "denied":
            self.strange.append(frame)
        self.seqs[topic] += [row["seq"] for row in rows]
        if self.keeps_rows:
            self.rows += rows
        if rows:
            self._cursors[topic] = rows[-1]["seq"]

    def _call_moved(self, uid: str, frame: dict[str, Any]) -> None:
        last = next((row for row in frame.get("rows") or [] if row.get("final")), None)
        if last is not None and (waiting := self._ends.pop(uid, None)) is not None and not waiting.done():
            waiting.set_result(last)

    def _lose(self) -> None:
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(Gone())
        self._asked.clear()

    async def _say(self, **body: Any) -> None:
        await self._connection.send(json.dumps(body))

    # --- calls -------------------------------------------------------------------------------------------------------
    async def ask(self, server: str, effect: str, *, tool: str = "effect", **args: Any) -> dict[str, Any]:
        """Request a call and return the reply: accepted or rejected. Raises Gone."""
        await asyncio.wait_for(self.welcomed.wait(), ANSWER_SECONDS)
        self._refs += 1
        ref, asked = self._refs, asyncio.get_running_loop().create_future()
        self._asked[ref] = asked
        order = {
            "op": "call",
            "server": server,
            "tool": tool,
            "args": {"id": effect, **args},
            "ref": ref,
            "html": False,
        }
        try:
            await self._say(**order)
        except websockets.ConnectionClosed as lost:
            raise Gone from lost
        return await asyncio.wait_for(asked, ANSWER_SECONDS)

    async def end_of(self, uid: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The final row of a call, as this tab receives it."""
        waiting = self._ends.setdefault(uid, asyncio.get_running_loop().create_future())
        with contextlib.suppress(websockets.ConnectionClosed):  # the reconnect subscribes again
            await self._say(op="sub", topics={f"call.{uid}": None})
        last = await asyncio.wait_for(asyncio.shield(waiting), seconds)
        with contextlib.suppress(websockets.ConnectionClosed):  # a socket may have a hundred topics
            await self._say(op="unsub", topics=[f"call.{uid}"])
        return last

    async def call(self, server: str, effect: str, **args: Any) -> dict[str, Any]:
        accepted = await self.ask(server, effect, **args)
        assert accepted["op"] == "accepted", accepted
        return await self.end_of(accepted["call"])

    async def timed_ask(self, server: str, effect: str, **args: Any) -> tuple[float, dict[str, Any]]:
        began = time.monotonic()
        answer = await self.ask(server, effect, **args)
        return time.monotonic() - began, answer

    def heard(self, topic: str) -> int:
        """The newest number received."""
        return self._cursors.get(topic) or 0


@asynccontextmanager
async def people(running: Plant, count: int, *feeds: str, user: str = "ada") -> AsyncIterator[list[Person]]:
    """`count` tabs of one signed-in person, all welcomed."""
    browser = await asyncio.to_thread(running.browser, user)
    limits = httpx.Limits(max_connections=50, max_keepalive_connections=20)
    async with httpx.AsyncClient(timeout=20, trust_env=False, limits=limits, verify=SHARED_TLS) as http:
        tabs = [Person(browser, http, *feeds, seed=seed) for seed in range(count)]
        living = [asyncio.create_task(tab.live()) for tab in tabs]
        try:
            await asyncio.wait_for(asyncio.gather(*(tab.welcomed.wait() for tab in tabs)), 120)
            yield tabs
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)
