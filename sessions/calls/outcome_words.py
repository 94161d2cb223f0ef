"""How a call ended, in words for people. Three kinds of failure must not look alike, nor like a call that was never
sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions.calls import final_states, missing_features
from sessions.calls.claims import DATA_CHARS
from sessions.calls.operations import texts_of
from sessions.calls.rpc_codes import name_of
from sessions.connections.diagnosis import Explanation, explain
from sessions.enums import CallState
from sessions.mcp.core import methods, tasks
from sessions.mcp.core.errors import Fault
from sessions.models import Call, ServerTask

#: prefix of what is stored for a result that could not be checked against the tool's output schema
NOT_CHECKED = "Not checked: "
#: what is stored for a cancellation about which nothing more is known
WHILE_IT_RAN = "Cancelled while it ran."
#: what is stored for a cancellation that was not sent to the server
IN_A_ROUND = "It waited for an answer to the server's request, so there was nothing to cancel on the server."
BEFORE_A_VISIT = "It was waiting for someone to open a page, and the server had not run it."
# A response arrived but was not accepted.
_REFUSED_ANSWERS = {
    *(Fault.MESSAGE_LIMIT, Fault.INFLATED_LIMIT, Fault.VALUE_LIMIT, Fault.DEPTH_LIMIT, Fault.HEADER_LIMIT),
    *(Fault.LINE_LIMIT, Fault.STREAM_LIMIT),
}
# Which step of a call failed, in words.
_FAILED_STEPS: dict[str, str] = {
    **dict.fromkeys(
        (Fault.DNS_FAILED, Fault.CONNECTION_REFUSED, Fault.CONNECTION_LOST, Fault.TLS_FAILED, Fault.PROCESS_EXITED),
        "The connection failed",
    ),
    **dict.fromkeys(
        (
            Fault.HTTP_STATUS,
            Fault.REDIRECTED,
            Fault.UNAUTHORIZED,
            Fault.FORBIDDEN,
            Fault.ACCESS_REFUSED,
            Fault.KEY_NEEDED,
        ),
        "The request failed",
    ),
    **dict.fromkeys(
        (Fault.HOST_REFUSED, Fault.ORIGIN_REFUSED, Fault.RATE_LIMITED, Fault.SESSION_GONE),
        "The request failed",
    ),
    **dict.fromkeys(
        (Fault.NO_ANSWER, Fault.NOT_MCP, Fault.INVALID_MESSAGE, Fault.INVALID_RESULT, Fault.STDOUT_NOISE),
        "Unusable answer",
    ),
    Fault.AUTHORIZATION_FAILED: "Could not get a token",
}


@dataclass(frozen=True)
class OutcomeWords:
    """`remedy` says what to do next. `code` and `data` belong to a JSON-RPC error."""

    tone: str
    icon: str
    title: str
    text: str = ""
    remedy: str = ""
    code: int | None = None
    code_name: str = ""
    data: str = ""
    #: a person must sign in to the authorization server of this call's server
    sign_in: bool = False
    #: the call may work in the legacy era
    legacy_may_help: bool = False


def outcome_of(call: Call, answer: str = "") -> OutcomeWords | None:
    """None while the call is running, or if it simply succeeded. `answer`: the beginning of the raw result, if the
    reader may see it."""
    state = CallState(call.state)
    match state:
        case CallState.SUCCEEDED if call.detail:
            return OutcomeWords("warn", "alert-triangle", "The result was not stored", call.detail)
        case CallState.TOOL_ERROR if call.detail:
            return OutcomeWords("bad", "alert-triangle", "The tool reported an error", call.detail)
        case CallState.TOOL_ERROR:
            text = "The call completed, but the tool reported a failure. See its result below."
            helps = missing_features.taken_away(call, answer)
            remedy = missing_features.RECONNECT if helps else ""
            return OutcomeWords(
                "bad", "alert-triangle", "The tool reported an error", text, remedy, legacy_may_help=helps
            )
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


def _rpc_error(call: Call) -> OutcomeWords:
    code, session = call.error_code or 0, call.session
    helps = missing_features.taken_away(call, call.error_message)
    remedy = (
        missing_features.RECONNECT if helps else missing_features.remedy_of(code, call.error_data, session, call.server)
    )
    return OutcomeWords(
        "bad",
        "alert-circle",
        "JSON-RPC error",
        call.error_message,
        remedy or texts_of(call.method).refused,
        code=code,
        code_name=name_of(code, session.revision if session else "", call.method),
        data=call.error_data,
        legacy_may_help=helps,
    )


def _failed(call: Call) -> OutcomeWords:
    explanation = explain(call.fault, call.detail, call.server)
    if call.fault in _REFUSED_ANSWERS:
        text = f"{call.detail} {texts_of(call.method).unknown_outcome} Only its answer was rejected."
        return OutcomeWords("viol", "lock", explanation.title, text, explanation.remedy)
    if call.fault == Fault.INSUFFICIENT_SCOPE:
        signs_in = call.server is not None
        return OutcomeWords("warn", "key", explanation.title, call.detail, explanation.remedy, sign_in=signs_in)
    step = _FAILED_STEPS.get(call.fault, "The call failed")
    title = _titled(step, explanation) if call.fault else step
    return OutcomeWords("bad", "plug-x", title, explanation.cause or call.detail, explanation.remedy)


def _unknown(call: Call) -> OutcomeWords:
    remedy = ""
    if call.late_result_id is not None:
        text = "Its answer came after the call had ended."
    elif call.method == methods.TOOLS_CALL and ServerTask.objects.followed_on().filter(call_id=call.pk).exists():
        text = "The server runs it as a task, whose result will be shown here."
    else:
        text = "The call was sent, but its answer was lost. mcpadmin does not repeat it; check the server before running it again."
        remedy = texts_of(call.method).remedy
    return OutcomeWords("warn", "clock-x", "Outcome unknown", f"{call.detail} {text}".strip(), remedy)


def late_answer_of(call: Call, answer: Any = None) -> OutcomeWords:
    """`answer`: the late result as stored, if it is shown on the card."""
    late, text = "Late answer", "It arrived after the call had ended."
    if not isinstance(answer, dict):
        return OutcomeWords("warn", "clock", late, text)
    if answer.keys() == {"error"} and isinstance(answer["error"], dict):
        return _late_error(call, answer["error"])
    if call.method == methods.TOOLS_CALL and tasks.announces(answer, asked_for=False):
        text = "The server reported the call's task only after the call had ended."
        return OutcomeWords("warn", "clock", late, text, texts_of(call.method).remedy)
    if call.method == methods.TOOLS_CALL and declares_error(answer):
        late = f"{late}: the tool reported an error"
    return OutcomeWords("warn", "clock", late, f"{text} It is shown below.")


def _late_error(call: Call, error: Mapping[str, Any]) -> OutcomeWords:
    code, data = error.get("code"), error.get("data")
    code = code if isinstance(code, int) else None
    return OutcomeWords(
        "warn",
        "clock",
        "Late answer: JSON-RPC error",
        f"The server answered with an error after the call had ended: {error.get('message') or 'no message'}",
        texts_of(call.method).remedy,
        code=code,
        code_name="" if code is None else name_of(code, call.session.revision if call.session else "", call.method),
        data="" if data is None else json.dumps(data, ensure_ascii=False)[:DATA_CHARS],
    )


def declares_error(result: Mapping[str, Any]) -> bool:
    """Some servers use a value other than `true` that clients with MCP SDKs treat as true."""
    flag = result.get("isError")
    return flag == 1 or (isinstance(flag, str) and flag.lower() == "true")


def _cancelled(call: Call) -> OutcomeWords:
    by = f" by {call.cancel_requested_by}" if call.cancel_requested_by else ""
    if call.sent_at is None:
        return OutcomeWords("warn", "player-stop", f"Cancelled{by}", call.detail or "It did not reach the server.")
    if IN_A_ROUND in call.detail or BEFORE_A_VISIT in call.detail:
        return OutcomeWords("warn", "player-stop", f"Cancelled{by}", call.detail)
    text = f"The server was notified. MCP does not confirm cancellations, {texts_of(call.method).cancelled}"
    return OutcomeWords("warn", "player-stop", f"Cancelled{by}", f"{why_cancelled(call)} {text}".strip())


def why_cancelled(call: Call) -> str:
    """Why a call was cancelled while it ran, besides the request to cancel it; empty if nothing more is known."""
    why = call.detail.removesuffix(texts_of(call.method).unknown_outcome).strip()
    return "" if why == WHILE_IT_RAN else why


_NEVER_SENT = {
    CallState.EXPIRED: ("clock-x", "Expired: not sent", "It is safe to run again."),
    CallState.NOT_SENT: ("ban", "Not sent", "It did not reach the server; it is safe to run again."),
    CallState.REFUSED: ("lock", "Refused", "It did not reach the server."),
}
_NO_SESSION = {final_states.NOBODY_SENT_IT.detail, final_states.NOT_READY.detail}


def _never_sent(call: Call, state: CallState) -> OutcomeWords:
    icon, title, remedy = _NEVER_SENT[state]
    if call.detail in _NO_SESSION:
        remedy = "Check that a worker is running and that the session can connect."
    tone = "viol" if state is CallState.REFUSED else "warn"
    if call.fault:
        explanation = explain(call.fault, call.detail, call.server)
        return OutcomeWords(tone, icon, _titled(title, explanation), explanation.cause, explanation.remedy)
    return OutcomeWords(tone, icon, title, call.detail, remedy)


def _titled(what: str, explanation: Explanation) -> str:
    """Only `what` if the cause begins with the title, which would otherwise appear twice."""
    return what if explanation.cause.startswith(explanation.title) else f"{what}: {explanation.title}"
