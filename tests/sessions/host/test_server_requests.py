"""How a server's request is summed up in one line, and which response the server receives."""

import json
import uuid
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from servers.audit import payloads
from servers.audit.record import SYSTEM
from servers.crypto import SealError
from servers.privacy import redaction
from servers.secret import Secret
from sessions.calls.claims import PendingCall
from sessions.enums import QuestionState
from sessions.host.answer_redaction import Redactor
from sessions.host.inbox.server_requests import QUESTION_CHARS, answer_params, new_question
from sessions.host.inbox.waiting import Inbox
from sessions.inbox import questions
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


async def test_a_request_that_cannot_be_encrypted_is_refused_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(*_given: Any) -> Any:
        raise SealError("The key ring is missing.")

    async def read(job: Any) -> Any:
        return job()

    lines: list[str] = []
    monkeypatch.setattr(payloads, "made", made)
    rows, session_log = SimpleNamespace(read=read), SimpleNamespace(host=lambda words, _level: lines.append(words))
    launch = SimpleNamespace(timeouts=SimpleNamespace(total=60.0))
    inbox = Inbox(cast(Any, rows), cast(Any, None), cast(Any, launch), cast(Any, session_log), Redactor())
    with pytest.raises(Refused, match="could not be stored"):
        await inbox.wait_for_answer(asked())
    assert lines == ["Refused a server request, because it cannot be encrypted. The key ring is missing."]


async def test_a_request_too_large_or_too_many_costs_no_search_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(redaction, "detected_in_json", lambda text, _policy: searched.append(text) or text)
    launch = SimpleNamespace(timeouts=SimpleNamespace(total=60.0))
    log = SimpleNamespace(host=lambda *_words: None)
    inbox = Inbox(cast(Any, None), cast(Any, None), cast(Any, launch), cast(Any, log), Redactor())
    large = asked(ELICIT, {"message": "x" * QUESTION_CHARS})
    with pytest.raises(Refused, match="is a fixed limit"):
        await inbox.wait_for_answer(large)
    monkeypatch.setattr(inbox, "_bucket", SimpleNamespace(allow=lambda _now: False))
    with pytest.raises(Refused, match="Too many requests"):
        await inbox.wait_for_answer(asked())
    assert searched == []


def test_visits_are_remembered_by_ids_of_a_usual_length() -> None:
    inbox: Any = object.__new__(Inbox)
    inbox._visits = OrderedDict()
    call: Any = SimpleNamespace(uid=uuid.uuid4())
    for identity in ("e-1", "x" * 100_000, 7, None):
        inbox._note_visit(asked(ELICIT, VISIT | {"elicitationId": identity}), call)
    assert list(inbox._visits) == [("e-1", call.uid)]


async def test_a_request_whose_call_ends_while_it_is_made_is_not_stored() -> None:
    async def read(job: Any) -> Any:
        inbox.call_over(call.uid)
        return None

    async def persist(job: Any, _events: Any = None) -> None:
        if job.func is questions.receive:
            stored.append(job)

    stored: list[Any] = []
    call = PendingCall(1, uuid.uuid4(), 1, "tools/call", "echo", "{}", "", SYSTEM)
    rows, launch = SimpleNamespace(read=read, persist=persist), SimpleNamespace(timeouts=SimpleNamespace(total=60.0))
    inbox = Inbox(cast(Any, rows), cast(Any, None), cast(Any, launch), cast(Any, None), Redactor())
    answer = await inbox.wait_for_answer(InputRequest(ELICIT, FORM, "request", "e-1", call))
    assert (answer, stored) == ({"action": "cancel"}, [])


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


def test_no_one_who_could_be_asked_is_like_no_one_who_answers() -> None:
    assert answer_params(asked(), None) == {"action": "cancel"}
