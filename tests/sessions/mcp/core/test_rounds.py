"""How a result is classified before it is used, and the bounds of rounds."""

from typing import Any

import pytest

from sessions.mcp.core.capabilities import derived, elicitation_modes, in_force, own_meta
from sessions.mcp.core.correlation import Deadline
from sessions.mcp.core.errors import Fault, InvalidRequest, ProtocolError, RpcError
from sessions.mcp.core.input_requests import (
    ELICIT,
    LIST_ROOTS,
    SAMPLE,
    InputRequest,
    Refusal,
    checked_answer,
    given_up,
    refusal,
)
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.rounds import InputRequired, Question, Rounds, Visit, check_result, question, visits
from sessions.mcp.core.versions import REVISIONS

LEGACY, MODERN = REVISIONS["2025-11-25"], REVISIONS["2026-07-28"]
EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
EVERYTHING = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
    "tasks": {"list": {}},
    "extensions": {"a/b": {}},
    "experimental": {"x": {}},
}


# -- kinds of results


@pytest.mark.parametrize(
    ("result", "method", "declared", "kind"),
    [
        ({"content": []}, "tools/call", {}, "complete"),
        ({"resultType": "complete"}, "tools/list", {}, "complete"),
        ({"resultType": "input_required"}, "tools/call", {}, "input_required"),
        ({"resultType": "input_required"}, "prompts/get", {}, "input_required"),
        ({"resultType": "input_required"}, "resources/read", {}, "input_required"),
        ({"resultType": "task"}, "tools/call", EXTENSION, "task"),
    ],
)
def test_a_modern_result_says_what_it_is(result: Any, method: str, declared: Any, kind: str) -> None:
    assert check_result(result, method, MODERN, declared) == kind


