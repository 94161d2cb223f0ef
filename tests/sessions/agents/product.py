"""A product with servers, and agents that use it through the door."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.tools.prepared import ADMIN
from tests.tools.shared_tls import SHARED_TLS
from tests.tools.stack import Stack

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
ISSUE = """
from django.contrib.auth import get_user_model
from servers.agents import tokens
from servers.audit.record import Actor
from servers.models import AgentToken, Server
from django.utils import timezone
user = get_user_model().objects.get(username={name!r})
servers = Server.objects.filter(slug__in={servers!r}) if {servers!r} else None
active = AgentToken.objects.filter(user=user, revoked_at=None)  # of earlier modules of tests: the product allows fifty
AgentToken.objects.filter(pk__in=[token.pk for token in active.order_by("-pk")[30:]]).update(revoked_at=timezone.now())
wanted = tokens.NewToken({label!r}, 7, {scopes!r}, servers, {tools!r}, {addresses!r})
print("TOKEN", tokens.issue(Actor.of_user(user), user, wanted).text)
"""
ONE_A_SECOND = """
from servers.models import AgentPolicy, AgentToken
AgentPolicy.objects.create(token=AgentToken.objects.get(name={label!r}), requests_per_second=1)
"""


class Product:
    """A running product with three servers: `modern` and `legacy` are the same peer in both eras, `ours` is the demo server."""

    def __init__(self, stack: Stack, effects: Path) -> None:
        self.stack, self.effects = stack, effects

    def register(self, name: str, command: tuple[str, list[str]], *options: str) -> None:
        words = ("register_server", "--user", ADMIN[0], "--name", name, "--policy", "on_demand", *options)
        self.stack.manage(*words, "--", command[0], *command[1])

    def register_url(self, name: str, url: str, *options: str) -> None:
        words = ("register_server", "--user", ADMIN[0], "--name", name, "--policy", "on_demand", "--url", url, *options)
        self.stack.manage(*words)

    def token(
        self,
        *scopes: str,
        servers: tuple[str, ...] = (),
        tools: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        name: str = ADMIN[0],
        label: str = "test",
    ) -> str:
        given = [f"mcp:{scope}" for scope in scopes or ("list", "read", "call", "call:destructive")]
        code = ISSUE.format(
            name=name, servers=list(servers), label=label, scopes=given, tools=list(tools), addresses=list(addresses)
        )
        return self.stack.shell(code).split("TOKEN ", 1)[1].split()[0]

    def allow_one_request_a_second(self, label: str) -> None:
        """Of a token that was not used yet. A slow machine exceeds this rate too."""
        self.stack.shell(ONE_A_SECOND.format(label=label))

    def url(self, slug: str) -> str:
        return f"{self.stack.base_url}/mcp/{slug}"

    def agent(self, token: str, slug: str = "legacy") -> "Agent":
        return Agent(self.url(slug), token)

    def calls(self, **columns: Any) -> list[Any]:
        where = " AND ".join(f"call.{name} = ?" for name in columns) or "1"
        sql = f"""
            SELECT call.*, agent.program, agent.token_name, agent.unheard_at FROM mcp_sessions_call call
            LEFT JOIN mcp_sessions_agentcall agent ON agent.call_id = call.id WHERE {where} ORDER BY call.id
        """  # noqa: S608  # names of our own columns
        return self.stack.rows(sql, *columns.values())


class Agent:
    """A program that speaks HTTP itself, so that a test decides about every header."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.session = ""
        self._next = 0

    def headers(self, **more: str | None) -> dict[str, str]:
        found: dict[str, str | None] = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        if self.session:
            found["Mcp-Session-Id"] = self.session
        found |= {name.replace("_", "-"): value for name, value in more.items()}
        return {name: value for name, value in found.items() if value is not None}

    def body(self, method: str, params: dict[str, Any] | None = None, identity: Any = None) -> dict[str, Any]:
        self._next += 1
        value = {"jsonrpc": "2.0", "id": self._next if identity is None else identity, "method": method}
        return value if params is None else value | {"params": params}

    def post(self, body: Any, **headers: str | None) -> httpx.Response:
        """Comes back when it was too fast: the tests of one product share the limits of one user."""
        while True:
            answer = httpx.post(self.url, json=body, headers=self.headers(**headers), timeout=60, verify=SHARED_TLS)
            if answer.status_code != 429:
                return answer
            time.sleep(answer.json()["error"]["data"]["retryAfterMs"] / 1000)

    # --- legacy
    def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> httpx.Response:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        answer = self.post(self.body("initialize", params))
        self.session = answer.headers.get("mcp-session-id", "")
        if self.session:
            assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
        return answer

    def ask(self, method: str, params: dict[str, Any] | None = None, **headers: str | None) -> dict[str, Any]:
        """The response of a legacy request, however it came."""
        return response_of(self.post(self.body(method, params), **headers))

    # --- modern
    def modern(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> tuple[Any, dict[str, str]]:
        """Body and headers of a complete modern request."""
        own = {META + "protocolVersion": VERSION, META + "clientCapabilities": {}} | meta
        own.setdefault(META + "clientInfo", {"name": "raw", "version": "2"})
        body = self.body(method, {**(params or {}), "_meta": own})
        headers = {"MCP_Protocol_Version": VERSION, "Mcp_Method": method}
        key = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
        if key and params:
            headers["Mcp_Name"] = params[key]
        return body, headers

    def ask_modern(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> httpx.Response:
        body, headers = self.modern(method, params, **meta)
        return self.post(body, **headers)


def messages_of(response: httpx.Response) -> list[dict[str, Any]]:
    if response.headers["content-type"].startswith("application/json"):
        return [response.json()]
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(text) for text in data if text.strip()]


def response_of(response: httpx.Response) -> dict[str, Any]:
    return messages_of(response)[-1]


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    return thread, found


@contextlib.contextmanager
def standing(agent: Agent, body: Any = None, **headers: str) -> Iterator[list[dict[str, Any]]]:
    """The messages of an open stream, as they arrive; None ends them."""
    heard: list[Any] = []
    status: list[int] = []
    opened = threading.Event()
    closing = httpx.Client(timeout=60, verify=SHARED_TLS)

    def listen() -> None:
        method = "GET" if body is None else "POST"
        with (
            contextlib.suppress(httpx.HTTPError, RuntimeError),
            closing.stream(method, agent.url, json=body, headers=agent.headers(**headers)) as answer,
        ):
            status.append(answer.status_code)
            opened.set()
            lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
            heard.extend(json.loads(line) for line in lines if line)
        heard.append(None)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert opened.wait(15)
    assert status == [200]
    try:
        yield heard
    finally:
        closing.close()
        thread.join(0.1)
