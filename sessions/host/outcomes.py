"""How a call ended, from what the client handed back or raised (decisions G1)."""

import json
from typing import Any

from sessions.domain.claims import Outcome
from sessions.enums import CallState
from sessions.host.redaction import Redactor
from sessions.protocol.errors import Fault, McpError, ProtocolError, RpcError

MAY_HAVE_RUN = "The tool may have run."
# The server did say how it ends: nothing is left unknown but what the tool did until then.
_NO_ANSWER_TO_COME = {Fault.REDIRECTED, Fault.INPUT_REFUSED, Fault.TASK_CANCELLED}


def of_result(raw: dict[str, Any], redactor: Redactor, violation: str = "", *, tool: bool = True) -> Outcome:
    """Only a tool's result can say of itself that it is an error."""
    state = CallState.TOOL_ERROR if tool and raw.get("isError") is True else CallState.SUCCEEDED
    return Outcome(state, redactor.json_text(raw), schema_violation=redactor.text(violation))


def of_error(error: McpError, redactor: Redactor, unsure: str = MAY_HAVE_RUN) -> Outcome:
    """`unsure` says what is left open where no answer came."""
    if isinstance(error, RpcError):
        return _rpc_error(error, redactor)
    if error.fault is Fault.CANCELLED:
        return cancelled(redactor.text(error.detail), unsure)
    detail = redactor.text(error.detail)
    if not error.may_have_run:
        return Outcome(CallState.FAILED, fault=error.fault, detail=detail)
    if isinstance(error, ProtocolError) or error.fault in _NO_ANSWER_TO_COME:
        return Outcome(CallState.FAILED, fault=error.fault, detail=_with_warning(detail, unsure))
    return Outcome(CallState.OUTCOME_UNKNOWN, fault=error.fault, detail=_with_warning(detail, unsure))


def cancelled(detail: str = "", unsure: str = MAY_HAVE_RUN) -> Outcome:
    """After the claim: how far the server came is its own affair."""
    words = _with_warning(detail or "Cancelled while it ran.", unsure)
    return Outcome(CallState.CANCELLED, fault=Fault.CANCELLED, detail=words)


def of_fault_of_ours(exc: Exception, unsure: str = MAY_HAVE_RUN) -> Outcome:
    """A bug on this side, after the claim: nobody can say whether the bytes left."""
    words = f"mcpadmin failed while it ran this call ({type(exc).__name__}). {unsure}"
    return Outcome(CallState.OUTCOME_UNKNOWN, fault="internal_error", detail=words)


def _rpc_error(error: RpcError, redactor: Redactor) -> Outcome:
    return Outcome(
        CallState.RPC_ERROR,
        fault=error.fault,
        detail="",
        error_code=_storable_code(error.code),
        error_message=redactor.text(error.message),
        error_data="" if error.data is None else redactor.json_text(error.data),
    )


def of_error_object(error: dict[str, Any], redactor: Redactor) -> Outcome:
    """A JSON-RPC error object that came late. It is kept as the answer that it is."""
    return Outcome(CallState.RPC_ERROR, redactor.json_text({"error": error}))


def _storable_code(code: int) -> int | None:
    """A hostile server may send any integer; the column holds 64 bits."""
    return code if -(2**63) <= code < 2**63 else None


def _with_warning(detail: str, unsure: str) -> str:
    return detail if unsure.rstrip(".").lower() in detail.lower() else f"{detail.rstrip()} {unsure}"


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments as they were stored. Not by orjson, which turns integers beyond 64 bits into floats."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}
