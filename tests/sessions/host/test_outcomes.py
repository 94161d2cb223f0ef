"""Which final state each answer or fault gives a call."""

import json
from typing import Any

import pytest

from servers.enums import RedactedPart
from servers.privacy.redaction import Subject
from sessions.calls.claims import Required
from sessions.enums import CallState
from sessions.host.answer_redaction import Redactor
from sessions.host.calls.outcomes import Conformity, ResultMasks, arguments_of, of_error, of_result
from sessions.mcp.core.errors import (
    Fault,
    HttpError,
    LocalError,
    McpError,
    NotReady,
    ProtocolError,
    RemoteError,
    RpcError,
    TransportError,
)

NOTHING = ResultMasks(Redactor(), Subject(RedactedPart.RESULT))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (TransportError(Fault.CONNECTION_REFUSED, "refused", may_have_run=False), CallState.FAILED),
        (TransportError(Fault.CONNECTION_LOST, "lost", may_have_run=True), CallState.OUTCOME_UNKNOWN),
        (TransportError(Fault.TIMEOUT, "no answer", may_have_run=True), CallState.OUTCOME_UNKNOWN),
        (NotReady("closed", Fault.CLOSED, may_have_run=True), CallState.OUTCOME_UNKNOWN),
        (NotReady("not open"), CallState.FAILED),
        (ProtocolError(Fault.MESSAGE_LIMIT, "too large"), CallState.FAILED),
        (LocalError(Fault.INPUT_REFUSED, "declined", may_have_run=True), CallState.FAILED),
        (RemoteError(Fault.TASK_CANCELLED, "cancelled there", may_have_run=True), CallState.FAILED),
        (RemoteError(Fault.TASK_LOST, "unknown there", may_have_run=True), CallState.OUTCOME_UNKNOWN),
        (RpcError(-32602, "bad"), CallState.RPC_ERROR),
        (McpError(Fault.CANCELLED, "cancelled", may_have_run=True), CallState.CANCELLED),
    ],
)
def test_each_fault_has_its_final_state(error: McpError, state: CallState) -> None:
    assert of_error(error, NOTHING).state is state


@pytest.mark.parametrize(
    ("error", "may_have_run"),
    [
        (HttpError(Fault.REDIRECTED, "elsewhere", status=302, may_have_run=True), True),
        (HttpError(Fault.REDIRECTED, "elsewhere", status=307, may_have_run=False), False),
        (ProtocolError(Fault.NO_ANSWER, "The server answered, but not to this request."), True),
        (ProtocolError(Fault.INVALID_MESSAGE, "no JSON"), True),
        (ProtocolError(Fault.MESSAGE_LIMIT, "our request is too large", may_have_run=False), False),
        (HttpError(Fault.ACCESS_REFUSED, "no", status=403, may_have_run=False), False),
        (TransportError(Fault.CONNECTION_LOST, "lost", may_have_run=True), True),
        (McpError(Fault.CANCELLED, "cancelled", may_have_run=True), True),
        (RpcError(-32602, "bad"), False),
    ],
)
def test_what_ended_without_a_usable_answer_is_recorded_as_maybe_run(error: McpError, may_have_run: bool) -> None:
    outcome = of_error(error, NOTHING)
    assert outcome.may_have_run is may_have_run
    assert outcome.fields()["may_have_run"] is may_have_run


def test_whoever_reads_of_an_unusable_answer_learns_that_the_tool_may_have_run() -> None:
    outcome = of_error(ProtocolError(Fault.MESSAGE_LIMIT, "Refused: message limit."), NOTHING)
    assert outcome.detail == "Refused: message limit. The tool may have run."


def test_a_call_that_never_left_says_nothing_of_having_run() -> None:
    outcome = of_error(TransportError(Fault.CONNECTION_REFUSED, "Refused.", may_have_run=False), NOTHING)
    assert outcome.detail == "Refused."


def test_what_the_tool_calls_an_error_is_a_tool_error_with_its_result() -> None:
    outcome = of_result({"isError": True, "content": []}, NOTHING, modern=False)
    assert (outcome.state, json.loads(outcome.result or "")) == (CallState.TOOL_ERROR, {"isError": True, "content": []})


def test_a_result_requires_input_only_where_the_era_has_such_results() -> None:
    raw = {"resultType": "input_required", "requestState": "s", "inputRequests": {}, "content": []}
    modern = of_result(raw, NOTHING, modern=True)
    assert (modern.required, modern.schema_violation) == (Required("s"), "")
    assert json.loads(modern.result or "") == {"resultType": "input_required", "inputRequests": {}, "content": []}
    legacy = of_result(raw, NOTHING, modern=False)
    assert legacy.required is None
    assert json.loads(legacy.result or "") == {"requestState": "s", "inputRequests": {}, "content": []}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "The result has no list “content”."),
        ({"content": None}, "The result has no list “content”."),
        ({"content": "text", "isError": "false"}, "The result has no list “content”.\n“isError” is not a boolean."),
        ({"content": [{"type": "text"}, "text"]}, "An entry of “content” is not an object."),
    ],
)
def test_what_is_no_result_of_a_tool_is_kept_and_noted(raw: dict[str, Any], words: str) -> None:
    outcome = of_result(raw, NOTHING, modern=False)
    assert (outcome.state, outcome.schema_violation) == (CallState.SUCCEEDED, words)
    assert json.loads(outcome.result or "") == raw
    assert of_result(raw, NOTHING, modern=False, tool=False).schema_violation == ""


@pytest.mark.parametrize("flag", [True, "true", "True", 1])
def test_an_error_flag_counts_as_the_clients_of_servers_read_it(flag: Any) -> None:
    assert of_result({"content": [], "isError": flag}, NOTHING, modern=False).state is CallState.TOOL_ERROR


def test_an_error_code_beyond_the_column_is_left_out_and_the_rest_kept() -> None:
    outcome = of_error(RpcError(2**80, "strange", {"a": 1}), NOTHING)
    assert (outcome.error_code, outcome.error_message, outcome.error_data) == (None, "strange", '{"a":1}')


def test_arguments_keep_integers_beyond_sixty_four_bits() -> None:
    assert arguments_of('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}


def test_words_about_a_result_with_masked_values_do_not_quote_them() -> None:
    masks = ResultMasks(Redactor(), Subject(RedactedPart.RESULT))
    token = "ghp_" + "a1B2" * 9
    outcome = of_result(
        {"content": [{"type": "text", "text": token}]},
        masks,
        Conformity(f"'{token}' is not a number", valid=False),
        modern=False,
    )
    assert token not in outcome.schema_violation + (outcome.result or "")
    assert outcome.redacted == 1
    outcome = of_error(RpcError(1, f"bad {token}", {"a": token}), masks)
    assert token not in outcome.error_message + outcome.error_data
