"""Calls that become tasks: starts, follows, resumes after a restart, cancels and lists them."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

from ..core import methods, offered
from ..core import tasks as protocol
from ..core.errors import Fault, InvalidRequest, McpError, RpcError, TransportError
from ..core.events import Event, LateAnswer, ListChanged, ListKind, NotDelivered, Progress, StateChanged
from ..core.jsonrpc import RequestId
from ..core.limits import Limits
from ..core.pagination import Pages
from ..core.results import ToolResult
from ..core.rounds import question
from ..core.tasks import Support, TaskListing, TaskOptions, TasksOffer, TaskState
from ..core.versions import Era
from .answering import Answering
from .collecting import Collecting
from .lists import Lists
from .pump import OnProgress, RequestSpec
from .requester import Requester
from .task_run import TaskRun

log = logging.getLogger(__name__)

#: we ended the wait ourselves: the server need not continue
_WE_GAVE_UP: Final = frozenset({Fault.INPUT_REFUSED, Fault.INPUT_NOT_OFFERED, Fault.ROUND_LIMIT})
_CANCEL_SECONDS = 5.0


class Tasks:
    def __init__(
        self, requester: Requester, lists: Lists, answering: Answering, collecting: Collecting, limits: Limits
    ) -> None:
        self._requester, self._session, self._pump = requester, requester.session, requester.pump
        self._lists, self._answering, self._collecting, self._limits = lists, answering, collecting, limits
        #: `execution.taskSupport` of each tool; None: not known, or no longer known
        self._supports: dict[str, Support] | None = None
        self._cancelling: set[asyncio.Task[None]] = set()  # the loop alone would not keep them alive

    @property
    def offer(self) -> TasksOffer:
        """Which task features this session can use."""
        revision = self._session.revision
        if revision is None:
            return TasksOffer()
        return protocol.offer_of(self._session.server_capabilities, self._session.declared, revision)

    # -- for people

    async def resume(
        self,
        task_id: str,
        *,
        options: TaskOptions | None = None,
        total_timeout: float | None = None,
        tag: Any = None,
    ) -> ToolResult:
        await self._demand("call")
        ends = asyncio.get_running_loop().time() + (total_timeout or self._requester.timeouts.total)
        result = await self._followed(task_id, None, options or TaskOptions(), ends, tag)
        return ToolResult(result, task_id)

    async def get(self, task_id: str) -> TaskState:
        await self._demand("call")
        result = await self._requester.request(methods.TASKS_GET, {"taskId": task_id}, self._requester.timeouts.request)
        return protocol.state_of(result, self._session.era)

    async def cancel(self, task_id: str) -> TaskState | None:
        await self._demand("cancel")
        result = await self._requester.request(
            methods.TASKS_CANCEL, {"taskId": task_id}, self._requester.timeouts.request
        )
        return protocol.state_of(result, Era.LEGACY) if self._session.era is Era.LEGACY else None

    async def list_all(self) -> TaskListing:
        await self._demand("list")
        pages = Pages(methods.TASKS, self._limits)
        while not pages.done:
            try:
                pages.add(await self._requester.request(pages.method, pages.params, self._requester.timeouts.request))
            except RpcError as exc:
                if not pages.ended_by(exc.code):
                    raise
        listing = pages.listing()
        items, warnings = [], list(listing.warnings)
        for entry in listing.items:
            try:
                items.append(protocol.state_of(entry, Era.LEGACY))
            except McpError as exc:
                warnings.append(exc.detail)
        return TaskListing(items, warnings, listing.limited_by)

    async def _demand(self, feature: Literal["call", "list", "cancel"]) -> None:
        await self._requester.demand_open()
        if getattr(self.offer, feature):
            return
        modern = self._session.era is Era.MODERN
        if modern and feature != "list" and not protocol.declares_extension(self._session.declared):
            words = f"This client did not declare the extension {protocol.EXTENSION}."
            raise InvalidRequest(words, Fault.NOT_OFFERED)
        raise offered.refusal(self._session.server_capabilities, "tasks", feature)

    # -- for calls

    @property
    def declared(self) -> bool:
        """Whether the server knows tasks: `params_for` may add something."""
        return "tasks" in self._session.server_capabilities

    async def params_for(self, name: str, options: TaskOptions | None) -> dict[str, Any]:
        """What a call adds to its parameters to become a task. Nothing where server or tool do not offer it; a tool
        that requires a task gets one even if the caller did not ask for it."""
        if self._session.era is Era.MODERN or not self.offer.call:
            return {}
        support = (options.support if options else None) or await self._support_of(name)
        if support == "forbidden" or (support == "optional" and (options is None or not options.ask)):
            return {}
        ttl = options.ttl_ms if options else None
        if ttl is not None and ttl <= 0:
            raise InvalidRequest(f"{ttl} ms is not a valid lifetime for a task.")
        if self._cancel_late not in self._pump.listeners:
            self._pump.listeners.append(self._cancel_late)
        return {"task": {} if ttl is None else {"ttl": ttl}}

    def _cancel_late(self, event: Event) -> None:
        """The answer to a call that was given up: the task that it names is cancelled instead."""
        result = event.result if type(event) is LateAnswer and event.method == methods.TOOLS_CALL else None
        if result is not None and protocol.announces(result, asked_for=False):
            self._cancel_aside(result["task"]["taskId"])

    async def _support_of(self, name: str) -> Support:
        """The tool's `execution.taskSupport`; the tools are listed once, until they change."""
        if self._supports is None:
            if self._forget_supports not in self._pump.listeners:
                self._pump.listeners.append(self._forget_supports)
            listing = await self._lists.read(ListKind.TOOLS)
            self._supports = {tool["name"]: protocol.support_of(tool) for tool in listing.items}
        return self._supports.get(name, "forbidden")

    def _forget_supports(self, event: Event) -> None:
        if type(event) is StateChanged or (type(event) is ListChanged and event.kind is ListKind.TOOLS):
            self._supports = None

    async def result_of(
        self, ask: RequestSpec, identity: RequestId, result: dict[str, Any], options: TaskOptions | None, ends: float
    ) -> dict[str, Any]:
        """The final result of a call that the server made a task; `ends`: the loop time that bounds the wait."""
        state = protocol.created(result, self._session.era)
        on_event = partial(_deliver_progress, identity, ask.on_progress)
        if ask.on_progress is not None and self._session.era is Era.LEGACY:
            self._session.keep_token(identity, ask.tag)
            self._pump.listeners.append(on_event)
        try:
            return await self._followed(state.task_id, state, options or TaskOptions(), ends, ask.tag)
        finally:
            if on_event in self._pump.listeners:
                self._pump.listeners.remove(on_event)
                self._session.drop_token(identity)

    async def _followed(
        self, task_id: str, state: TaskState | None, options: TaskOptions, ends: float, tag: Any
    ) -> dict[str, Any]:
        run = self._run(task_id, options, ends, tag)
        self._pump.listeners.append(run.on_event)
        self._answering.task_tags[task_id] = tag
        try:
            async with asyncio.timeout_at(ends):
                return await run.result(state)
        except TimeoutError:
            ending = (
                "; the server was asked to cancel it" if self._cancel_aside(task_id) else "; it continues on the server"
            )
            words = f"The total timeout was reached before the task {task_id[:60]!r} ended{ending}."
            raise TransportError(Fault.TOTAL_DEADLINE, words, may_have_run=True) from None
        except asyncio.CancelledError:
            self._cancel_aside(task_id)
            raise
        except McpError as exc:
            if exc.fault in _WE_GAVE_UP:
                self._cancel_aside(task_id)
            error = self._not_before_it_ran(exc)
            if error is exc:
                raise
            raise error from exc
        finally:
            self._pump.listeners.remove(run.on_event)
            self._answering.task_tags.pop(task_id, None)

    def _run(self, task_id: str, options: TaskOptions, ends: float, tag: Any) -> TaskRun:
        loop = asyncio.get_running_loop()

        async def request(method: str, params: dict[str, Any], seconds: float | None) -> dict[str, Any]:
            return await self._requester.request(method, params, seconds or max(ends - loop.time(), 0.001))

        async def answer(key: str, asked: dict[str, Any]) -> Mapping[str, Any]:
            answers = await self._collecting.collect({of_task(key): question(asked)}, origin="task", tag=tag)
            given: Mapping[str, Any] = answers[of_task(key)]
            return given

        def of_task(key: str) -> str:
            return f"{task_id}/{key}"  # the server may use the same key in several tasks

        def undelivered(key: str) -> None:
            self._pump.emit(NotDelivered("The server did not accept an answer to a task's request.", of_task(key)))

        return TaskRun(
            task_id,
            self._session.era,
            options,
            request=request,
            answer=answer,
            undelivered=undelivered,
            seconds=self._requester.timeouts.request,
        )

    def _not_before_it_ran(self, error: McpError) -> McpError:
        """The call became a task: it may have run, whatever ended the wait."""
        if error.fault is Fault.NOT_READY and self._pump.over is not None:
            return self._pump.ended_while_running(self._pump.over)  # the same cause, described better
        return error if error.may_have_run else error.again(may_have_run=True)

    def _cancel_aside(self, task_id: str) -> bool:
        """Cancel the task at the server, without waiting. False: it cannot be sent, or is not offered."""
        if self._pump.over is not None or not self.offer.cancel:
            return False
        task = asyncio.create_task(self._cancel_quietly(task_id), name="mcp task cancel")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)
        return True

    async def _cancel_quietly(self, task_id: str) -> None:
        try:
            await self._requester.request(methods.TASKS_CANCEL, {"taskId": task_id}, _CANCEL_SECONDS)
        except McpError as exc:
            log.debug("the server could not be asked to cancel a task: %s", exc)


def _deliver_progress(identity: RequestId, on_progress: OnProgress | None, event: Event) -> None:
    """Progress of a task carries the token of the call that started it."""
    if type(event) is not Progress or event.request_id != identity or on_progress is None:
        return
    try:
        on_progress(event.progress, event.total, event.message)
    except Exception:  # the owner's fault must not kill the reader of its own connection
        log.exception("the progress handler failed")
