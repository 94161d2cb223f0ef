"""Between the protocol's questions and the inbox's rows: what a question is about, and what the server is told."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from sessions.domain.claims import Order
from sessions.domain.inbox_read import Settled
from sessions.domain.questions import SUMMARY_CHARS, Asking
from sessions.enums import QuestionKind, QuestionState
from sessions.host.redaction import Redactor
from sessions.protocol import asked as rules
from sessions.protocol import jsonrpc
from sessions.protocol.asked import Asked, Refused

#: of one question, as JSON text
QUESTION_CHARS: Final = 2 * 1024 * 1024
URL_CHARS: Final = 8 * 1024
_ACTIONS: Final = {
    QuestionState.ACCEPTED: "accept",
    QuestionState.DECLINED: "decline",
    QuestionState.CANCELLED: "cancel",
}


def asking_of(asked: Asked, order: Order | None, redactor: Redactor, patience: float, total: float) -> Asking:
    """Raises Refused for what no page could show."""
    params = redactor.json_text(asked.params)
    if len(params) > QUESTION_CHARS:
        raise Refused(jsonrpc.INVALID_PARAMS, "The question is too large.")
    kind = _kind(asked)
    if kind is QuestionKind.URL and not _address(asked.params.get("url")):
        raise Refused(jsonrpc.INVALID_PARAMS, "A visit needs a URL.")
    return Asking(
        uid=uuid.uuid4(),
        kind=kind,
        method=asked.method,
        origin=asked.origin,
        summary=redactor.text(_words(asked)[: 4 * SUMMARY_CHARS]),
        params=params,
        order=order,
        patience=patience,
        total=total,
    )


def _kind(asked: Asked) -> QuestionKind:
    if asked.method == rules.SAMPLE:
        return QuestionKind.SAMPLING
    return QuestionKind.URL if asked.params.get("mode") == "url" else QuestionKind.FORM


def _address(url: Any) -> bool:
    return isinstance(url, str) and 0 < len(url) <= URL_CHARS


def _words(asked: Asked) -> str:
    """The beginning of the server's own words: what it says, or the last thing that a model would have read."""
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


# --- what the server is told --------------------------------------------------------------------------------------------
def by_person(settled: Settled) -> bool:
    return settled.state in _ACTIONS


def told(asked: Asked, settled: Settled | None) -> Mapping[str, Any]:
    """Raises Refused where the protocol has no other word for it."""
    action = _ACTIONS.get(settled.state) if settled is not None else None
    if settled is None or action is None or _lost(asked, settled):
        return _unanswered(asked.method)
    if asked.method == rules.ELICIT:
        return {"action": action} if settled.content is None else {"action": action, "content": settled.content}
    if action != "accept":
        raise Refused(rules.USER_REJECTED, "A person declined it.")
    return settled.content or {}


def _lost(asked: Asked, settled: Settled) -> bool:
    """Accepted, but what was answered was erased meanwhile."""
    needs = settled.state is QuestionState.ACCEPTED and _kind(asked) is not QuestionKind.URL
    return needs and settled.content is None


def _unanswered(method: str) -> Mapping[str, Any]:
    answer = rules.given_up(method)
    if isinstance(answer, rules.Refusal):
        raise Refused(answer.code, answer.message)
    return answer
