"""Translates between the protocol's server requests and the inbox's rows: what a question is about, and what is sent to
the server."""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from servers.audit import payload_privacy
from servers.privacy import redaction
from sessions.calls.agent_calls import CallingAgent
from sessions.calls.claims import PendingCall
from sessions.enums import QuestionKind, QuestionState
from sessions.host.answer_redaction import Redactor, dumped, masked_words
from sessions.host.launch import Launch
from sessions.inbox.questions import SUMMARY_CHARS, NewQuestion
from sessions.inbox.reads import Settled
from sessions.inbox.visit_address import read_address
from sessions.mcp.core import input_requests as rules
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.input_requests import InputRequest, Refused

#: characters of one question as JSON text
QUESTION_CHARS: Final = 2 * 1024 * 1024
URL_CHARS: Final = 8 * 1024
#: what a person opens, and what an answer must match: a detected secret is not masked in it, or the answer would be
#: wrong
_USED: Final = ("url", "requestedSchema")
_ACTIONS: Final = {
    QuestionState.ACCEPTED: "accept",
    QuestionState.DECLINED: "decline",
    QuestionState.CANCELLED: "cancel",
}


def answered(launch: Launch) -> tuple[str, ...]:
    """What this server may request. A capability that is switched off is not even declared."""
    switched = {rules.SAMPLE: launch.answers_sampling, rules.ELICIT: launch.answers_elicitation}
    return tuple(method for method, on in switched.items() if on)


def covered(asked: InputRequest, agent: CallingAgent) -> bool:
    """Whether the agent that made the call can answer this, or people may. What a session declared was declared for all
    of them. A legacy agent whose token does not ask people gets the error that names a URL: its client understands
    it."""
    if agent.asks_people:
        return True
    if asked.origin == "error" and agent.on_behalf.capabilities is None:
        return False
    return rules.refusal(asked.method, asked.params, agent.capabilities) is None


async def refuse(asked: InputRequest) -> Mapping[str, Any]:
    """The response of *Test connection*. It declares what a session declares, but asks no person."""
    raise Refused(message="This is a connection test, so server requests are refused.")


def new_question(
    asked: InputRequest, call: PendingCall | None, redactor: Redactor, patience: float, total: float
) -> NewQuestion:
    """Raises Refused for a request that no page could show."""
    _require_room(dumped(asked.params))  # searching for secrets takes time
    params = _masked(asked.params, redactor)
    _require_room(params)
    kind = _kind(asked)
    if kind is QuestionKind.URL and not _address(asked.params.get("url")):
        raise Refused(jsonrpc.INVALID_PARAMS, "The request contains no URL.")
    return NewQuestion(
        uid=uuid.uuid4(),
        kind=kind,
        method=asked.method,
        origin=asked.origin,
        summary=masked_words(_words(asked)[: 4 * SUMMARY_CHARS], redactor),
        params=params,
        refused=redactor.text(_refused(asked)) if kind is QuestionKind.URL else "",
        call=call,
        patience=patience,
        total=total,
    )


def _require_room(params: str) -> None:
    if len(params) > QUESTION_CHARS:
        raise Refused(
            jsonrpc.INVALID_PARAMS, f"The request has more than {QUESTION_CHARS:,} characters, which is a fixed limit."
        )


def _masked(params: Mapping[str, Any], redactor: Redactor) -> str:
    """The masked parameters as JSON text."""
    words = redactor.json_text({name: value for name, value in params.items() if name not in _USED})
    masked = redaction.detected_in_json(words, payload_privacy.latest())
    return redactor.json_text(params if masked == words else {**params, **json.loads(masked)})


def _kind(asked: InputRequest) -> QuestionKind:
    if asked.method == rules.SAMPLE:
        return QuestionKind.SAMPLING
    return QuestionKind.URL if asked.params.get("mode") == "url" else QuestionKind.FORM


def _address(url: Any) -> bool:
    return isinstance(url, str) and 0 < len(url) <= URL_CHARS


def _refused(asked: InputRequest) -> str:
    """Why this request is declined without asking a person: no page would open the URL."""
    why = read_address(asked.params.get("url")).refused
    return f"The link is not safe to open. {why}" if why else ""


def _words(asked: InputRequest) -> str:
    """The server's own text: the message of an elicitation, or the last text that a model would have read."""
    if asked.method == rules.ELICIT:
        message = asked.params.get("message")
        return message if isinstance(message, str) else ""
    messages = asked.params.get("messages")
    found = [text for text in map(_text, messages) if text] if isinstance(messages, list) else []
    return found[-1] if found else ""


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            return text
    return ""


# --- what is sent to the server ---------------------------------------------------------------------------------------
def by_person(settled: Settled) -> bool:
    return settled.state in _ACTIONS


def answer_params(asked: InputRequest, settled: Settled | None) -> Mapping[str, Any]:
    """Raises Refused if the protocol has no result that expresses it."""
    action = _ACTIONS.get(settled.state) if settled is not None else None
    if settled is None or action is None or _lost(asked, settled):
        return _unanswered(asked.method)
    if asked.method == rules.ELICIT:
        return {"action": action} if settled.content is None else {"action": action, "content": settled.content}
    if action != "accept" and settled.detail:
        raise Refused(jsonrpc.INTERNAL_ERROR, settled.detail)
    if action != "accept":
        raise Refused(rules.USER_REJECTED, "Declined by a person.")
    return settled.content or {}


def _lost(asked: InputRequest, settled: Settled) -> bool:
    """Accepted, but the content of the answer was erased meanwhile."""
    needs = settled.state is QuestionState.ACCEPTED and _kind(asked) is not QuestionKind.URL
    return needs and settled.content is None


def _unanswered(method: str) -> Mapping[str, Any]:
    answer = rules.given_up(method)
    if isinstance(answer, rules.Refusal):
        raise Refused(answer.code, answer.message)
    return answer
