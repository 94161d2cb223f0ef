"""A user of the live socket without a browser: signs in, sends hello, calls tools and waits for their final states."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import websockets

from tests.tools.shared_tls import SHARED_TLS
from tests.tools.stack import ADMIN, Stack

ANSWER_SECONDS = 90


class Visitor:
    """Signs in over plain http. Keeps the cookies itself: unlike browsers, httpx refuses Secure cookies on loopback."""

    def __init__(self, stack: Stack, account: tuple[str, str] = ADMIN) -> None:
        self.base_url = stack.base_url
        self.cookies: dict[str, str] = {}
        self._http = httpx.Client(base_url=stack.base_url, trust_env=False, timeout=20, verify=SHARED_TLS)
        self.get("/accounts/login/")
        form = {"login": account[0], "password": account[1], "csrfmiddlewaretoken": self.csrf_token}
        signed_in = self.request("POST", "/accounts/login/", data=form)
        assert signed_in.headers.get("location") == "/", signed_in.text[:2000]

    @property
    def cookie_header(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    @property
    def csrf_token(self) -> str:
        return next(value for name, value in self.cookies.items() if "csrf" in name)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Cookie": self.cookie_header, "Referer": self.base_url} | more.pop("headers", {})
        answer = self._http.request(method, path, headers=headers, **more)
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        self._http.cookies.clear()
        return answer

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, data: dict[str, str] | None = None) -> httpx.Response:
        return self.request("POST", path, data=data or {}, headers={"X-CSRFToken": self.csrf_token})

    def close(self) -> None:
        self._http.close()

    def ticket(self) -> str:
        return self.post("/live/ticket/").json()["ticket"]


@asynccontextmanager
async def greeted(stack: Stack, visitor: Visitor) -> AsyncIterator[Any]:
    """Connect a socket and wait for its welcome. The ticket comes first: a socket that waits for it while fifty others
    connect is closed for its silence."""
    url = stack.base_url.replace("http", "ws") + "/ws/"
    headers = {"Cookie": visitor.cookie_header}
    given = await asyncio.to_thread(visitor.ticket)
    async with websockets.connect(url, origin=stack.base_url, additional_headers=headers, max_size=None) as socket:
        await socket.send(json.dumps({"op": "hello", "ticket": given, "v": 1}))
        await answer(socket, lambda frame: frame.get("op") == "welcome")
        yield socket


async def answer(socket: Any, wanted: Callable[[dict], object], seconds: float = ANSWER_SECONDS) -> dict:
    """Return the next frame that `wanted` accepts. Drops the frames before it."""
    async with asyncio.timeout(seconds):
        async for text in socket:
            frame = json.loads(text)
            if wanted(frame):
                return frame
    raise AssertionError("the socket closed")


async def asked(socket: Any, server: str, tool: str, args: dict, ref: int = 1) -> dict:
    """Request a call and return the reply: accepted or rejected."""
    order = {"op": "call", "server": server, "tool": tool, "args": args, "ref": ref, "confirm": tool}
    await socket.send(json.dumps(order))
    return await answer(socket, lambda frame: frame.get("ref") == ref)


async def ended(socket: Any, uid: str) -> dict:
    """Wait for a call's final state and return its row."""
    topic = f"call.{uid}"
    await socket.send(json.dumps({"op": "sub", "topics": {topic: None}}))
    last = await answer(
        socket, lambda frame: frame.get("t") == topic and any(row.get("final") for row in frame.get("rows") or [])
    )
    await socket.send(json.dumps({"op": "unsub", "topics": [topic]}))  # the topics of a socket are limited
    return last["rows"][0]


async def a_call(socket: Any, server: str, tool: str, args: dict, ref: int = 1) -> dict:
    """Request a call and wait for its final state. Fails when the call is rejected."""
    accepted = await asked(socket, server, tool, args, ref)
    assert accepted["op"] == "accepted", accepted
    return await ended(socket, accepted["call"])
