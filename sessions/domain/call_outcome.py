"""How a call ended, in words for people: three failures that must never look alike, and what was never sent."""

from dataclasses import dataclass

from sessions.domain.diagnosis import explain
from sessions.domain.operations import words_of
from sessions.domain.rpc_codes import name_of
from sessions.enums import CallState
from sessions.models import Call
from sessions.protocol.errors import Fault

# What came back, and was not read.
_REFUSED_ANSWERS = {
    *(Fault.MESSAGE_LIMIT, Fault.INFLATED_LIMIT, Fault.VALUE_LIMIT, Fault.DEPTH_LIMIT, Fault.HEADER_LIMIT),
    *(Fault.LINE_LIMIT, Fault.STREAM_LIMIT),
}


@dataclass(frozen=True)
class Outcome:
    """`remedy` says what to do next. `code` and `data` belong to a JSON-RPC error."""

    tone: str
    icon: str
    title: str
    text: str = ""
    remedy: str = ""
    code: int | None = None
    code_name: str = ""
    data: str = ""
    #: somebody has to go to the authorization server of this call's server
    sign_in: bool = False


def outcome_of(call: Call) -> Outcome | None:
    """None while it runs and when it simply succeeded."""
    state = CallState(call.state)
    match state:
        case CallState.TOOL_ERROR:
            text = "The call went through; the tool itself says that it failed. Its answer is below."
            return Outcome("bad", "alert-triangle", "The tool reported an error", text)
        case CallState.RPC_ERROR:
            return _rpc_error(call)
        case CallState.FAILED:
            return _failed(call)
        case CallState.OUTCOME_UNKNOWN:
            return _unknown(call)
        case CallState.CANCELLED:
            return _cancelled(call)
        case CallState.EXPIRED | CallState.NOT_SENT | CallState.REFUSED:
            return _never_sent(call, state)
    return None


def _rpc_error(call: Call) -> Outcome:
    code = call.error_code or 0
    return Outcome(
        "bad",
        "alert-circle",
        "JSON-RPC error",
        call.error_message,
        words_of(call.method).refused,
        code=code,
        code_name=name_of(code, call.session.revision if call.session else ""),
        data=call.error_data,
    )


def _failed(call: Call) -> Outcome:
    explanation = explain(call.fault, call.detail, call.server)
    if call.fault in _REFUSED_ANSWERS:
        text = f"{call.detail} {words_of(call.method).unsure} Only its answer was refused."
        return Outcome("viol", "lock", explanation.title, text, explanation.remedy)
    if call.fault == Fault.INSUFFICIENT_SCOPE:
        signs_in = call.server is not None
        return Outcome("warn", "key", explanation.title, call.detail, explanation.remedy, sign_in=signs_in)
    title = f"The connection failed: {explanation.title}" if call.fault else "The call failed"
    return Outcome("bad", "plug-x", title, explanation.cause or call.detail, explanation.remedy)


def _unknown(call: Call) -> Outcome:
    text = (
        f"{call.detail} " if call.detail else ""
    ) + "The call was sent, and no answer can come any more. mcpadmin never repeats such a call by itself."
    return Outcome("warn", "clock-x", "Outcome unknown", text, words_of(call.method).remedy)


def _cancelled(call: Call) -> Outcome:
    by = f" by {call.cancel_requested_by}" if call.cancel_requested_by else ""
    if call.sent_at is None:
        return Outcome("warn", "player-stop", f"Cancelled{by}", call.detail or "It did not reach the server.")
    text = f"The server was told. MCP has no answer to a cancellation, {words_of(call.method).cancelled}"
    return Outcome("warn", "player-stop", f"Cancelled{by}", text)


_NEVER_SENT = {
    CallState.EXPIRED: ("clock-x", "Expired: not sent", "Check that a worker runs and that the session can connect."),
    CallState.NOT_SENT: ("ban", "Not sent", "Nothing happened at the server; it is safe to run it again."),
    CallState.REFUSED: ("lock", "Refused", "Nothing happened at the server."),
}


def _never_sent(call: Call, state: CallState) -> Outcome:
    icon, title, remedy = _NEVER_SENT[state]
    tone = "viol" if state is CallState.REFUSED else "warn"
    if call.fault:
        explanation = explain(call.fault, call.detail, call.server)
        return Outcome(tone, icon, f"{title}: {explanation.title}", explanation.cause, explanation.remedy)
    return Outcome(tone, icon, title, call.detail, remedy)
