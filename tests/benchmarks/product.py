"""The product as shipped, for a benchmark of the whole path: `up`, five accounts with ten sockets each (the maximum per
account), servers that only echo, and callers that follow each call from the request to its final state.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import orjson
import psutil

from tests.benchmarks.drivers import http_server, stdio_command
from tests.benchmarks.load import TEXT
from tests.e2e.sockets import Visitor, greeted
from tests.tools.stack import ADMIN, Stack

SOCKETS_EACH = 10
ANSWER_SECONDS = 60.0
LEAVE_TOGETHER = 20
PASSWORD = ADMIN[1]


def accounts(product: Stack, count: int) -> list[tuple[str, str]]:
    """Create superusers with one command. Each signs in once."""
    names = [f"bench{number}" for number in range(count)]
    product.shell(
        "from django.contrib.auth import get_user_model\n"
        f"for name in {names!r}: get_user_model().objects.create_superuser(name, password={PASSWORD!r})"
    )
    return [(name, PASSWORD) for name in names]


@contextmanager
def echo_servers(product: Stack) -> Iterator[dict[str, str]]:
    """The uids of a registered stdio server and an HTTP one, both ready with their tool listed."""
    with http_server("legacy") as base:
        common = ["register_server", "--user", ADMIN[0], "--era", "legacy", "--name"]
        product.manage(*common, "Pipes", "--", *stdio_command("legacy"))
        product.manage(*common, "Web", "--url", f"{base}/mcp", "--transport", "streamable_http")
        deadline = time.monotonic() + 60
        while len(product.rows("SELECT DISTINCT server_id FROM servers_definition WHERE key = 'echo'")) < 2:
            assert time.monotonic() < deadline, product.output[-3000:]
            time.sleep(0.2)  # no event reports rows of another process
        listed = "from servers.models import Server; [print(s.slug, s.uid) for s in Server.objects.all()]"
        uids = dict(line.split() for line in product.shell(listed).splitlines() if line.count(" ") == 1)
        yield {"stdio": uids["pipes"], "http": uids["web"]}


class Caller:
    """One socket. One task reads its frames, so that several calls can run at once."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._refs = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._over: list[str] = []
        self.refused = ""

    async def read(self) -> None:
        async for text in self._socket:
            frame = orjson.loads(text)
            if frame.get("followed"):  # the very next frame may already be final
                self._expect(frame["topic"])
            key = frame.get("ref") or frame.get("t")
            final = "ref" in frame or any(row.get("final") for row in frame.get("rows") or ())
            if final and (waiting := self._waiting.get(key)) is not None and not waiting.done():
                waiting.set_result(frame)

    async def call(self, server: str) -> bool:
        """Make a call and follow its topic to the last frame, as a page does. Returns False if refused."""
        ref = next(self._refs)
        order = {"op": "call", "server": server, "tool": "echo", "args": {"text": TEXT}, "ref": ref}
        answered = self._expect(ref)
        await self._socket.send(json.dumps(order | {"html": False, "follow": True}))
        accepted = await self._come(ref, answered)
        if accepted["op"] != "accepted":
            self.refused = str(accepted.get("message", accepted))
            return False
        topic = accepted["topic"]
        last = await self._come(topic, self._waiting[topic])
        if last["rows"][0]["state"] != "succeeded":
            raise RuntimeError(last)
        await self._leave(topic)
        return True

    def _expect(self, key: Any) -> "asyncio.Future[dict[str, Any]]":
        waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        return waiting

    async def _come(self, key: Any, waiting: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
        async with asyncio.timeout(ANSWER_SECONDS):
            frame = await waiting
        del self._waiting[key]
        return frame

    async def _leave(self, topic: str) -> None:
        """Unsubscribe from many topics with one message, because messages are rate-limited."""
        self._over.append(topic)
        if len(self._over) >= LEAVE_TOGETHER:
            await self._socket.send(json.dumps({"op": "unsub", "topics": self._over}))
            self._over = []


@asynccontextmanager
async def callers(product: Stack, people: list[tuple[str, str]]) -> AsyncIterator[list[Caller]]:
    async with AsyncExitStack() as stack:
        made: list[Caller] = []
        for account in people:
            visitor = await asyncio.to_thread(Visitor, product, account)
            stack.callback(visitor.close)
            sockets = [await stack.enter_async_context(greeted(product, visitor)) for _ in range(SOCKETS_EACH)]
            made += [Caller(socket) for socket in sockets]
        reading = [asyncio.create_task(one.read()) for one in made]
        try:
            yield made
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


class Cpu:
    """Seconds that each part used since the last look."""

    def __init__(self, product: Stack) -> None:
        words = {"web": "daphne", "worker": "mcpadmin.worker", "valkey": "valkey-server"}
        self._parts = {name: product.part(word) for name, word in words.items()}
        self._parts["echo server"] = [one for one in psutil.process_iter(["cmdline"]) if _echoes(one)]
        self._parts["callers"] = [psutil.Process()]
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {name: sum(_used(one) for one in processes) for name, processes in self._parts.items()}

    def since(self) -> dict[str, float]:
        now = self._now()
        used = {name: now[name] - self._before[name] for name in now}
        self._before = now
        return used


def _echoes(process: psutil.Process) -> bool:
    line = " ".join(process.info["cmdline"] or [])
    return "/tests/benchmarks/echo_" in line and not line.startswith(("setpriv", "unshare"))


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
