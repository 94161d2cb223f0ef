"""The client: opens, calls, reads, follows and closes. Each kind of work has a collaborator of its own."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..core import methods, opening
from ..core.capabilities import Implementation, declares, demand_answers, derived, own_meta
from ..core.errors import Fault, McpError, NotReady
from ..core.events import AcceptedSubscriptions, Event, ListKind
from ..core.input_requests import ROOTS_CHANGED, Root
from ..core.limits import Limits
from ..core.memory import Remembered
from ..core.on_behalf import OnBehalf
from ..core.results import Connected, Listing, Step, Timeouts, ToolResult
from ..core.session import Session
from ..core.state import State, Trigger
from ..core.tasks import TaskListing, TaskOptions, TasksOffer, TaskState
from ..core.versions import Era
from ..transports.base import OpenTransport
from .answerers import Answer, Answers
from .answering import Answering
from .cache import read_key
from .collecting import Collecting
from .keep_alive import KeepAlive
from .lists import Lists
from .log_level import LogLevel
from .opener import Opener
from .pending_request import Numbered
from .pump import OnProgress, Pump, RequestSpec
from .requester import Requester
from .round_trips import BeforeSend, RoundTrips
from .steps import Steps
from .subscriptions import Subscriptions
from .tasks import Tasks


class Client:
    """One live handle on one server. Not reusable: after `close()` or a loss make a new one.

    Call all methods in the loop that created it. `on_event` is called from the reader and must return at once. Methods
    raise McpError and CancelledError only, besides what `before_send` raises.
    """

    #: Done when the connection is over: the reason for a loss, None after `close()`. Never holds an exception.
    closed: "asyncio.Future[McpError | None]"

    def __init__(
        self,
        open_transport: OpenTransport,
        *,
        client_info: Implementation,
        capabilities: Mapping[str, Any] | None = None,
        answers: Mapping[str, Answer] | None = None,
        roots: Sequence[Root] = (),
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        era: opening.EraSetting = "auto",
        remembered: Remembered | None = None,
        on_event: Callable[[Event], None],
    ) -> None:
        """`answers`: handlers of the server's questions, by method (sampling/createMessage, elicitation/create);
        roots/list is answered from `roots`. The declared capabilities follow from both, unless `capabilities` is given:
        then a capability without a handler is a ValueError. The questions asked during a call carry its `tag`."""
        answered = dict(answers or {})
        declared = derived(answered, roots=bool(roots)) if capabilities is None else capabilities
        demand_answers(declared, answered)
        limits, timeouts = limits or Limits(), timeouts or Timeouts()
        self._timeouts = timeouts
        self._session = session = Session(client_info, declared, limits)
        self._pump = pump = Pump(session, limits, on_event, self._lost)
        self._opener = Opener(session, pump, open_transport, client_info, declared, timeouts)
        self._answers = Answers(answered, roots, limits, pump.emit)
        self._answering = Answering(
            session, pump, self._answers, most=limits.open_server_requests, patience=timeouts.total
        )
        self._collecting = Collecting(session, pump, self._answers, limits)
        self._requester = Requester(session, pump, self._opener, self._answering, timeouts, self._lost)
        self._lists = Lists(self._requester, limits)
        self._tasks = Tasks(self._requester, self._lists, self._answering, self._collecting, limits)
        self._round_trips = RoundTrips(self._requester, self._collecting, limits, self._lists.relearn_mirrored)
        self._subscriptions = Subscriptions(self._requester)
        self._log_level = LogLevel(self._requester)
        self._derives = capabilities is None
        self._era: opening.EraSetting = era
        self._remembered = remembered
        self._keeping_alive: asyncio.Task[None] | None = None
        self._opening = False
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
        """Open the transport, settle era and revision. Steps: resolve, connect, handshake. With `on_step`, an HTTP
        server is first tried with a separate connection, so that the step *connect* is meaningful."""
        if self.state is not State.DISCONNECTED or self.closed.done():
            raise NotReady("A client connects once.")
        steps = Steps(on_step)
        self._opening = True
        self._pump.move(Trigger.OPEN)
        try:
            opened, self._remembered = await self._opener.open(self._era, steps, self._remembered)
            self._requester.generation += 1
        except BaseException as exc:  # a cancelled connect must leave no child behind either
            error = exc if isinstance(exc, McpError) else NotReady("Connecting was cancelled.", Fault.CANCELLED)
            steps.fail(error)
            self._end(error)
            await self._shut()
            raise
        finally:
            self._opening = False
        self._start_keep_alive()
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
            remember=self._remembered,
        )

    # -- lists
    # With `cached`, a list may come from the cache while its modern server allows that; the caller must not change it.

    async def list_tools(self, *, cached: bool = False) -> Listing:
        """On modern HTTP, tools with a wrong `x-mcp-header` are left out, each with a warning."""
        return await self._lists.read(ListKind.TOOLS, cached=cached)

    async def list_resources(self, *, cached: bool = False) -> Listing:
        return await self._lists.read(ListKind.RESOURCES, cached=cached)

    async def list_resource_templates(self, *, cached: bool = False) -> Listing:
        return await self._lists.read(ListKind.RESOURCE_TEMPLATES, cached=cached)

    async def list_prompts(self, *, cached: bool = False) -> Listing:
        return await self._lists.read(ListKind.PROMPTS, cached=cached)

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
        meta: Mapping[str, Any] | None = None,
        task: TaskOptions | None = None,
        numbered: Numbered | None = None,
        on_behalf: OnBehalf | None = None,
    ) -> ToolResult:
        """`before_send(n, reason)` is awaited right before the bytes of attempt n leave (n from 1; reason: first,
        session_gone, header_mismatch, authorization, round, url_elicitation). Another attempt is made only after a
        definite rejection, or because the server asked a question. Progress renews `timeout`, and it is paused while
        we answer the server; neither applies to `total_timeout`. `tag` is returned in events about the call: Progress,
        LateAnswer, InputRequest. `numbered` is called with the id of each request. `meta`: entries of `_meta` (traceparent, tracestate, baggage). `on_behalf`: of the agent that makes the call. Cancelling the awaiting task
        cancels the request at the server."""
        await self._requester.demand_offered("tools")
        params = {"name": name, "arguments": dict(arguments)}
        if self._tasks.declared:
            params |= await self._tasks.params_for(name, task)
        spec = RequestSpec(
            methods.TOOLS_CALL,
            params,
            timeout or self._timeouts.tool,
            total_timeout or self._timeouts.total,
            tag=tag,
            on_progress=on_progress,
            mirrored=await self._lists.mirrored_for(name, input_schema) if self._requester.mirrors else (),
            meta=own_meta(meta),
            numbered=numbered,
        )
        await self._speak_for(spec, on_behalf)
        done = await self._round_trips.perform(spec, before_send)
        result = done.result
        if done.kind == "task":
            result = await self._tasks.result_of(spec, done.request_id, result, task, done.ends)
        return ToolResult(result, done.request_id, done.attempts)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        before_send: BeforeSend | None = None,
        tag: Any = None,
        meta: Mapping[str, Any] | None = None,
        numbered: Numbered | None = None,
        cached: bool = False,
        on_behalf: OnBehalf | None = None,
    ) -> dict[str, Any]:
        """With `cached`, the result may come from the cache while a modern server allows that."""
        await self._requester.demand_offered("resources")
        key = read_key(uri)
        kept: dict[str, Any] | None = self._lists.recall(key) if cached else None
        if kept is not None:
            return kept
        seen = self._lists.cache_changes
        spec = self._ask(methods.RESOURCES_READ, {"uri": uri}, timeout, on_progress, tag, meta, numbered)
        await self._speak_for(spec, on_behalf)
        done = await self._round_trips.perform(spec, before_send)
        # A result that depends on a person's answers, or on what an agent is, must not serve the same request again.
        self._lists.remember_result(key, done.result, seen, whole=not done.rounds and on_behalf is None)
        return done.result

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        before_send: BeforeSend | None = None,
        tag: Any = None,
        meta: Mapping[str, Any] | None = None,
        numbered: Numbered | None = None,
        on_behalf: OnBehalf | None = None,
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": dict(arguments)}
        await self._requester.demand_offered("prompts")
        spec = self._ask(methods.PROMPTS_GET, params, timeout, on_progress, tag, meta, numbered)
        await self._speak_for(spec, on_behalf)
        return (await self._round_trips.perform(spec, before_send)).result

    def _ask(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        on_progress: OnProgress | None = None,
        tag: Any = None,
        meta: Mapping[str, Any] | None = None,
        numbered: Numbered | None = None,
    ) -> RequestSpec:
        """A request during which the server may ask back: a person takes longer to answer than a server."""
        idle, total = timeout or self._timeouts.request, self._timeouts.total
        return RequestSpec(
            method, params, idle, total, tag=tag, on_progress=on_progress, meta=own_meta(meta), numbered=numbered
        )

    async def _speak_for(self, spec: RequestSpec, on_behalf: OnBehalf | None) -> None:
        """Capabilities and further exchanges exist in the modern era only."""
        if on_behalf is None:
            return
        if self._session.era is Era.LEGACY:
            await self._log_level.raise_to(on_behalf.log_level)
            return
        if on_behalf.capabilities is not None:
            tasks = {"extensions": self._session.declared.get("extensions", {})}
            on_behalf = replace(on_behalf, capabilities={**on_behalf.capabilities, **tasks})
        spec.on_behalf, spec.params = on_behalf, {**(spec.params or {}), **on_behalf.added}

    async def complete(
        self,
        ref: Mapping[str, Any],
        argument: Mapping[str, str],
        context: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        before_send: BeforeSend | None = None,
        tag: Any = None,
        meta: Mapping[str, Any] | None = None,
        numbered: Numbered | None = None,
    ) -> dict[str, Any]:
        """`context` is sent where the revision knows it (2025-06-18 and later)."""
        await self._requester.demand_offered("completions")
        params: dict[str, Any] = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None and self._session.revision and self._session.revision.completion_context:
            params["context"] = dict(context)
        spec = self._ask(methods.COMPLETE, params, timeout, tag=tag, meta=meta, numbered=numbered)
        return (await self._round_trips.perform(spec, before_send)).result

    # -- tasks

    @property
    def tasks_offer(self) -> TasksOffer:
        """Which task features this session can use."""
        return self._tasks.offer

    async def resume_task(
        self,
        task_id: str,
        *,
        options: TaskOptions | None = None,
        total_timeout: float | None = None,
        tag: Any = None,
    ) -> ToolResult:
        """Follow a task of one of our earlier sessions. RemoteError (task_lost) when the server forgot it."""
        return await self._tasks.resume(task_id, options=options, total_timeout=total_timeout, tag=tag)

    async def get_task(self, task_id: str) -> TaskState:
        return await self._tasks.get(task_id)

    async def cancel_task(self, task_id: str) -> TaskState | None:
        """Legacy: the cancelled task; RpcError -32602 when it was over already. Modern: None, and the server may
        still finish it."""
        return await self._tasks.cancel(task_id)

    async def list_tasks(self) -> TaskListing:
        """All pages (2025-11-25 only; the extension has no list). Entries that are no tasks become warnings."""
        return await self._tasks.list_all()

    # -- what the server sends by itself

    async def follow(
        self, resources: Collection[str] = (), lists: Collection[ListKind] = (), tasks: Collection[str] = ()
    ) -> AcceptedSubscriptions:
        """Follow these from now on, instead of the previous set. Returns what the server agreed to; what it does not
        offer is not requested. McpError: the server could not be asked, and the previous set stays in force.

        Changes arrive as the events ListChanged and ResourceUpdated (for a task see `call_tool`). When the server stops
        sending them, the client asks again by itself: FollowingLost, then Following."""
        return await self._subscriptions.follow(resources, lists, tasks)

    @property
    def late_notifications(self) -> int:
        """The number of notifications ignored because their subscription is not, or no longer, ours."""
        return self._session.listens.foreign

    async def set_log_level(self, level: str | None) -> None:
        """The lowest severity that the server should send, one of methods.LOG_LEVELS. None: no messages (modern), or
        the server's own choice (legacy, where a level cannot be withdrawn). InvalidRequest (not_offered) when the
        server has no log."""
        await self._log_level.set(level)

    # -- roots

    async def set_roots(self, roots: Sequence[Root]) -> bool:
        """Replace the answer to roots/list, and notify the server. False: the server does not know that we have roots
        (a legacy one learns it while connecting), so they apply to the next client only."""
        self._answers.roots = tuple(roots)
        if self._derives and self._session.era is Era.MODERN:
            self._session.declare(derived(self._answers.methods, roots=bool(roots)))
        if self.state is not State.READY or not declares(self._session.declared, "roots"):
            return False
        if declares(self._session.declared, "roots", "listChanged"):
            await self._pump.notify(ROOTS_CHANGED)
        return True

    # -- ending

    async def close(self, *, flush: float = 0.0) -> None:
        """End the session and everything that waits for it. May be called again, and after a loss. `flush`: seconds in
        which a cancellation that is on its way may still leave."""
        if flush and not self.closed.done():
            await self._pump.flush_side_queue(flush)
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
        """End the session and fail everything that waits for it. `_shut` closes the transport."""
        if self.closed.done():
            return
        self._pump.move(Trigger.LOST if error else Trigger.CLOSE, error.detail if error else "")
        self._pump.fail_all(error or NotReady("The session was closed.", Fault.CLOSED, may_have_run=True))
        self._pump.flush_dropped()
        self._answering.stop()
        self._collecting.stop(error)
        self._subscriptions.stop()
        self._log_level.stop()
        self.closed.set_result(error)
        if self._keeping_alive is not None and self._keeping_alive is not asyncio.current_task():
            self._keeping_alive.cancel()

    def _begin_shutting(self) -> asyncio.Task[None]:
        if self._shutting is None:
            self._pump.stop_side_queue()
            self._shutting = asyncio.create_task(self._close_transport(), name="mcp transport close")
        return self._shutting

    async def _shut(self) -> None:
        await asyncio.shield(self._begin_shutting())
        if self.state is State.DISCONNECTING:
            self._pump.move(Trigger.CLOSED)

    @property
    def pid(self) -> int | None:
        """The pid of the server, if it is our child process."""
        return getattr(self._pump.transport, "pid", None) if self._pump.has_transport else None

    async def _close_transport(self) -> None:
        if self._pump.has_transport:
            await self._pump.transport.close()

    # -- watching

    def _start_keep_alive(self) -> None:
        modern = self._session.era is Era.MODERN
        declared = self._session.server_capabilities
        lists = [method for method, _, _, capability in methods.LISTS.values() if declares(declared, capability)]
        read = partial(self._requester.request, lists[0], None) if lists and not modern else None
        self._requester.keep_alive = keep_alive = KeepAlive(self._pump, self._timeouts, self._ping, read, modern=modern)
        self._keeping_alive = asyncio.create_task(self._run_keep_alive(keep_alive), name="mcp keep-alive")

    async def _run_keep_alive(self, keep_alive: KeepAlive) -> None:
        self._lost(await keep_alive.run())

    async def ping(self, *, timeout: float | None = None) -> float:
        """Measure one round trip, in seconds (legacy: ping; modern: server/discover)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._ping(timeout or self._timeouts.request)
        return loop.time() - began

    def check(self) -> None:
        """Something speaks against the session: find out soon whether the server still accepts it, and end it if not."""
        if self._requester.keep_alive is not None:
            self._requester.keep_alive.check()

    async def _ping(self, seconds: float) -> dict[str, Any]:
        method = methods.PING if self._session.era is Era.LEGACY else methods.DISCOVER
        return await self._requester.request(method, None, seconds)