@pytest.mark.parametrize(
    ("result", "method", "declared"),
    [
        ({"resultType": "input_required"}, "tools/list", {}),
        ({"resultType": "task"}, "tools/call", {}),
        ({"resultType": "task"}, "tools/call", {"extensions": {}}),
        ({"resultType": "task"}, "prompts/get", EXTENSION),
        ({"resultType": 7}, "tools/call", EXTENSION),
        ({"resultType": None}, "tools/call", EXTENSION),
        ({"resultType": "strange"}, "tools/call", EXTENSION),
    ],
)
def test_a_kind_that_is_unknown_or_impossible_here_is_refused(result: Any, method: str, declared: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_result(result, method, MODERN, declared)
    assert caught.value.fault is Fault.INVALID_RESULT


TASK = {"task": {"taskId": "t", "status": "working"}}
TEXT = {"content": [{"type": "text", "text": "a task was made"}]}


@pytest.mark.parametrize(
    ("result", "wants_task", "kind"),
    [
        (TASK, True, "task"),
        ({**TASK, "content": []}, True, "task"),
        ({**TASK, **TEXT}, True, "task"),
        ({"task": {}}, True, "task"),  # read as a task, and refused with a message
        ({"task": {}, **TEXT}, True, "complete"),
        ({"task": {"taskId": 7}, **TEXT}, True, "complete"),
        (TEXT, True, "complete"),
        (TASK, False, "task"),
        ({**TASK, "content": []}, False, "task"),
        ({**TASK, **TEXT}, False, "complete"),
        ({"task": {"taskId": "t", "status": "done"}}, False, "complete"),
        ({"task": {"taskId": "t", "status": ["working"]}}, False, "complete"),
        ({"resultType": "strange"}, False, "complete"),
    ],
)
def test_a_legacy_result_that_announces_a_task_is_one_whatever_content_is_beside_it(
    result: Any, wants_task: bool, kind: str
) -> None:
    assert check_result(result, "tools/call", LEGACY, {}, wants_task=wants_task) == kind


def test_a_result_is_no_task_where_method_or_revision_have_none() -> None:
    assert check_result(TASK, "prompts/get", LEGACY, {}, wants_task=True) == "complete"
    assert check_result(TASK, "tools/call", REVISIONS["2025-06-18"], {}, wants_task=True) == "complete"


# -- rounds


def test_a_round_without_questions_waits_longer_each_time_until_one_is_asked() -> None:
    rounds = Rounds(Limits())
    pauses = [rounds.take({"requestState": ""}).pause for _ in range(6)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert rounds.take({"inputRequests": {"a": {"method": "roots/list"}}}).pause == 0.0
    assert rounds.take({"requestState": "s"}).pause == 0.05


def test_an_empty_state_is_a_state() -> None:
    assert Rounds(Limits()).take({"requestState": ""}).params({}) == {"requestState": ""}


def test_what_is_added_holds_bare_answers_and_no_state_that_was_not_given() -> None:
    asked = InputRequired({"a": Question("roots/list", {})}, None)
    assert asked.params({"a": {"roots": []}}) == {"inputResponses": {"a": {"roots": []}}}


def test_the_state_is_in_no_repr() -> None:
    assert "secret" not in repr(InputRequired({}, "secret"))


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"inputRequests": {}},
        {"inputRequests": []},
        {"inputRequests": {"a": 1}},
        {"inputRequests": {"a": {"method": 1}}},
        {"inputRequests": {"a": {"params": {}}}},
        {"inputRequests": {"a": {"method": "x", "params": []}}},
        {"inputRequests": {"a": {"method": "x", "params": None}}},
        {"requestState": 7},
        {"requestState": {"a": 1}},
    ],
)
def test_a_round_that_makes_no_sense_is_an_invalid_result(result: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        Rounds(Limits()).take(result)
    assert caught.value.fault is Fault.INVALID_RESULT


def test_the_bytes_of_a_state_count_and_not_its_characters() -> None:
    rounds = Rounds(Limits(request_state_bytes=4))
    assert rounds.take({"requestState": "éé"}).state == "éé"
    with pytest.raises(ProtocolError) as caught:
        rounds.take({"requestState": "ééé"})
    assert caught.value.fault is Fault.ROUND_LIMIT


def test_a_question_may_come_without_parameters() -> None:
    assert question({"method": "roots/list"}) == Question("roots/list", {})


# -- URLs to visit

ENTRY = {"mode": "url", "elicitationId": "e", "url": "https://a.example", "message": "m"}
URLS = {"elicitation": {"url": {}}}


def needed(data: Any) -> RpcError:
    return RpcError(-32042, "visit", data)


def test_the_urls_of_the_error_are_read_in_the_revision_that_has_it() -> None:
    error = needed({"elicitations": [ENTRY]})
    assert visits(error, LEGACY, URLS, Limits()) == (Visit("e", ENTRY),)
    assert visits(error, MODERN, URLS, Limits()) == ()
    assert visits(error, REVISIONS["2025-06-18"], URLS, Limits()) == ()
    assert visits(RpcError(-32041, "x", error.data), LEGACY, URLS, Limits()) == ()
    assert visits(error, LEGACY, {"elicitation": {}}, Limits()) == ()
    assert visits(needed({"elicitations": [ENTRY] * 33}), LEGACY, URLS, Limits()) == ()


@pytest.mark.parametrize("data", [None, [], {}, {"elicitations": {}}, {"elicitations": [ENTRY, None]}])
def test_an_error_without_urls_is_like_any_other(data: Any) -> None:
    assert visits(needed(data), LEGACY, URLS, Limits()) == ()


# -- declared capabilities


def test_each_revision_keeps_what_it_defines_of_our_capabilities() -> None:
    kept = {name: in_force(EVERYTHING, revision) for name, revision in REVISIONS.items()}
    assert kept["2026-07-28"] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {},
        "extensions": {"a/b": {}},
        "experimental": {"x": {}},
    }
    assert kept["2025-11-25"] == {name: value for name, value in EVERYTHING.items() if name != "extensions"}
    older = {"sampling": {}, "roots": {"listChanged": True}, "experimental": {"x": {}}}
    assert kept["2025-06-18"] == {**older, "elicitation": {"form": {}}}
    assert kept["2025-03-26"] == kept["2024-11-05"] == older


