"""How a call ended, from what the client returned or raised."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from servers.audit import payload_privacy
from servers.crypto import SealError
from servers.enums import RedactedPart
from servers.models import Payload
from servers.privacy import redaction
from servers.schemas.secrets import may_hold_secret
from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall, Required
from sessions.calls.outcome_words import BEFORE_A_VISIT, IN_A_ROUND, NOT_CHECKED, WHILE_IT_RAN, declares_error
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.host.answer_redaction import Redactor, dumped, masked_words
from sessions.host.db import Database, DatabaseAway
from sessions.mcp.core.errors import Fault, McpError, ProtocolError, RpcError
from sessions.mcp.core.input_requests import Origin

#: length as JSON text: a larger answer is searched in a thread
LARGE_CHARS = 64 * 1024
_threads = ThreadPoolExecutor(2, "host-masking")

MAY_HAVE_RUN = "The tool may have run."
# The server did say how the call ended. Only what the tool did before that is unknown.
_NO_ANSWER_TO_COME = {Fault.REDIRECTED, Fault.INPUT_REFUSED, Fault.TASK_CANCELLED}


@dataclass(frozen=True)
class ResultMasks:
    """Masks what a server sent in answer to one call: its own secrets, then what the privacy rules name."""

    redactor: Redactor
    subject: redaction.Subject

    @classmethod
    def of(cls, call: PendingCall, lease: Lease, redactor: Redactor) -> "ResultMasks":
        schema = None
        if may_hold_secret(call.definition):
            schema = arguments_of(call.definition).get("outputSchema")
        return cls(redactor, redaction.Subject(RedactedPart.RESULT, lease.server_id, call.target, schema))

    def json_text(self, value: Any) -> tuple[str, int]:
        """The masked JSON text, and how many values the rules masked."""
        return redaction.redacted(self.redactor.json_text(value), self.subject, payload_privacy.latest())

    def text(self, text: str) -> str:
        return masked_words(text, self.redactor)


@dataclass(frozen=True)
class Conformity:
    """`words` say how a result violates what its method promises, or why that could not be checked. `valid`: whether it
    matches the tool's output schema; None: there is none, or it could not be checked."""

    words: str = ""
    valid: bool | None = None


UNCHECKED = Conformity()


def requires_input(raw: dict[str, Any], *, modern: bool) -> bool:
    """A legacy server has no such results: there, `resultType` is a member like any other."""
    return modern and raw.get("resultType") == "input_required"


def of_result(
    raw: dict[str, Any], masks: ResultMasks, conformity: Conformity = UNCHECKED, *, modern: bool, tool: bool = True
) -> CallOutcome:
    """`modern`: the era of the server. Only a tool result can declare itself an error."""
    required, words = None, conformity.words
    if requires_input(raw, modern=modern):
        required = Required(raw.get("requestState"))
        raw = {name: value for name, value in raw.items() if name != "requestState"}
    else:
        if not modern and "resultType" in raw:
            raw = {name: value for name, value in raw.items() if name != "resultType"}
        if tool:
            words = "\n".join(filter(None, (_misshapen(raw), words)))
    state = CallState.TOOL_ERROR if tool and declares_error(raw) else CallState.SUCCEEDED
    text, count = masks.json_text(raw)
    if words and count and not words.startswith(NOT_CHECKED):  # they quote the result
        words = "Details are left out: values in the result are masked."
    return CallOutcome(
        state,
        text,
        schema_violation=masks.text(words),
        schema_valid=conformity.valid,
        redacted=count,
        required=required,
    )


async def of_answer(answer: Any, outcome: Callable[[], CallOutcome]) -> CallOutcome:
    """The result of `outcome` for `answer`. Searching a large one for secrets takes seconds, during which the loop
    continues."""
    if len(dumped(answer)) <= LARGE_CHARS:
        return outcome()
    return await asyncio.get_running_loop().run_in_executor(_threads, outcome)


def _misshapen(raw: dict[str, Any]) -> str:
    """How the result deviates from the shape that every tool result has."""
    content, words = raw.get("content"), []
    if not isinstance(content, list):
        words.append("The result has no list “content”.")
    elif not all(isinstance(entry, dict) for entry in content):
        words.append("An entry of “content” is not an object.")
    if not isinstance(raw.get("isError", False), bool):
        words.append("“isError” is not a boolean.")
    return "\n".join(words)


