"""The client's public face: open, list, call, close."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ..protocol import jsonrpc, methods, opening
from ..protocol.capabilities import Implementation, offers
from ..protocol.errors import Fault, HttpError, InvalidRequest, McpError, NotReady, RpcError
from ..protocol.events import Event, ListKind
from ..protocol.headers import BadAnnotation, Mirrored, mirrored_arguments
from ..protocol.limits import Limits
from ..protocol.pagination import Pages
from ..protocol.results import Connected, Listing, Step, Timeouts, ToolResult
from ..protocol.session import Session, check_result
from ..protocol.state import State, Trigger
from ..protocol.versions import Era
from ..transports.base import Transport
from .opener import Opener
from .pump import Ask, OnProgress, Pump
from .steps import Steps
from .watch import Watch

BeforeSend = Callable[[int, str], Awaitable[None]]


class Client:
    """One live handle on one server. Not reusable: after `close()` or a loss make a new one.

    All methods belong to the loop in which it was made. `on_event` is called from the reader and must return at
    once. Methods raise McpError and CancelledError only, besides what `before_send` raises.
    """

    #: Done when the connection is over: the reason of a loss, None after `close()`. Never holds an exception.
    closed: "asyncio.Future[McpError | None]"

    def __init__(
        self,
        open_transport: Callable[[], Awaitable[Transport]],
        *,
        client_info: Implementation,
        capabilities: Mapping[str, Any],
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        era: opening.EraSetting = "auto",
        on_event: Callable[[Event], None],
    ) -> None:
        self._era: opening.EraSetting = era
        self._limits, self._timeouts = limits or Limits(), timeouts or Timeouts()
        self._session = Session(client_info, capabilities, self._limits)
        self._pump = Pump(self._session, self._limits, on_event, self._lost)
        self._opener = Opener(self._session, self._pump, open_transport, client_info, capabilities, self._timeouts)
        self._watch: Watch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._opening = False
        self._generation = 0
        self._reopening = asyncio.Lock()
        self._mirrored: dict[str, tuple[Mirrored, ...]] = {}
        self._shutting: asyncio.Task[None] | None = None
        self.closed = asyncio.get_running_loop().create_future()

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def in_flight(self) -> int:
        return self._session.in_flight

    # -- opening

    async def connect(self, on_step: Callable[[Step], None] | None = None) -> Connected:
        """Open the transport, settle era and revision. Steps: resolve, connect, handshake. With `on_step` an HTTP
        server is first tried with a connection of its own, so that the step *connect* says something."""
        if self.state is not State.DISCONNECTED or self.closed.done():
            raise NotReady("A client connects once.")
        steps = Steps(on_step)
        self._opening = True
        self._pump.move(Trigger.OPEN)
        try:
            opened = await self._opener.open(self._era, steps)
            self._generation += 1
        except BaseException as exc:  # a cancelled connect must leave no child behind either
            error = exc if isinstance(exc, McpError) else NotReady("Connecting was cancelled.", Fault.CANCELLED)
            steps.fail(error)
            self._end(error)
            await self._shut()
            raise
        finally:
            self._opening = False
        self._start_watch()
        return self._connected(opened)

    def _connected(self, opened: opening.Opened) -> Connected:
        transport = self._pump.transport
        return Connected(
            era=opened.revision.era,
            revision=opened.revision.name,
            server_info=opened.server_info,
            instructions=opened.instructions,
            server_capabilities=opened.server_capabilities,
            client_capabilities=opened.client_capabilities,
            transport=transport.kind,
            url=transport.url,
            decided_by=opened.decided_by,
            has_wire_session=transport.has_wire_session,
        )

    # -- ending

    async def close(self) -> None:
        """End the session and everything that waits on it. May be called again, and after a loss."""
        self._end(None)
        await self._shut()

    def _lost(self, error: McpError) -> None:
        """The transport is gone. While opening, the opening decides what that means."""
        if self._opening:
            self._pump.fail_all(error)
        else:
            self._end(error)
            self._begin_shutting()

    def _end(self, error: McpError | None) -> None:
        """The session is over, from now on: everyone who waits is told. The transport is closed by `_shut`."""
        if self.closed.done():
            return
        self._pump.move(Trigger.LOST if error else Trigger.CLOSE, error.detail if error else "")
        self._pump.fail_all(error or NotReady("The session was closed.", Fault.CLOSED, may_have_run=True))
        self._pump.flush_dropped()
        self.closed.set_result(error)
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()

    def _begin_shutting(self) -> asyncio.Task[None]:
        if self._shutting is None:
            self._pump.stop_asides()
            self._shutting = asyncio.create_task(self._close_transport(), name="mcp transport close")
        return self._shutting

    async def _shut(self) -> None:
        await asyncio.shield(self._begin_shutting())
        if self.state is State.DISCONNECTING:
            self._pump.move(Trigger.CLOSED)

    async def _close_transport(self) -> None:
        if self._pump.has_transport:
            await self._pump.transport.close()

    # -- watching

    def _start_watch(self) -> None:
        """Legacy: pings after silence. Modern has no ping: there only a refused connection makes us look."""
        idle_pings = self._session.era is Era.LEGACY
        self._watch = Watch(self._pump, self._timeouts, self._ping, idle_pings=idle_pings)
        self._watching = asyncio.create_task(self._keep_watch(self._watch), name="mcp watch")

    async def _keep_watch(self, watch: Watch) -> None:
        self._lost(await watch.run())

    async def ping(self, *, timeout: float | None = None) -> float:
        """Seconds of one round trip (legacy: ping; modern: server/discover)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._ping(timeout or self._timeouts.request)
        return loop.time() - began

    async def _ping(self, seconds: float) -> dict[str, Any]:
        method = methods.PING if self._session.era is Era.LEGACY else methods.DISCOVER
        return await self._request(method, None, seconds)

    # -- lists

    async def list_tools(self) -> Listing:
        """On modern HTTP, tools with a wrong `x-mcp-header` are left out, each with a warning."""
        listing = await self._list(ListKind.TOOLS)
        return self._without_bad_headers(listing) if self._mirrors else listing

    async def list_resources(self) -> Listing:
        return await self._list(ListKind.RESOURCES)

    async def list_resource_templates(self) -> Listing:
        return await self._list(ListKind.RESOURCE_TEMPLATES)

    async def list_prompts(self) -> Listing:
        return await self._list(ListKind.PROMPTS)

    async def _list(self, kind: ListKind) -> Listing:
        """All pages; an empty list when the server did not declare the capability."""
        await self._demand_open()
        pages = Pages(kind, self._limits)
        if not offers(self._session.server_capabilities, pages.capability):
            return pages.listing()
        restarted = False
        while not pages.done:
            try:
                pages.add(await self._request(pages.method, pages.params, self._timeouts.request))
            except RpcError as exc:
                if exc.code == jsonrpc.METHOD_NOT_FOUND:
                    pages.refused(f"The server declares {pages.capability}, but does not know {pages.method}.")
                elif exc.code == jsonrpc.INVALID_PARAMS and pages.params is not None and not restarted:
                    pages, restarted = Pages(kind, self._limits), True
                else:
                    raise
        return pages.listing()

    # -- calls

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        before_send: BeforeSend | None = None,
        input_schema: Mapping[str, Any] | None = None,
        tag: Any = None,
    ) -> ToolResult:
        """`before_send(n, reason)` is awaited right before the bytes of attempt n leave (n from 1; reason: first,
        session_gone, header_mismatch): a further attempt follows only a definite rejection. `timeout` is renewed
        by progress, `total_timeout` never. `tag` comes back in the events Progress and LateAnswer. Cancelling the
        awaiting task cancels the request at the server."""
        await self._demand_open()
        ask = Ask(
            methods.TOOLS_CALL,
            {"name": name, "arguments": dict(arguments)},
            timeout or self._timeouts.tool,
            total_timeout or self._timeouts.total,
            tag=tag,
            on_progress=on_progress,
            mirrored=await self._mirrored_for(name, input_schema),
        )
        attempt, reason = 1, "first"
        while True:
            ask.before = partial(before_send, attempt, reason) if before_send else None
            generation = self._generation
            try:
                request_id, result = await self._checked(ask)
                return ToolResult(result, request_id, attempt)
            except (HttpError, RpcError) as exc:
                if attempt > 1:
                    raise
                reason = await self._repaired(exc, generation)
                if not reason:
                    raise
            if reason == "header_mismatch":
                await self.list_tools()
                ask.mirrored = self._mirrored.get(name, ())
            attempt += 1

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> dict[str, Any]:
        return await self._request(methods.RESOURCES_READ, {"uri": uri}, timeout or self._timeouts.request)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str],
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": dict(arguments)}
        return await self._request(methods.PROMPTS_GET, params, timeout or self._timeouts.request)

    async def complete(
        self,
        ref: Mapping[str, Any],
        argument: Mapping[str, str],
        context: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """`context` is sent where the revision knows it (2025-06-18 and later)."""
        params: dict[str, Any] = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None and self._session.revision and self._session.revision.completion_context:
            params["context"] = dict(context)
        return await self._request(methods.COMPLETE, params, timeout or self._timeouts.request)

    # -- one request

    async def _request(self, method: str, params: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Repeated once when a forgotten session could be renewed: the rejected request was not executed."""
        await self._demand_open()
        generation = self._generation
        ask = Ask(method, params, seconds, seconds)
        try:
            return (await self._checked(ask))[1]
        except HttpError as exc:
            if not await self._repaired(exc, generation):
                raise
        return (await self._checked(ask))[1]

    async def _checked(self, ask: Ask) -> tuple[jsonrpc.RequestId, dict[str, Any]]:
        try:
            identity, result = await self._pump.exchange(ask)
        except McpError as exc:
            if self._watch is not None:
                self._watch.suspect(exc)
            raise
        if self._session.revision is not None:
            check_result(result, ask.method, self._session.revision)
        return identity, result

    async def _repaired(self, error: McpError, generation: int) -> str:
        """Whether (and how) the request may be sent once more: only after a definite rejection."""
        if error.fault is Fault.SESSION_GONE:
            await self._renew_session(generation)
            return "session_gone"
        if isinstance(error, RpcError) and error.code == jsonrpc.HEADER_MISMATCH and self._mirrors:
            return "header_mismatch"
        return ""

    async def _renew_session(self, generation: int) -> None:
        """Initialise again; of many requests that met the same forgotten session only the first does it."""
        async with self._reopening:
            if generation != self._generation or self.state is not State.READY:
                return
            self._pump.move(Trigger.SESSION_GONE, "The server forgot the session.")
            try:
                await self._opener.reopen()
            except McpError as exc:
                self._lost(exc)
                raise
            self._generation += 1

    async def _demand_open(self) -> None:
        """Wait while a forgotten session is being renewed, then demand that the session is ready."""
        if self._reopening.locked():
            async with self._reopening:
                pass
        if self.state is not State.READY:
            raise NotReady(f"The session is {self.state}.")

    # -- mirrored arguments (modern HTTP)

    @property
    def _mirrors(self) -> bool:
        return self._session.era is Era.MODERN and self._pump.transport.exchange

    async def _mirrored_for(self, name: str, schema: Mapping[str, Any] | None) -> tuple[Mirrored, ...]:
        if not self._mirrors:
            return ()
        if schema is not None:
            try:
                return mirrored_arguments(schema)
            except BadAnnotation as exc:
                raise InvalidRequest(f"The tool cannot be called over HTTP: {exc}.") from exc
        if name not in self._mirrored:
            await self.list_tools()
        return self._mirrored.get(name, ())

    def _without_bad_headers(self, listing: Listing) -> Listing:
        kept, warnings = [], list(listing.warnings)
        self._mirrored.clear()
        for tool in listing.items:
            try:
                self._mirrored[tool["name"]] = mirrored_arguments(tool.get("inputSchema"))
                kept.append(tool)
            except BadAnnotation as exc:
                warnings.append(f"The tool {tool['name'][:100]!r} was left out: {exc}.")
        return Listing(kept, listing.truncated, warnings)
