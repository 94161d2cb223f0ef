"""Agents at the door for agents, as correct clients of both eras: they resume a lost stream, ask again for a response
that they did not get, and make a call again only where they were told that the tool did not run. Each keeps notes.
"""

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import httpx

from tests.tools.shared_tls import SHARED_TLS

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
META = "io.modelcontextprotocol/"
ANSWER_SECONDS = 90.0
AGAIN_SECONDS = 0.2
#: the share of requests whose connection the program itself cuts, and after how long at most
CUT, CUT_SECONDS = 0.06, 0.5
_NOTHING_RAN = ("was not sent", "did not run", "was not called", "was refused")
_UNSURE = ("not known whether", "while it ran")
_LATER = frozenset({429, 503})
Message = dict[str, Any]


class Told(StrEnum):
    SUCCEEDED = "succeeded"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"
    #: anything that an agent cannot act on
    STRANGE = "strange"
    NOTHING = "nothing"


@dataclass
class Note:
    """One call as its agent knows it. `task`: what the agent wants to have done once, perhaps by several calls."""

    effect: str
    task: str
    told: Told = Told.NOTHING
    call: str = ""
    words: str = ""


@dataclass
class Notes:
    calls: list[Note] = field(default_factory=list)
    #: refused before anything was written, by the limit or its reason
    refused: Counter[str] = field(default_factory=Counter)
    #: connections that ended before the response, by who ended them
    lost: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    asked_again: int = 0


class Lost(Exception):
    """The connection ended before the response."""


class Program(ABC):
    """One agent with one token. `slug`: of a server's endpoint or of a bundle."""

    era: str

    def __init__(self, origin: str, slug: str, token: str, dice: random.Random, notes: Notes) -> None:
        self.name = f"{self.era}-{slug}-{token[4:10]}"
        self._url, self._dice, self._notes = f"{origin}/mcp/{slug}", dice, notes
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION[self.era],
        }
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(ANSWER_SECONDS), trust_env=False, verify=SHARED_TLS)
        self._numbers = 0
        self._tools: list[str] = []
        #: of the present call, what became of each request
        self.tries: list[str] = []

    async def open(self) -> None:
        self._tools = [tool["name"] for tool in (await self._ask("tools/list", {}))["result"]["tools"]]
        self._tools = [name for name in self._tools if name.endswith("effect")]

    async def close(self) -> None:
        await self._http.aclose()

    async def do(self, task: str, seconds: float) -> None:
        """Have something done once. A call that certainly did not run is made again."""
        for attempt in range(20):
            note = Note(f"{task}.{attempt}", task)
            self._notes.calls.append(note)
            self.tries = []
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                await self._call(note, round(seconds, 3))
            if note.told is not Told.NOT_RUN:
                return

    async def _call(self, note: Note, seconds: float) -> None:
        params = {"name": self._dice.choice(self._tools), "arguments": {"id": note.effect, "seconds": seconds}}
        self._note(note, await self._ask("tools/call", params, note))

    @abstractmethod
    async def _ask(self, method: str, params: dict[str, Any], note: Note | None = None) -> Message:
        """The response to one request, asked again as this era's rules allow."""

    # --- one exchange ------------------------------------------------------------------------------------------------
    async def _events(self, verb: str, headers: dict[str, str], body: Any = None) -> AsyncIterator[tuple[str, Message]]:
        """The messages of an answer, each with the id of its event; one without a message has {}. Raises Lost."""
        began = time.monotonic()
        self.tries.append(f"{verb} at {datetime.now(UTC):%H:%M:%S}: no headers")
        try:
            async with self._http.stream(verb, self._url, headers=self._headers | headers, json=body) as answer:
                self.tries[-1] += f", then {answer.status_code} after {time.monotonic() - began:.1f} s"
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    await answer.aread()
                    yield "", self._whole(answer)
                    return
                identity = ""
                async for line in answer.aiter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id":
                        identity = value
                    elif name == "data":
                        yield identity, json.loads(value) if value.strip() else {}
        except httpx.HTTPError as problem:
            self.tries[-1] += f", then {type(problem).__name__} after {time.monotonic() - began:.1f} s"
            raise Lost(type(problem).__name__) from problem

    def _whole(self, answer: httpx.Response) -> Message:
        message: Message = answer.json() if answer.content else {}
        if answer.status_code in _LATER:
            message["later"] = float(answer.headers["retry-after"])
        elif answer.status_code >= 400:
            message["status"] = answer.status_code
        return message

    async def _within(
        self, exchange: AsyncIterator[tuple[str, Message]], cut: float | None, seen: list[str]
    ) -> Message:
        """The response. `cut`: after so many seconds the program itself closes the connection. `seen`: ids of events."""
        try:
            # Closed beyond the cut, or it could fall between a response and its noting.
            async with aclosing(exchange), asyncio.timeout(cut):  # type: ignore[type-var]  # a generator
                async for identity, message in exchange:
                    if identity:
                        seen.append(identity)
                    if {"result", "error", "later", "status"} & message.keys():
                        return message
        except TimeoutError:
            self._notes.lost["cut"] += 1
            raise Lost from None
        except Lost as lost:
            self._notes.lost[str(lost)] += 1
            raise
        self._notes.lost["ended"] += 1
        raise Lost

    def _cut(self) -> float | None:
        return self._dice.uniform(0, CUT_SECONDS) if self._dice.random() < CUT else None

    async def _later(self, message: Message) -> None:
        data = message["error"].get("data") or {}
        self._notes.refused[str(data.get("reason") or message["error"]["message"])] += 1
        await asyncio.sleep(max(message["later"], data.get("retryAfterMs", 0) / 1000))

    # --- what it was told ------------------------------------------------------------------------------------------------
    def _note(self, note: Note, message: Message) -> None:
        result = message.get("result") or {}
        text = "".join(block.get("text", "") for block in result.get("content") or [])
        note.call = (result.get("_meta") or {}).get("mcpadmin/call") or note.call
        note.words = text or json.dumps(message)
        note.told = Told.STRANGE
        if result and not result.get("isError"):
            note.told = Told.SUCCEEDED if text == note.effect else Told.STRANGE
        elif any(words in text for words in _UNSURE):
            note.told = Told.UNKNOWN
        elif any(words in text for words in _NOTHING_RAN):
            note.told = Told.NOT_RUN

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers


