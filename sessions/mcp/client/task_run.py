"""Waits for one task: polls it, answers its requests for input, returns its result."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ..core import jsonrpc, methods
from ..core import tasks as protocol
from ..core.errors import Fault, HttpError, LocalError, McpError, RemoteError, RpcError, TransportError
from ..core.events import Event, OtherNotification, StateChanged
from ..core.refusals import in_one_line, with_words
from ..core.tasks import Ended, Fetch, Finished, Status, TaskOptions, TaskState
from ..core.versions import Era

log = logging.getLogger(__name__)

#: (method, params, seconds or None for the rest of the total time) -> result; McpError
Request = Callable[[str, dict[str, Any], float | None], Awaitable[dict[str, Any]]]
#: (key, request for input) -> the plain answer; McpError ends the wait
Answer = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]


class TaskRun:
    """Follows one task in the caller's own asyncio task; `seconds` bounds each poll. Use once. `undelivered` is called with
    the key of an answer that the server did not take."""

    def __init__(
        self,
        task_id: str,
        era: Era,
        options: TaskOptions,
        *,
        request: Request,
        answer: Answer,
        undelivered: Callable[[str], None],
        seconds: float,
    ) -> None:
        self._task_id, self._era, self._options = task_id, era, options
        self._request, self._answer, self._undelivered = request, answer, undelivered
        self._seconds = seconds
        self._misses = 0
        self._poll = protocol.POLL
        #: seconds until the next poll
        self._pause_for = 0.0
        self._wake = asyncio.Event()
        self._hint: asyncio.TimerHandle | None = None
        self._fetching: asyncio.Task[dict[str, Any] | RpcError] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        #: keys of requests for input already handled: each is answered once in the life of a task
        self._taken: set[str] = set()

    async def result(self, state: TaskState | None) -> dict[str, Any]:
        """Wait until the task is over: its result, or McpError. Has no deadline: the caller sets one."""
        try:
            while True:
                if state is not None and (result := await self._stepped(state)) is not None:
                    return result
                await self._pause()
                if (fetched := self._harvested()) is not None:
                    return self._outcome(await self._last_look(), fetched)
                state = await self._look()
        finally:
            await self._stop_helpers()

    def on_event(self, event: Event) -> None:
        """A notification about this task, or a change of the session's state, makes us poll soon."""
        if type(event) is StateChanged:
            self._wake.set()
        elif self._hint is None and self._is_news(event):
            # A server may send any number of these; polls keep a minimum interval.
            self._hint = asyncio.get_running_loop().call_later(protocol.POLL_LEAST, self._wake.set)

    def _is_news(self, event: Event) -> bool:
        if type(event) is not OtherNotification or event.method not in (methods.TASK_STATUS, methods.TASK_CHANGED):
            return False
        return bool(event.params.get("taskId") == self._task_id)

    async def _stepped(self, state: TaskState) -> dict[str, Any] | None:
        """Do what this state asks for. The result, once there is one."""
        self._emit(state)
        self._poll = self._pause_for = state.poll
        step = protocol.next_step(state, self._era, self._taken)
        if isinstance(step, Finished):
            return step.result
        if isinstance(step, Ended):
            raise step.error
        if isinstance(step, Fetch):
            if state.over:
                return self._outcome(state, await self._fetched())
            self._begin_fetching()
        else:
            for key, request in step.inputs.items():
                self._begin_answering(key, request)
        return None

    def _emit(self, state: TaskState) -> None:
        if self._options.on_task is None:
            return
        try:
            self._options.on_task(state)
        except Exception:  # a bug of the owner must not lose the result of its own call
            log.exception("the task handler failed")

    # -- looking

    async def _look(self) -> TaskState | None:
        """None when the poll failed and is worth another try."""
        try:
            result = await self._request(methods.TASKS_GET, {"taskId": self._task_id}, self._seconds)
        except McpError as exc:
            self._missed(exc)
            return None
        self._misses = 0
        state = protocol.state_of(result, self._era)
        if state.task_id != self._task_id:
            raise protocol.lost(self._task_id, why="it answered with another task")
        return state

    async def _last_look(self) -> TaskState | None:
        """The outcome came while the task still asked for input: report its end, if the server still knows the task."""
        try:
            state = await self._look()
        except McpError:
            return None
        if state is None or not state.over:
            return None
        self._emit(state)
        return state

    def _missed(self, error: McpError) -> None:
        if isinstance(error, RpcError):
            if error.code == jsonrpc.INVALID_PARAMS:
                raise protocol.lost(self._task_id, error.message) from error
            if error.code in (jsonrpc.METHOD_NOT_FOUND, jsonrpc.MISSING_CAPABILITY):
                raise self._unfollowed(methods.TASKS_GET, error) from error
        if isinstance(error, LocalError) or error.permanent:
            raise error
        self._misses += 1
        pause = protocol.pause_after_miss(self._misses, self._poll)
        if pause is None:
            if isinstance(error, RpcError):
                raise self._unfollowed(methods.TASKS_GET, error) from error
            raise error
        retry_after = error.retry_after if isinstance(error, HttpError) else None
        self._pause_for = min(max(retry_after or 0.0, pause), protocol.POLL_MOST)

    def _unfollowed(self, method: str, error: RpcError) -> RemoteError:
        """An error of a request about the task says nothing about the call, which may still succeed."""
        detail = f"The task {self._task_id[:60]!r} cannot be tracked. The server answered {method} with {error.code}."
        return RemoteError(Fault.TASK_LOST, with_words(detail, in_one_line(error.message)), may_have_run=True)

    async def _pause(self) -> None:
        """Wait until the next poll is due, or an event makes one worthwhile."""
        if self._pause_for:
            try:
                async with asyncio.timeout(self._pause_for):
                    await self._wake.wait()
            except TimeoutError:
                pass  # nothing happened
        self._wake.clear()
        self._drop_hint()

    def _drop_hint(self) -> None:
        if self._hint is not None:
            self._hint.cancel()
            self._hint = None

    # -- fetching (2025-11-25)

    def _begin_fetching(self) -> None:
        """While this request waits, the server asks its questions on the same stream."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch(), name="mcp task result")
            self._fetching.add_done_callback(self._on_fetched)

    def _on_fetched(self, fetching: asyncio.Task[dict[str, Any] | RpcError]) -> None:
        """After a temporary failure, it is requested again with the next poll: otherwise we would retry as fast as it
        fails."""
        if fetching.cancelled() or not _passes(fetching.exception()):
            self._wake.set()

    async def _fetch(self) -> dict[str, Any] | RpcError:
        """An error is an answer too: that of the task, if it failed."""
        try:
            return await self._request(methods.TASKS_RESULT, {"taskId": self._task_id}, None)
        except RpcError as error:
            return error

    async def _fetched(self) -> dict[str, Any] | RpcError:
        """The outcome of a task that is over: it comes at once, and fetching it twice does no harm."""
        try:
            return await self._fetch_once()
        except (TransportError, HttpError) as exc:
            if exc.permanent:
                raise
            self._fetching = None
        return await self._fetch_once()

    def _outcome(self, state: TaskState | None, fetched: dict[str, Any] | RpcError) -> dict[str, Any]:
        """`state`: in which the task ended, None if unknown. `tasks/result` answers for a failed task with its error."""
        if not isinstance(fetched, RpcError):
            return fetched if state is None else protocol.fetched(state, fetched)
        if state is not None and state.status is Status.FAILED:
            raise fetched
        raise self._unfollowed(methods.TASKS_RESULT, fetched) from fetched

    async def _fetch_once(self) -> dict[str, Any] | RpcError:
        self._begin_fetching()
        assert self._fetching is not None  # noqa: S101  just begun
        try:
            async with asyncio.timeout(self._seconds):
                return await self._fetching
        except TimeoutError:
            words = f"The server did not send the result of a finished task in time ({self._seconds:g} s)."
            raise TransportError(Fault.TIMEOUT, words, may_have_run=True) from None

    def _harvested(self) -> dict[str, Any] | RpcError | None:
        """The outcome of the helper tasks: what `tasks/result` answered, or the error that ends the wait."""
        for task in [task for task in self._answering if task.done()]:
            self._answering.discard(task)
            task.result()
        fetching = self._fetching
        if fetching is None or not fetching.done():
            return None
        self._fetching = None
        error = fetching.exception()
        if error is None:
            return fetching.result()
        if not _passes(error):
            raise error
        log.debug("tasks/result was interrupted and will be requested again: %s", error)
        return None

    # -- answering (extension)

    def _begin_answering(self, key: str, request: dict[str, Any]) -> None:
        self._taken.add(key)
        task = asyncio.create_task(self._answer_one(key, request), name="mcp task input")
        self._answering.add(task)
        task.add_done_callback(lambda _: self._wake.set())

    async def _answer_one(self, key: str, request: dict[str, Any]) -> None:
        answer = await self._answer(key, request)
        try:
            await self._update(key, answer)
        except McpError as exc:
            self._undelivered(key)
            if not isinstance(exc, RpcError):
                raise
            if (
                exc.code != jsonrpc.INVALID_PARAMS
            ):  # else no longer wanted, or the task is over: the next poll shows which
                raise self._unfollowed(methods.TASKS_UPDATE, exc) from exc

    async def _update(self, key: str, answer: Mapping[str, Any]) -> None:
        params = {"taskId": self._task_id, "inputResponses": {key: dict(answer)}}
        send = partial(self._request, methods.TASKS_UPDATE, params, self._seconds)
        for last in (False, False, True):
            try:
                await send()
                return
            except McpError as exc:
                if last or isinstance(exc, LocalError | RpcError) or exc.permanent:
                    raise

    async def _stop_helpers(self) -> None:
        self._drop_hint()
        helpers: list[asyncio.Task[Any]] = [*self._answering]
        if self._fetching is not None:
            helpers.append(self._fetching)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)


def _passes(error: BaseException | None) -> bool:
    """Whether this is a failure after which the same request may succeed."""
    return isinstance(error, (TransportError, HttpError)) and not error.permanent
