"""How the client sends each method, and how a result is checked against what its method promises."""

import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from servers.schemas import checker
from sessions.calls.claims import PendingCall, Upstream
from sessions.calls.operations import completion_reference
from sessions.calls.outcome_words import NOT_CHECKED
from sessions.host.calls.outcomes import UNCHECKED, Conformity, arguments_of
from sessions.host.calls.progress import CallProgress
from sessions.host.open_session import OpenSession
from sessions.mcp.client import BeforeSend
from sessions.mcp.core import methods
from sessions.mcp.core.on_behalf import OnBehalf
from sessions.mcp.core.tasks import TaskOptions, support_of

Raw = dict[str, Any]


@dataclass(frozen=True)
class OperationRequest:
    call: PendingCall
    live: OpenSession
    progress: CallProgress
    before_send: BeforeSend

    @property
    def arguments(self) -> dict[str, Any]:
        return arguments_of(self.call.arguments)

    @cached_property
    def traceparent(self) -> str:
        """W3C trace context (2026-07-28, `_meta`): the call's uid is the trace id, so a server's own traces lead
        here. Empty in the legacy era, which has no trace context."""
        return f"00-{self.call.uid.hex}-{secrets.token_hex(8)}-01" if self.live.modern else ""

    @property
    def meta(self) -> dict[str, str] | None:
        return {"traceparent": self.traceparent} if self.traceparent else None

    @property
    def on_behalf(self) -> OnBehalf | None:
        return self.call.agent.on_behalf if self.call.agent is not None else None

    @property
    def upstream(self) -> Upstream:
        spoken = self.live.spoken_revision
        return Upstream(self.progress.request_id, self.traceparent, *spoken)


@dataclass(frozen=True)
class Sender:
    """`check` says whether the result is what its method promises."""

    send: Callable[[OperationRequest], Coroutine[Any, Any, Raw]]
    check: Callable[[PendingCall, Raw], Awaitable[Conformity]]


def sender_of(method: str) -> Sender:
    """Every method that `sessions.calls.operations` accepts has a sender."""
    return _SENDERS[method]


async def _call_tool(request: OperationRequest) -> Raw:
    call, timeouts = request.call, request.live.launch.timeouts
    tool = _definition(call)
    schema = tool.get("inputSchema")
    result = await request.live.client.call_tool(
        call.target,
        request.arguments,
        timeout=timeouts.tool,
        total_timeout=timeouts.total,
        on_progress=request.progress,
        before_send=request.before_send,
        input_schema=schema if isinstance(schema, dict) else None,
        tag=call,
        meta=request.meta,
        numbered=request.progress.numbered,
        on_behalf=request.on_behalf,
        task=TaskOptions(on_task=request.progress.task, support=support_of(tool) if tool else None, ask=call.as_task),
    )
    return result.raw


async def _read_resource(request: OperationRequest) -> Raw:
    return await request.live.client.read_resource(
        request.call.target,
        on_progress=request.progress,
        before_send=request.before_send,
        tag=request.call,
        meta=request.meta,
        numbered=request.progress.numbered,
        on_behalf=request.on_behalf,
    )


async def _get_prompt(request: OperationRequest) -> Raw:
    return await request.live.client.get_prompt(
        request.call.target,
        request.arguments,
        on_progress=request.progress,
        before_send=request.before_send,
        tag=request.call,
        meta=request.meta,
        numbered=request.progress.numbered,
        on_behalf=request.on_behalf,
    )


async def _complete(request: OperationRequest) -> Raw:
    asked = request.arguments
    return await request.live.client.complete(
        completion_reference(request.call.target),
        asked["argument"],
        asked.get("context"),
        before_send=request.before_send,
        tag=request.call,
        meta=request.meta,
        numbered=request.progress.numbered,
    )


# --- what was promised -----------------------------------------------------------------------------------------------
def _definition(call: PendingCall) -> Mapping[str, Any]:
    """The tool as the server last described it. Empty if it is no longer in the list."""
    body = json.loads(call.definition) if call.definition else {}
    return body if isinstance(body, dict) else {}


async def _matches_schema(call: PendingCall, raw: Raw) -> Conformity:
    schema = _definition(call).get("outputSchema")
    if not isinstance(schema, dict) or raw.get("isError") is True:
        return UNCHECKED
    if "structuredContent" not in raw:
        return Conformity("The tool declares an output schema, but sent no structured content.", valid=False)
    verdict = await checker.shared().acheck(schema, raw["structuredContent"])
    if verdict.unable:
        return Conformity(f"{NOT_CHECKED}{verdict.reason}")
    words = "\n".join(f"{where or '/'}: {' '.join(words)}" for where, words in verdict.errors.items())
    return Conformity(words, valid=verdict.state == "valid")


def _requires_list(*path: str) -> Callable[[PendingCall, Raw], Awaitable[Conformity]]:
    """A result without its list is still shown, with this violation."""

    async def check(call: PendingCall, raw: Raw) -> Conformity:
        value: Any = raw
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return UNCHECKED if isinstance(value, list) else Conformity(f"The result has no list “{'.'.join(path)}”.")

    return check


_SENDERS: Mapping[str, Sender] = {
    methods.TOOLS_CALL: Sender(_call_tool, _matches_schema),
    methods.RESOURCES_READ: Sender(_read_resource, _requires_list("contents")),
    methods.PROMPTS_GET: Sender(_get_prompt, _requires_list("messages")),
    methods.COMPLETE: Sender(_complete, _requires_list("completion", "values")),
}