class Legacy(Program):
    """One session for the whole run. Half of its calls request progress, so their responses are streams."""

    era = "legacy"

    async def open(self) -> None:
        params = {
            "protocolVersion": VERSION[self.era],
            "capabilities": {},
            "clientInfo": {"name": "legacy", "version": "1"},
        }
        while "Mcp-Session-Id" not in self._headers:
            with suppress(httpx.HTTPError):
                body = {"jsonrpc": "2.0", "id": self._next(), "method": "initialize", "params": params}
                answer = await self._http.post(self._url, json=body, headers=self._headers)
                if answer.status_code == 200:
                    self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        await super().open()

    async def _ask(self, method: str, params: dict[str, Any], note: Note | None = None) -> Message:
        """Repeating a request attaches to the same call, and a stream resumes after its last event."""
        number = self._next()
        if note is not None and self._dice.random() < 0.5:
            params = params | {"_meta": {"progressToken": number}}
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        seen: list[str] = []
        while True:
            if seen:
                self._notes.resumed += 1
                exchange = self._events("GET", {"Last-Event-ID": seen[-1]})
            else:
                exchange = self._events("POST", {}, body)
            try:
                message = await self._within(exchange, self._cut() if note else None, seen)
            except Lost:
                self._notes.asked_again += not seen
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            finally:
                if seen and note is not None:
                    note.call = seen[-1].partition(":")[0]
            if "later" not in message:
                return message
            await self._later(message)


class Modern(Program):
    """Requests are independent. An idempotency key attaches a repeated call to the earlier one."""

    era = "modern"

    async def _ask(self, method: str, params: dict[str, Any], note: Note | None = None) -> Message:
        meta = {
            META + "protocolVersion": VERSION[self.era],
            META + "clientCapabilities": {},
            META + "clientInfo": {"name": "modern", "version": "1"},
        }
        headers = {"Mcp-Method": method}
        if note is not None:
            headers |= {"Mcp-Name": params["name"], "Idempotency-Key": f"{self.name}-{note.effect}"}
        while True:
            body = {"jsonrpc": "2.0", "id": self._next(), "method": method, "params": params | {"_meta": meta}}
            try:
                message = await self._within(self._events("POST", headers, body), self._cut() if note else None, [])
            except Lost:
                self._notes.asked_again += 1
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if "later" not in message:
                return message
            await self._later(message)


ERAS: tuple[type[Program], ...] = (Legacy, Modern)
