"""The endpoint for agents without a web server and a worker: requests go to the ASGI application, and the test is the
worker. What it tells the hub comes from nowhere else."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.utils import timezone

from servers.agents.tokens import NewToken, issue
from servers.audit import payloads
from servers.audit.record import Actor
from servers.enums import DefinitionKind, PayloadKind
from servers.models import Definition
from sessions.agents.asgi import AgentsApplication
from sessions.enums import ApprovalState, CallState, SessionState
from sessions.live.early import EarlyHints
from sessions.live.hub import Hub
from sessions.live.reader import Reader
from sessions.models import Approval, Call, McpSession
from tests.sessions.host.make import make_session

T = TypeVar("T")
META = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
RESULT = '{"content":[{"type":"text","text":"done"}]}'


def make_listed(slug: str = "files", *tools: str, **fields: Any) -> McpSession:
    """The session of a server that is connected, and whose lists were read."""
    session = make_session(slug, **fields)
    now = timezone.now()
    for position, name in enumerate(tools or ("echo",)):
        Definition.objects.create(
            server=session.server,
            identity=session.identity,
            kind=DefinitionKind.TOOL,
            key=name,
            body=json.dumps({"name": name, "inputSchema": {"type": "object"}}),
            position=position,
            digest=f"{position:064}",
            first_seen_at=now,
            changed_at=now,
        )
    session.state, session.revision = SessionState.READY, LEGACY
    session.server_capabilities = {"tools": {}, "resources": {"subscribe": True}}
    session.catalog_counts = {kind.value: {"read_at": now.isoformat()} for kind in DefinitionKind}
    session.save()
    return session


def token_of(user: Any, *scopes: str) -> str:
    wanted = NewToken("laptop", 7, [f"mcp:{scope}" for scope in scopes or ("list", "read", "call")])
    return issue(Actor.of_user(user), user, wanted).text


def finish(call: UUID) -> None:
    """As a worker does; a person approved it if that was needed."""
    Approval.objects.filter(call__uid=call).update(state=ApprovalState.APPROVED)
    result = payloads.store(PayloadKind.RESULT, RESULT)
    Call.objects.filter(uid=call).update(state=CallState.SUCCEEDED, finished_at=timezone.now(), result=result)


class Database(Reader):
    """Refuses every read with `problem`, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Exception | None = None
        self.refused = asyncio.Event()

    def begin_run(self, job: Callable[[], Any]) -> "Future[Any]":
        if self.problem is None:
            return super().begin_run(job)
        failed: Future[Any] = Future()
        failed.set_exception(self.problem)
        self.refused.set()
        return failed


class Asked:
    """A request that was sent. `sent`: the body so far."""

    def __init__(self, application: AgentsApplication, scope: dict[str, Any], body: bytes) -> None:
        self.status, self.sent, self.headers = 0, b"", dict[str, str]()
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self._task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.sent += message.get("body", b"")

    def leaves(self) -> None:
        self._left.set()

    @property
    def open(self) -> bool:
        return not self._task.done()

    async def ends(self) -> None:
        async with asyncio.timeout(30):
            await asyncio.shield(self._task)

    async def response(self) -> dict[str, Any]:
        """The last message."""
        await self.ends()
        lines = [line for line in self.sent.decode().splitlines() if line.removeprefix("data: ").startswith("{")]
        return dict(json.loads(lines[-1].removeprefix("data: ")))


class Door:
    def __init__(self) -> None:
        self.hub: Any = object.__new__(Hub)
        self.hub._watchers, self.hub._early, self.hub._own = {}, EarlyHints(), {}
        self.hub.streams, self.hub.reader = {}, Database()
        self.database: Database = self.hub.reader
        self.application = AgentsApplication(self.hub)

    async def thread(self, job: Callable[..., T], *given: Any, **more: Any) -> T:
        """`job` where it may use the database."""
        found: T = await self.hub.reader.work(partial(job, *given, **more))
        return found

    def post(self, token: str, slug: str, body: Any, **headers: str) -> Asked:
        return self._sent("POST", token, slug, json.dumps(body).encode(), headers)

    def get(self, token: str, slug: str, key: str, **headers: str) -> Asked:
        return self._sent("GET", token, slug, b"", {"mcp_session_id": key, **headers})

    def _sent(self, verb: str, token: str, slug: str, body: bytes, headers: dict[str, str]) -> Asked:
        given = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **headers,
        }
        scope = {
            "method": verb,
            "path": f"/mcp/{slug}",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
            "client_ip": "192.0.2.7",
        }
        return Asked(self.application, scope, body)

    def modern(self, token: str, slug: str, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> Asked:
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        meta |= (params or {}).get("_meta", {})
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
        headers = {"mcp_protocol_version": MODERN, "mcp_method": method}
        named = (params or {}).get("name") or (params or {}).get("uri")
        return self.post(token, slug, body, **headers, **({"mcp_name": named} if named else {}))

    async def session(self, token: str, slug: str, **capabilities: Any) -> str:
        """The key of a legacy session."""
        program = {"name": "test", "version": "1"}
        hello = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": program}
        asked = self.post(token, slug, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        await asked.ends()
        return asked.headers["mcp-session-id"]

    def legacy(
        self, token: str, slug: str, key: str, method: str, params: dict[str, Any] | None = None, id: Any = 1
    ) -> Asked:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
        return self.post(token, slug, body, mcp_session_id=key, mcp_protocol_version=LEGACY)

    # --- the worker ----------------------------------------------------------------------------------------------
    async def viewed(self) -> UUID:
        """The call that an agent waits with."""
        async with asyncio.timeout(30):
            while not (topics := [one for one in self.hub._watchers if one.startswith("call.")]):  # noqa: ASYNC110 - another thread places it
                await asyncio.sleep(0.01)
        return UUID(topics[0].removeprefix("call."))

    async def finish(self, call: UUID) -> None:
        """Without a hint."""
        await self.thread(finish, call)

    def hint(self, topic: str) -> None:
        self.hub._received({"t": topic, "seq": None, "kind": "changed", "rows": None})
