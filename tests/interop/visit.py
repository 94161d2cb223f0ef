"""One connection of our client to one server, and all verbs over it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from servers.schemas import uri_template
from sessions.mcp.client import Client
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import RpcError
from sessions.mcp.core.events import Event, LogMessage, ResourceUpdated
from sessions.mcp.core.input_requests import InputRequest
from sessions.mcp.core.opening import EraSetting
from sessions.mcp.core.results import Connected, Timeouts, ToolResult
from sessions.mcp.core.state import State
from sessions.mcp.core.versions import Era
from sessions.mcp.transports.base import Transport
from sessions.mcp.transports.registry import Spec, open_transport
from tests.interop.plans import ELICITED, SAMPLED, Plan, Use
from tests.interop.verbs import Declared, Verb

#: Seconds; far more than a healthy machine needs.
PATIENCE = 30.0
#: Shorter, because a server that never answers the probe costs this time twice.
PROBE = 10.0
TIMEOUTS = Timeouts(probe=PROBE, initialize=PATIENCE, request=PATIENCE, tool=PATIENCE, total=2 * PATIENCE)
NEWEST_LEGACY = b'"2025-11-25"'


class Wrong(Exception):
    """A verb did not do what it must."""


def demand(condition: object, words: str) -> None:
    if not condition:
        raise Wrong(words)


class Visit:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.client: Client
        self.connected: Connected
        self.declared = Declared("")
        self.asked: list[str] = []
        self.events: list[Event] = []
        self._news = asyncio.Event()

    # -- callbacks of the client

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def as_model(self, asked: InputRequest) -> Mapping[str, Any]:
        self.asked.append(asked.method)
        content = {"type": "text", "text": SAMPLED}
        return {"role": "assistant", "content": content, "model": "test-model", "stopReason": "endTurn"}

    async def as_person(self, asked: InputRequest) -> Mapping[str, Any]:
        self.asked.append(asked.method)
        return {"action": "accept", "content": filled(asked.params["requestedSchema"])}

    async def heard(self, wanted: Callable[[Event], bool], since: int = 0) -> Event:
        """The first matching event from index `since` on."""
        while True:
            for event in self.events[since:]:
                if wanted(event):
                    return event
            self._news.clear()
            await self._news.wait()

    # -- the verbs: each returns, or raises on failure

    async def connect(self) -> None:
        demand(self.client.state is State.READY, f"the session is {self.client.state}")
        demand(self.connected.client_capabilities.get("sampling") is not None, "sampling is not declared")
        # In 2026-07-28 the server's name is optional.
        demand(self.connected.server_info.get("name") or self.connected.era is Era.MODERN, "the server has no name")

    async def list(self) -> None:
        declared = self.declared
        demand(bool(declared.tools) or not declared.has("tools"), "tools are declared, none is listed")
        demand(bool(declared.prompts) or not declared.has("prompts"), "prompts are declared, none is listed")

    async def call(self) -> None:
        """Call the tool. A plan that expects no particular text (a dummy key) also accepts a JSON-RPC error."""
        try:
            await self.use(self.plan.call)
        except RpcError:
            if self.plan.call.says:
                raise

    async def progress(self) -> None:
        seen: list[float] = []
        await self.use(self.plan.slow, on_progress=lambda value, total, message: seen.append(value))
        demand(seen and seen == sorted(seen), f"progress was {seen}")

    async def cancel(self) -> None:
        """The call ends at once, the server stops its work, and the session continues."""
        before = await self.cuts() if self.hears_cancelling else ""
        await self.cancel_a_call()
        await self.client.ping(timeout=PATIENCE)
        while before and await self.cuts() == before:
            continue  # each check is a round trip; the verb's deadline ends the loop
        demand(self.client.in_flight == self.listening, "the cancelled request is still in flight")

    @property
    def hears_cancelling(self) -> bool:
        """Whether the server can notice a cancellation, and report it.

        A legacy cancellation is a separate message that finds its call through the session. Without a session the call
        runs on. Reporting it needs the tool `cut_short`."""
        connected = self.connected
        finds_it = connected.era is Era.MODERN or connected.transport != "streamable_http"
        return (finds_it or connected.has_wire_session) and self.plan.cut_short.tool in self.declared.tools

    async def cuts(self) -> str:
        return str((await self.use(self.plan.cut_short)).content[0]["text"])

    async def cancel_a_call(self) -> None:
        use, running = self.plan.slower, asyncio.Event()

        def runs(value: float, total: float | None, message: str | None) -> None:
            running.set()

        call = asyncio.create_task(self.client.call_tool(use.tool, use.arguments, on_progress=runs))
        await running.wait()
        call.cancel()
        await asyncio.wait([call])
        demand(call.cancelled(), "the call was not cancelled")

    @property
    def listening(self) -> int:
        """A modern subscription is a request that stays in flight."""
        return int(self.connected.era is Era.MODERN and self.declared.has("resources", "subscribe"))

    async def read(self) -> None:
        read = await self.client.read_resource(self.declared.resources[0])
        demand(read.get("contents"), "the resource has no contents")

    async def template(self) -> None:
        uri = uri_template.expand(self.declared.templates[0], self.plan.values)
        demand("{" not in uri, f"{uri} is not expanded")
        read = await self.client.read_resource(uri)
        demand(self.plan.expanded in read["contents"][0]["text"], "the resource is another")

    async def subscribe(self) -> None:
        uri, since = self.plan.followed, len(self.events)
        honoured = await self.client.follow([uri])
        demand(uri in honoured.resources, f"not honoured: {honoured.refused}")
        await self.use(self.plan.touch)
        await self.heard(lambda event: isinstance(event, ResourceUpdated) and event.uri == uri, since)

    async def prompt(self) -> None:
        prompt = await self.client.get_prompt(self.plan.prompt, self.plan.prompt_arguments)
        demand(prompt.get("messages"), "the prompt has no messages")

    async def complete(self) -> None:
        completed = await self.client.complete(self.plan.completed, self.plan.argument)
        demand(self.plan.completion in completed["completion"]["values"], f"completed to {completed}")

    async def sample(self) -> None:
        await self.use(self.plan.ask_model)
        demand("sampling/createMessage" in self.asked, "the model was not asked")

    async def elicit(self) -> None:
        await self.use(self.plan.ask_person)
        demand("elicitation/create" in self.asked, "the person was not asked")

    async def log(self) -> None:
        since = len(self.events)
        await self.client.set_log_level("debug")
        await self.use(self.plan.log)
        await self.heard(lambda event: isinstance(event, LogMessage) and self.plan.logged in str(event.data), since)

    async def use(self, use: Use, **more: Any) -> ToolResult:
        result = await self.client.call_tool(use.tool, use.arguments, **more)
        text = "".join(block.get("text", "") for block in result.content)
        demand(use.says in text, f"{use.tool} says {text[:200]!r}")
        demand(not use.says or not result.is_error, f"{use.tool} failed: {text[:200]!r}")
        return result

    # -- the server's declarations

    async def look(self) -> None:
        """Fill in `declared` by listing what the capabilities announce."""
        declared = self.declared
        declared.capabilities = self.connected.server_capabilities
        declared.tools = [tool["name"] for tool in (await self.client.list_tools()).items]
        declared.resources = [resource["uri"] for resource in (await self.client.list_resources()).items]
        templates = await self.client.list_resource_templates()
        declared.templates = [template["uriTemplate"] for template in templates.items]
        declared.prompts = [prompt["name"] for prompt in (await self.client.list_prompts()).items]

    def doing(self, verb: Verb) -> Callable[[], Awaitable[None]]:
        method: Callable[[], Awaitable[None]] = getattr(self, verb.value)
        return method


def filled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The form as filled in by a person who enters only required fields."""
    fields, required = schema.get("properties", {}), schema.get("required", [])
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return defaults | {name: ELICITED for name in required if name not in defaults}


@asynccontextmanager
async def visiting(spec: Spec, plan: Plan, *, era: EraSetting, offer: str = "") -> AsyncIterator[Visit]:
    """`offer`: the legacy revision that `initialize` names instead of our newest, like an older client."""
    visit = Visit(plan)
    visit.client = Client(
        partial(offering, spec, offer) if offer else partial(open_transport, spec),
        client_info=Implementation("mcpadmin-interop", "1"),
        answers={"sampling/createMessage": visit.as_model, "elicitation/create": visit.as_person},
        timeouts=TIMEOUTS,
        era=era,
        on_event=visit.hear,
    )
    try:
        visit.connected = await visit.client.connect()
        yield visit
    finally:
        await visit.client.close()


async def offering(spec: Spec, offer: str, **known: str) -> Transport:
    """A transport that sends `initialize` with another revision."""
    transport = await open_transport(spec, **known)
    send = transport.send

    async def send_offering(outgoing: Any) -> None:
        if outgoing.method == "initialize":
            outgoing.data = outgoing.data.replace(NEWEST_LEGACY, f'"{offer}"'.encode(), 1)
        await send(outgoing)

    transport.send = send_offering  # type: ignore[method-assign]  # makes this client look like an older one
    return transport
