"""Calls tools, reads resources and gets prompts of a server."""

from collections.abc import Mapping
from typing import Any

from ..core import methods
from ..core.capabilities import own_meta
from ..core.errors import InvalidRequest
from ..core.headers import BadAnnotation, Mirrored, mirrored_arguments
from ..core.results import ToolResult
from ..core.tasks import TaskOptions
from .cache import read_key
from .pump import OnProgress, RequestSpec
from .rounds import BeforeSend, Rounds
from .tasks import Tasks


class Calls(Rounds, Tasks):
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
    ) -> ToolResult:
        """`before_send(n, reason)` is awaited right before the bytes of attempt n leave (n from 1; reason: first,
        session_gone, header_mismatch, authorization, round, url_elicitation). Another attempt is made only after a
        definite rejection, or because the server asked a question. Progress renews `timeout`, and it is paused while
        we answer the server; neither applies to `total_timeout`. `tag` is returned in events about the call: Progress,
        LateAnswer, Asked. `meta`: entries of `_meta` (traceparent, tracestate, baggage). Cancelling the awaiting task
        cancels the request at the server."""
        await self._demand_offered("tools")
        params = {"name": name, "arguments": dict(arguments)}
        spec = RequestSpec(
            methods.TOOLS_CALL,
            params | await self._task_params(name, task),
            timeout or self._timeouts.tool,
            total_timeout or self._timeouts.total,
            tag=tag,
            on_progress=on_progress,
            mirrored=await self._mirrored_for(name, input_schema),
            meta=own_meta(meta),
        )
        done = await self._performed(spec, before_send)
        result = done.result
        if done.kind == "task":
            result = await self._task_result(spec, done.request_id, result, task, done.ends)
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
        cached: bool = False,
    ) -> dict[str, Any]:
        """With `cached`, the result may come from the cache while a modern server allows that."""
        await self._demand_offered("resources")
        key = read_key(uri)
        kept: dict[str, Any] | None = self._recall(key) if cached else None
        if kept is not None:
            return kept
        seen = self._cache_changes
        spec = self._ask(methods.RESOURCES_READ, {"uri": uri}, timeout, on_progress, tag, meta)
        done = await self._performed(spec, before_send)
        # A result that depends on a person's answers must not serve the same request again.
        self._remember_result(key, done.result, seen, whole=not done.rounds)
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
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": dict(arguments)}
        await self._demand_offered("prompts")
        spec = self._ask(methods.PROMPTS_GET, params, timeout, on_progress, tag, meta)
        return (await self._performed(spec, before_send)).result

    def _ask(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        on_progress: OnProgress | None = None,
        tag: Any = None,
        meta: Mapping[str, Any] | None = None,
    ) -> RequestSpec:
        """A request during which the server may ask back: a person takes longer to answer than a server."""
        idle, total = timeout or self._timeouts.request, self._timeouts.total
        return RequestSpec(method, params, idle, total, tag=tag, on_progress=on_progress, meta=own_meta(meta))

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
    ) -> dict[str, Any]:
        """`context` is sent where the revision knows it (2025-06-18 and later)."""
        await self._demand_offered("completions")
        params: dict[str, Any] = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None and self._session.revision and self._session.revision.completion_context:
            params["context"] = dict(context)
        spec = self._ask(methods.COMPLETE, params, timeout, tag=tag, meta=meta)
        return (await self._performed(spec, before_send)).result

    async def _relearn(self, spec: RequestSpec) -> None:
        if spec.method == methods.TOOLS_CALL and spec.params is not None:
            await self.list_tools()
            spec.mirrored = self._mirrored.get(spec.params["name"], ())

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