def of_error(error: McpError, masks: ResultMasks, unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """`unknown_outcome` says what is unknown when no answer came."""
    if isinstance(error, RpcError):
        return _rpc_error(error, masks)
    if error.fault is Fault.CANCELLED:
        return cancelled(masks.text(error.detail), unknown_outcome)
    detail = masks.text(error.detail)
    if not error.may_have_run:
        return CallOutcome(CallState.FAILED, fault=error.fault, detail=detail)
    if isinstance(error, ProtocolError) or error.fault in _NO_ANSWER_TO_COME:
        return _with_unknown_outcome(CallState.FAILED, error.fault, detail, unknown_outcome)
    return _with_unknown_outcome(CallState.OUTCOME_UNKNOWN, error.fault, detail, unknown_outcome)


async def of_failure(error: McpError, masks: ResultMasks, unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """Like `of_error`, for an error whose data may be large."""
    data = error.data if isinstance(error, RpcError) else None
    return await of_answer(data, partial(of_error, error, masks, unknown_outcome))


def cancelled(detail: str = "", unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """Cancelled after the claim: how far the server got is unknown."""
    return _with_unknown_outcome(CallState.CANCELLED, Fault.CANCELLED, detail or WHILE_IT_RAN, unknown_outcome)


def cancelled_while_waiting(origin: Origin, detail: str = "", unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """Cancelled while it waited to be sent again, with an answer or after a visit: the server had no request of it."""
    if origin == "error":
        words = f"{detail} {BEFORE_A_VISIT}".strip()
        return CallOutcome(CallState.CANCELLED, fault=Fault.CANCELLED, detail=words)
    return cancelled(f"{detail} {IN_A_ROUND}".strip(), unknown_outcome)


def task_not_cancellable(detail: str = "", unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """The call was cancelled, but its task cannot be: it is still followed."""
    words = (
        f"{detail or 'It was cancelled.'} The server does not support cancelling tasks, so the task continues there."
    )
    return _with_unknown_outcome(CallState.OUTCOME_UNKNOWN, Fault.CANCELLED, words, unknown_outcome)


def of_internal_error(exc: Exception, unknown_outcome: str = MAY_HAVE_RUN) -> CallOutcome:
    """A bug on our side after the claim: whether the bytes were sent is unknown."""
    words = f"mcpadmin failed while it ran this call ({type(exc).__name__})."
    return _with_unknown_outcome(CallState.OUTCOME_UNKNOWN, "internal_error", words, unknown_outcome)


def not_stored(outcome: CallOutcome, problem: Exception) -> CallOutcome:
    """The replacement of an outcome that the database refuses: how the call ended, without anything that the server
    sent."""
    return CallOutcome(
        outcome.state,
        fault=outcome.fault,
        detail=f"The database refused what the server sent ({type(problem.__cause__).__name__}), so it was not stored.",
        error_code=outcome.error_code,
        schema_valid=outcome.schema_valid,
        may_have_run=outcome.may_have_run,
        upstream=outcome.upstream,
    )


async def packed(db: Database, outcome: CallOutcome) -> Payload | None:
    """The row of a large result, for the transaction that writes it. None for a small one, and if the database is
    unavailable or the result cannot be encrypted: then the transaction fails in the same way and reports it."""
    if not outcome.has_large_result:
        return None
    try:
        return await db.read(partial(claims.packed, outcome))
    except (DatabaseAway, SealError):
        return None


def _with_unknown_outcome(state: CallState, fault: str, detail: str, unknown_outcome: str) -> CallOutcome:
    """No usable answer came, and how far the server got is unknown."""
    return CallOutcome(state, fault=fault, detail=_with_warning(detail, unknown_outcome), may_have_run=True)


def _rpc_error(error: RpcError, masks: ResultMasks) -> CallOutcome:
    return CallOutcome(
        CallState.RPC_ERROR,
        fault=error.fault,
        detail="",
        error_code=_storable_code(error.code),
        error_message=masks.text(error.message),
        error_data="" if error.data is None else masks.json_text(error.data)[0],
    )


def of_error_object(error: dict[str, Any], masks: ResultMasks) -> CallOutcome:
    """A JSON-RPC error object that arrived late. It is kept unchanged."""
    text, count = masks.json_text({"error": error})
    return CallOutcome(CallState.RPC_ERROR, text, redacted=count)


def _storable_code(code: int) -> int | None:
    """A hostile server may send any integer; the column holds 64 bits."""
    return code if -(2**63) <= code < 2**63 else None


def _with_warning(detail: str, unknown_outcome: str) -> str:
    return detail if unknown_outcome.rstrip(".").lower() in detail.lower() else f"{detail.rstrip()} {unknown_outcome}"


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments as stored. Not parsed by orjson, which turns integers beyond 64 bits into floats."""
    value = json.loads(text)
    return value if isinstance(value, dict) else {}
