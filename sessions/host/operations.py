"""How each method is sent through the client, and how a result is judged that is not what its method promises."""

import json
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from sessions.client import BeforeSend, OnProgress
from sessions.domain.claims import Order
from sessions.domain.operations import completion_reference
from sessions.host.live import Live
from sessions.host.outcomes import arguments_of
from sessions.protocol import methods
from sessions.schemas import checker

Raw = dict[str, Any]


@dataclass(frozen=True)
class Request:
    order: Order
    live: Live
    on_progress: OnProgress
    before_send: BeforeSend

    @property
    def arguments(self) -> dict[str, Any]:
        return arguments_of(self.order.arguments)

    @property
    def meta(self) -> dict[str, str] | None:
        """W3C trace context (2026-07-28, `_meta`): the call's uid is the trace, so a server's own traces lead here."""
        trace = {"traceparent": f"00-{self.order.uid.hex}-{secrets.token_hex(8)}-01"}
        return trace if self.live.modern else None


@dataclass(frozen=True)
class Sender:
    """`violation`: how the result breaks what was promised, in words; empty when it does not."""

    send: Callable[[Request], Coroutine[Any, Any, Raw]]
    violation: Callable[[Order, Raw], Awaitable[str]]


def sender_of(method: str) -> Sender:
    """Every method that `sessions.domain.operations` lets into the ledger has one."""
    return _SENDERS[method]


async def _call_tool(request: Request) -> Raw:
    order, timeouts = request.order, request.live.launch.timeouts
    schema = _definition(order).get("inputSchema")
    result = await request.live.client.call_tool(
        order.target,
        request.arguments,
        timeout=timeouts.tool,
        total_timeout=timeouts.total,
        on_progress=request.on_progress,
        before_send=request.before_send,
        input_schema=schema if isinstance(schema, dict) else None,
        tag=order,
        meta=request.meta,
    )
    return result.raw


async def _read_resource(request: Request) -> Raw:
    return await request.live.client.read_resource(
        request.order.target,
        on_progress=request.on_progress,
        before_send=request.before_send,
        tag=request.order,
        meta=request.meta,
    )


async def _get_prompt(request: Request) -> Raw:
    return await request.live.client.get_prompt(
        request.order.target,
        request.arguments,
        on_progress=request.on_progress,
        before_send=request.before_send,
        tag=request.order,
        meta=request.meta,
    )


async def _complete(request: Request) -> Raw:
    asked = request.arguments
    return await request.live.client.complete(
        completion_reference(request.order.target),
        asked["argument"],
        asked.get("context"),
        before_send=request.before_send,
        tag=request.order,
        meta=request.meta,
    )


# --- what was promised -----------------------------------------------------------------------------------------------
def _definition(order: Order) -> Mapping[str, Any]:
    """The tool as the server described it last; empty when it is not in the list any more."""
    body = json.loads(order.definition) if order.definition else {}
    return body if isinstance(body, dict) else {}


async def _breaks_schema(order: Order, raw: Raw) -> str:
    schema = _definition(order).get("outputSchema")
    if not isinstance(schema, dict) or raw.get("isError") is True:
        return ""
    if "structuredContent" not in raw:
        return "The tool declares an output schema and sent no structured content."
    verdict = await checker.shared().acheck(schema, raw["structuredContent"])
    return "\n".join(f"{where or '/'}: {' '.join(words)}" for where, words in verdict.errors.items())


def _wants_list(*path: str) -> Callable[[Order, Raw], Awaitable[str]]:
    """A result without its list is shown as what it is, and called what it is."""

    async def judge(order: Order, raw: Raw) -> str:
        value: Any = raw
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return "" if isinstance(value, list) else f"The result has no list “{'.'.join(path)}”."

    return judge


_SENDERS: Mapping[str, Sender] = {
    methods.TOOLS_CALL: Sender(_call_tool, _breaks_schema),
    methods.RESOURCES_READ: Sender(_read_resource, _wants_list("contents")),
    methods.PROMPTS_GET: Sender(_get_prompt, _wants_list("messages")),
    methods.COMPLETE: Sender(_complete, _wants_list("completion", "values")),
}
