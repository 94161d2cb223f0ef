"""How a server's request is summed up in one line, and which response the server receives."""

import json
import uuid
from typing import Any

import pytest

from servers.secret import Secret
from sessions.enums import QuestionState
from sessions.host.answer_redaction import Redactor
from sessions.host.inbox.server_requests import answer_params, new_question
from sessions.inbox.reads import Settled
from sessions.mcp.core.input_requests import InputRequest, Refused
from tests.sessions.mcp.client.answers import ELICIT, FORM, SAMPLE, SAMPLING

TOKEN = f"ghp_{'A' * 36}"
VISIT = {"mode": "url", "message": "Sign in", "url": "https://a.example"}
ACCEPTED = {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}


def asked(method: str = ELICIT, params: Any = None) -> InputRequest:
    return InputRequest(method, FORM if params is None else params, "request", "e-1")


def settled(state: str, content: Any = None) -> Settled:
    return Settled(uuid.uuid4(), QuestionState(state), content)


def summary(method: str, params: Any) -> str:
    return new_question(asked(method, params), None, Redactor([Secret("hunter2-hunter2")]), 600, 1800).summary


def says(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        (ELICIT, {"message": "Who?"}, "Who?"),
        (ELICIT, {"message": 7}, ""),
        (ELICIT, {"message": "It is hunter2-hunter2"}, "It is [redacted]"),
        (SAMPLE, {"messages": [says("first"), says("last")]}, "last"),
        (SAMPLE, {"messages": [says("first"), {"role": "user", "content": [{"type": "image"}, says("x")["content"]]}]}, "x"),
        (SAMPLE, {"messages": [says("first"), {"role": "user", "content": {"type": "image"}}]}, "first"),
        (SAMPLE, {"messages": [says(7), 7, None, {"content": 7}]}, ""),
        (SAMPLE, {"messages": 7}, ""),
        (SAMPLE, {}, ""),
    ],
    ids=range(9),
)  # fmt: skip
def test_a_question_is_summed_up_by_its_own_words(method: str, params: Any, words: str) -> None:
    assert summary(method, params) == words


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (ELICIT, {"message": f"Is {TOKEN} yours?"}),
        (ELICIT, {"mode": "url", "message": f"Is {TOKEN} yours?", "url": "https://a.example"}),
        (SAMPLE, {"messages": [says("first"), says(f"Is {TOKEN} yours?")]}),
    ],
    ids=["form", "link", "sampling"],
)
def test_a_secret_in_the_words_of_a_request_is_not_stored(method: str, params: Any) -> None:
    question = new_question(asked(method, params), None, Redactor(), 600, 1800)
    assert (TOKEN in question.params, question.summary) == (False, "Is [redacted] yours?")
    assert json.loads(question.params).keys() == params.keys()


def test_what_is_opened_or_answered_stays_as_the_server_sent_it() -> None:
    link = {"mode": "url", "message": TOKEN, "url": f"https://a.example/?state={TOKEN}"}
    form = {"message": TOKEN, "requestedSchema": {"type": "object", "properties": {"key": {"enum": [TOKEN, "none"]}}}}
    for params in (link, form):
        stored = json.loads(new_question(asked(ELICIT, params), None, Redactor(), 600, 1800).params)
        assert stored == params | {"message": "[redacted]"}


@pytest.mark.parametrize(
    ("question", "state", "content", "answer"),
    [
        (asked(), "accepted", {"name": "Ada"}, {"action": "accept", "content": {"name": "Ada"}}),
        (asked(), "accepted", {}, {"action": "accept", "content": {}}),
        (asked(), "declined", None, {"action": "decline"}),
        (asked(), "cancelled", None, {"action": "cancel"}),
        (asked(), "expired", None, {"action": "cancel"}),
        (asked(), "withdrawn", None, {"action": "cancel"}),
        (asked(params=VISIT), "accepted", None, {"action": "accept"}),
        (asked(SAMPLE, SAMPLING), "accepted", ACCEPTED, ACCEPTED),
    ],
    ids=range(8),
)
def test_what_the_server_is_told(question: InputRequest, state: str, content: Any, answer: Any) -> None:
    assert answer_params(question, settled(state, content)) == answer


@pytest.mark.parametrize("state", ["declined", "cancelled", "expired", "withdrawn", "accepted"])
def test_a_sample_without_an_answer_is_refused_as_a_person_would(state: str) -> None:
    with pytest.raises(Refused) as caught:
        answer_params(asked(SAMPLE, SAMPLING), settled(state))
    assert caught.value.code == -1


def test_a_server_is_told_why_a_sample_has_no_answer_if_no_person_declined_it() -> None:
    words = "The agent's answer was not valid."
    over = Settled(uuid.uuid4(), QuestionState.CANCELLED, None, words)
    with pytest.raises(Refused, match=words) as caught:
        answer_params(asked(SAMPLE, SAMPLING), over)
    assert caught.value.code == -32603
    assert answer_params(asked(), over) == {"action": "cancel"}


def test_an_erased_answer_is_none() -> None:
    assert answer_params(asked(), settled("accepted", None)) == {"action": "cancel"}


def test_nobody_who_could_be_asked_is_like_nobody_who_answers() -> None:
    assert answer_params(asked(), None) == {"action": "cancel"}