def test_urls_only_means_nothing_where_urls_are_unknown() -> None:
    assert in_force({"elicitation": {"url": {}}}, REVISIONS["2025-06-18"]) == {}
    assert in_force({"elicitation": {}}, REVISIONS["2025-06-18"]) == {"elicitation": {}}


@pytest.mark.parametrize(
    ("declared", "modes"),
    [
        ({}, set()),
        ({"elicitation": {}}, {"form"}),
        ({"elicitation": {"form": {}}}, {"form"}),
        ({"elicitation": {"url": {}}}, {"url"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"form", "url"}),
    ],
)
def test_an_empty_declaration_means_forms_and_urls_need_the_word(declared: Any, modes: set[str]) -> None:
    assert elicitation_modes(declared) == modes


def test_no_one_who_answers_means_nothing_is_declared_but_tasks() -> None:
    assert derived((), roots=False) == EXTENSION
    assert derived((ELICIT,), roots=True) == EXTENSION | {
        "elicitation": {"form": {}, "url": {}},
        "tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}},
        "roots": {"listChanged": True},
    }


@pytest.mark.parametrize("name", ["progressToken", "io.modelcontextprotocol/protocolVersion"])
def test_entries_of_the_protocol_are_not_the_callers(name: str) -> None:
    with pytest.raises(InvalidRequest):
        own_meta({"traceparent": "00-x", name: 1})


# -- answers


def test_only_what_is_declared_is_put_to_anybody() -> None:
    assert refusal(LIST_ROOTS, {}, {"roots": {}}) is None
    assert refusal(LIST_ROOTS, {}, {"roots": True}) == Refusal(-32601, "Method not found")
    assert refusal(SAMPLE, {"toolChoice": {}}, {"sampling": {}}) == Refusal(
        -32602, "Sampling with tools was not declared"
    )
    assert refusal(SAMPLE, {"tools": []}, {"sampling": {"tools": {}}}) is None


@pytest.mark.parametrize(
    ("params", "answer", "sent"),
    [
        ({}, {"action": "accept", "content": {"a": [1.5, "x"][1], "b": ["x"], "c": 2, "d": True}, "more": 1}, None),
        ({"mode": "url"}, {"action": "accept", "content": {"dropped": 1}}, {"action": "accept"}),
        ({}, {"action": "cancel", "content": {"dropped": 1}}, {"action": "cancel"}),
    ],
)
def test_an_answer_leaves_as_the_schema_has_it(params: Any, answer: Any, sent: Any) -> None:
    expected = sent or {"action": answer["action"], "content": answer["content"]}
    assert checked_answer(InputRequest(ELICIT, params, "round", "k"), answer) == expected


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (ELICIT, None),
        (ELICIT, {}),
        (ELICIT, {"action": "accept", "content": {"a": None}}),
        (ELICIT, {"action": "accept", "content": {"a": [1]}}),
        (SAMPLE, {"role": "assistant", "content": {}}),
    ],
)
def test_what_is_no_answer_does_not_leave(method: str, answer: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        checked_answer(InputRequest(method, {}, "request", "k"), answer)


def test_a_person_who_went_away_cancels_a_form_and_rejects_a_sample() -> None:
    assert given_up(ELICIT) == {"action": "cancel"}
    assert given_up(SAMPLE) == Refusal(-1, "No answer was given")
    assert given_up("other") == Refusal(-32603, "No answer was given")


# -- time


def test_the_idle_time_goes_on_where_it_stopped_and_never_beyond_the_total() -> None:
    deadline = Deadline.starting(100.0, 10.0, 60.0)
    left = deadline.left(104.0)
    assert left == 6.0
    assert deadline.resume(130.0, left) == 136.0
    assert deadline.resume(158.0, left) == 160.0
    assert deadline.left(170.0) == 0.0
