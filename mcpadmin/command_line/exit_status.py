"""How a command ended, as a pipeline sees it: docs/command-line.md lists the numbers."""

from enum import IntEnum
from typing import Any, Final

from sessions.mcp.core import jsonrpc
from sessions.mcp.core.errors import Fault, HttpError, LocalError, McpError, RpcError
from sessions.mcp.server.refusals import (
    DUPLICATE,
    FORBIDDEN,
    HELD,
    NOT_SENT,
    QUOTA,
    RESOURCE_NOT_FOUND,
    UNAUTHORIZED,
)

#: keys in a result that mcpadmin wrote itself (sessions/agents/calls/outcomes.py)
_CALL_KEY: Final = "mcpadmin/call"
_OUTCOME_KEY: Final = "mcpadmin/outcome"
_MAY_HAVE_RUN_KEY: Final = "mcpadmin/mayHaveRun"
_REFUSED_CODES: Final = frozenset({DUPLICATE, FORBIDDEN, jsonrpc.INVALID_PARAMS, RESOURCE_NOT_FOUND})
#: nothing ran so far; the same request again leads to a call that waits for approval
_LATER_CODES: Final = frozenset({HELD, QUOTA, NOT_SENT})
_TOKEN_FAULTS: Final = frozenset({Fault.UNAUTHORIZED, Fault.KEY_NEEDED})
_GATEWAY_STATUS: Final = frozenset({502, 503, 504})


class ExitStatus(IntEnum):
    SUCCESS = 0
    #: the tool ran and reported an error
    TOOL_ERROR = 1
    #: the command line is wrong; nothing was sent
    USAGE = 2
    #: mcpadmin refused: token, scope, rule, unknown name, arguments. Nothing was sent to the server
    REFUSED = 3
    #: mcpadmin or the server cannot be reached or has no room, or the call waits for approval. Nothing ran, and it may be
    #: repeated
    UNAVAILABLE = 4
    #: the call may have run: never repeat it before checking
    OUTCOME_UNKNOWN = 5
    #: --timeout passed; a call was cancelled and may have run
    TIMEOUT = 6
    #: the server failed, or answered with a protocol error; or a list is incomplete
    FAILED = 7
    #: Ctrl-C or SIGTERM while no call was in flight
    INTERRUPTED = 130


class Ending(Exception):
    """Ends a command without success. `words` are for a person; `call` is the id of its call, if known."""

    def __init__(self, status: ExitStatus, words: str, call: str = "") -> None:
        super().__init__(words)
        self.status, self.words, self.call = status, words, call


def ending_of(error: McpError, *, call: str = "", calling: bool = False) -> Ending:
    """`calling`: a tool was being called, so a missing response is not a failure that may be retried."""
    if error.fault in _TOKEN_FAULTS:
        said = error.words if isinstance(error, HttpError) else ""
        if call and calling:
            words = f"{said or 'This token is no longer valid.'} The call continues."
            return Ending(ExitStatus.OUTCOME_UNKNOWN, words, call)
        return Ending(ExitStatus.REFUSED, said or "mcpadmin does not accept this token.")
    if isinstance(error, RpcError):
        if calling and isinstance(error.data, dict) and error.data.get("retrySafe") is False:
            return Ending(ExitStatus.OUTCOME_UNKNOWN, error.message, call)  # it may have been placed anyway
        if not (call and calling):
            return Ending(_status_of_code(error), error.message, call)
        # The call is in the ledger: an error of its server, unless mcpadmin stopped reporting on the call.
        stopped = error.code in (UNAUTHORIZED, QUOTA, NOT_SENT)
        return Ending(ExitStatus.OUTCOME_UNKNOWN if stopped else ExitStatus.FAILED, error.message, call)
    words = error.words or error.detail if isinstance(error, HttpError) else error.detail
    if error.fault is Fault.RATE_LIMITED:
        return Ending(ExitStatus.UNAVAILABLE, words)
    if calling and error.may_have_run:
        return Ending(ExitStatus.OUTCOME_UNKNOWN, words, call)
    if error.permanent or isinstance(error, LocalError):
        return Ending(ExitStatus.REFUSED, words, call)
    status = error.status if isinstance(error, HttpError) else 0
    gone = not error.may_have_run or error.fault in (Fault.CONNECTION_LOST, Fault.TIMEOUT) or status in _GATEWAY_STATUS
    return Ending(ExitStatus.UNAVAILABLE if gone else ExitStatus.FAILED, words, call)


def _status_of_code(error: RpcError) -> ExitStatus:
    if error.code in _LATER_CODES or error.http_status in _GATEWAY_STATUS:
        return ExitStatus.UNAVAILABLE
    refused = error.code in _REFUSED_CODES or (error.http_status or 0) in range(400, 500)
    return ExitStatus.REFUSED if refused else ExitStatus.FAILED


def status_of(result: dict[str, Any], *, call: str) -> tuple[ExitStatus, str]:
    """The status for a tool's result, and the id of the call that it came from. `call`: the id that mcpadmin gave this
    request; it gives none to a request that it refuses."""
    if result.get("isError") is not True:
        return ExitStatus.SUCCESS, call
    meta = result.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    named, outcome = meta.get(_CALL_KEY), meta.get(_OUTCOME_KEY)
    named = named if isinstance(named, str) else ""  # mcpadmin names none if the request did not become a call
    if isinstance(outcome, str) and (named or not call):
        if outcome == "outcome_unknown" or meta.get(_MAY_HAVE_RUN_KEY) is True:
            return ExitStatus.OUTCOME_UNKNOWN, call or named
        if call in ("", named):  # a server does not know the id: it cannot say that its tool did not run
            return _BY_OUTCOME.get(outcome, ExitStatus.FAILED), named
    return (ExitStatus.TOOL_ERROR if call else ExitStatus.REFUSED), call


_BY_OUTCOME: Final = {
    "held": ExitStatus.UNAVAILABLE,
    "not_sent": ExitStatus.UNAVAILABLE,
    "expired": ExitStatus.UNAVAILABLE,
    "refused": ExitStatus.REFUSED,
    # from an earlier call that was cancelled, and may still run
    "requested": ExitStatus.OUTCOME_UNKNOWN,
    "sent": ExitStatus.OUTCOME_UNKNOWN,
}
