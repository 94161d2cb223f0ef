"""How a call ended, in terms of the protocol. A model must be able to act on it, and no client may mistake an unknown
outcome for a failure that it can retry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from servers.audit import payloads
from sessions.agents.call_request import call_request_of
from sessions.agents.calls.questions import input_required
from sessions.agents.exchange import Exchange
from sessions.calls.operations import texts_of
from sessions.calls.outcome_words import why_cancelled
from sessions.enums import CallState
from sessions.mcp.core import json_text, jsonrpc, methods
from sessions.mcp.core.jsonrpc import MISSING_CAPABILITY
from sessions.mcp.core.versions import Era
from sessions.mcp.server import answers, rewriting
from sessions.mcp.server.refusals import FORBIDDEN, NOT_SENT, RESOURCE_NOT_FOUND, Refusal
from sessions.models import Call

CALL_KEY: Final = "mcpadmin/call"
OUTCOME_KEY: Final = "mcpadmin/outcome"
#: for a call that failed or was cancelled: whether it may have had an effect
MAY_HAVE_RUN_KEY: Final = "mcpadmin/mayHaveRun"
#: for a request that is temporarily refused: it did not become a call, and may be repeated
NO_CALL: Final = {OUTCOME_KEY: CallState.NOT_SENT.value, MAY_HAVE_RUN_KEY: False}
#: responses for longer results are built in a thread
LONG_CHARS: Final = 64 * 1024
#: above this, structured content is not parsed: that takes 50 ms, during which no other thread runs
MANY_VALUES: Final = 100_000
_STRUCTURE: Final = "structuredContent"
#: errors between us and the server: never of concern to the agent
_OURS: Final = frozenset(
    {
        jsonrpc.PARSE_ERROR,
        jsonrpc.INVALID_REQUEST,
        jsonrpc.METHOD_NOT_FOUND,
        jsonrpc.HEADER_MISMATCH,
        jsonrpc.UNSUPPORTED_VERSION,
    }
)


@dataclass(frozen=True)
class Ended:
    """A call in its final state, with its result as stored."""

    call: Call
    result: str | None


def ended(call: Call) -> Ended:
    """Read the result. Call it in a thread."""
    return Ended(call, payloads.read(call.result) if call.result is not None else None)


def message(exchange: Exchange, found: Ended) -> bytes:
    """The response. Raises Refusal."""
    call, state = found.call, CallState(found.call.state)
    if state in (CallState.SUCCEEDED, CallState.TOOL_ERROR):
        return _result(exchange, found)
    if state is CallState.RPC_ERROR:
        raise _rpc_error(exchange, call)
    if exchange.method != methods.TOOLS_CALL:
        raise _failure(call, state)
    return tool_error(exchange, _words(exchange.named(call.target), call, state), call)


def _result(exchange: Exchange, found: Ended) -> bytes:
    if found.result is None:
        words = found.call.detail or "The result was erased."  # the detail says why it was never stored
        if exchange.method == methods.TOOLS_CALL:
            return tool_error(exchange, words, found.call)
        raise Refusal(200, jsonrpc.INTERNAL_ERROR, words)
    value, structure = _parsed(found.result, exchange)
    if exchange.via is not None:
        value = rewriting.result(value, exchange.method, exchange.via.outward)
    if value.get("resultType") == "input_required":
        return _input_required(exchange, found.call, value.get("inputRequests"))
    if not isinstance(value.get("isError", False), bool):
        value["isError"] = CallState(found.call.state) is CallState.TOOL_ERROR
    result = answers.translated(value, exchange.method, exchange.era)
    if not structure:
        return jsonrpc.result(exchange.id, result)
    return answers.answer(exchange.id, f'{jsonrpc.text_of(result)[:-1]},"{_STRUCTURE}":{structure}}}')


def _parsed(text: str, exchange: Exchange) -> tuple[dict[str, Any], str]:
    """A result, and the text of its structured content if that is not parsed: it is passed on unchanged, and parsing
    it could delay all other agents."""
    if json_text.values_in(text) > MANY_VALUES and exchange.method == methods.TOOLS_CALL and _STRUCTURE in text:
        rest, structure = json_text.without(text, _STRUCTURE)
        value: dict[str, Any] = json.loads(rest)
        as_it_is = structure.startswith("{") or (exchange.era is Era.MODERN and structure.startswith("["))
        if as_it_is and isinstance(value.get("content"), list):
            return value, structure
    value = json.loads(text)
    return value, ""


def _input_required(exchange: Exchange, call: Call, inputs: Mapping[str, Any] | None) -> bytes:
    """A modern agent answers with a further request. A legacy one must have joined a modern agent's call through an
    equal request or key: it has no way to answer."""
    if exchange.era is Era.MODERN:
        return input_required(exchange, call_request_of(exchange), call.uid, inputs)
    words = (
        f"{call.server_name} asks for input before it answers, and this protocol version cannot provide it later. "
        f"Request {exchange.named(call.target)} again as a new request."
    )
    if exchange.method == methods.TOOLS_CALL:
        return tool_error(exchange, words, call)
    raise Refusal(200, jsonrpc.INTERNAL_ERROR, words, {"call": str(call.uid), "reason": "input_required"})


def tool_error(exchange: Exchange, text: str, call: Call | None = None, more: Mapping[str, Any] | None = None) -> bytes:
    """What the model reads; `_meta` refers to `call` and contains `more`."""
    meta: dict[str, Any] = {}
    if call is not None:
        meta = {CALL_KEY: str(call.uid), OUTCOME_KEY: call.state, MAY_HAVE_RUN_KEY: call.effect_unknown}
    meta |= more or {}
    return jsonrpc.result(exchange.id, answers.tool_error(text, exchange.era, meta))


# --- what a JSON-RPC error of the server becomes -------------------------------------------------------------------------
def _rpc_error(exchange: Exchange, call: Call) -> Refusal:
    code, data = call.error_code or jsonrpc.INTERNAL_ERROR, _data(call)
    if exchange.method == methods.RESOURCES_READ and _not_found(code, data):
        code = jsonrpc.INVALID_PARAMS if exchange.era is Era.MODERN else RESOURCE_NOT_FOUND
        return Refusal(200, code, call.error_message, {"uri": exchange.named(call.target)})
    if code == MISSING_CAPABILITY and exchange.era is Era.MODERN:
        return Refusal(400, code, call.error_message, data)
    if code in _OURS or code == MISSING_CAPABILITY:
        upstream = {"code": code, "message": call.error_message}
        return Refusal(200, jsonrpc.INTERNAL_ERROR, f"{call.server_name}: {call.error_message}", {"upstream": upstream})
    return Refusal(200, code, call.error_message, data)


def _not_found(code: int, data: Any) -> bool:
    return code == RESOURCE_NOT_FOUND or (code == jsonrpc.INVALID_PARAMS and isinstance(data, dict) and "uri" in data)


def _data(call: Call) -> Any:
    try:
        return json.loads(call.error_data) if call.error_data else None
    except ValueError:  # truncated to the column's length
        return call.error_data


# --- no response from the server --------------------------------------------------------------------------------------
def _words(name: str, call: Call, state: CallState) -> str:
    """The words for the model, which may be about to retry. `name`: as the model knows the tool."""
    detail = call.detail.strip()
    if state is CallState.OUTCOME_UNKNOWN or (state is CallState.FAILED and call.may_have_run):
        return (
            f"It is not known whether {name} ran: {detail or 'no answer arrived.'} "
            "Do not call it again before checking the server to see whether it had an effect."
        )
    if state is CallState.CANCELLED:
        by = f" by {call.cancel_requested_by}" if call.cancel_requested_by else ""
        if call.sent_at is None:
            return f"{name} was cancelled{by} before it was sent. It did not run."
        if not call.may_have_run:
            return f"{name} was cancelled{by} before it ran. It did not run."
        why = why_cancelled(call)
        return f"{name} was cancelled{by} while it ran, {texts_of(call.method).cancelled} {why}".strip()
    if state in (CallState.EXPIRED, CallState.NOT_SENT):
        return f"{name} was not sent: {detail} It can be called again."
    if state is CallState.REFUSED:
        return f"{name} was refused: {detail}"
    return f"{call.server_name} failed, and {name} did not run: {detail}"


def _failure(call: Call, state: CallState) -> Refusal:
    """Reading changes nothing on the server, so these requests may be repeated, unless a person refused them."""
    words = f"{call.server_name}: {call.detail.strip() or CallState(state).label}"
    data = {"call": str(call.uid), "reason": call.fault or state.value}
    if state is CallState.REFUSED:
        return Refusal(200, FORBIDDEN, words, data)
    code = NOT_SENT if state in (CallState.EXPIRED, CallState.NOT_SENT) else jsonrpc.INTERNAL_ERROR
    return Refusal(200, code, words, {**data, "retrySafe": True})
