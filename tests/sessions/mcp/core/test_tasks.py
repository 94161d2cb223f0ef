"""How a task's state is read and which step follows, without any I/O."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core import tasks
from sessions.mcp.core.errors import Fault, InvalidRequest, McpError, ProtocolError, RpcError
from sessions.mcp.core.offered import demand
from sessions.mcp.core.tasks import Ended, Fetch, Finished, Status, Wait, next_step, state_of
from sessions.mcp.core.versions import LEGACY, REVISIONS, Era

EXTENSION = {"extensions": {tasks.EXTENSION: {}}}


def modern(status: str, **more: Any) -> tasks.TaskState:
    return state_of({"taskId": "t", "status": status, **more}, Era.MODERN)


def legacy(status: str, **more: Any) -> tasks.TaskState:
    return state_of({"taskId": "t", "status": status, **more}, Era.LEGACY)


# -- reading


def test_times_are_seconds_and_each_kind_spells_them_its_own_way() -> None:
    both = {"ttl": 1000, "pollInterval": 2000, "ttlMs": 3000, "pollIntervalMs": 4000}
    assert (legacy("working", **both).ttl, legacy("working", **both).poll) == (1.0, 2.0)
    assert (modern("working", **both).ttl, modern("working", **both).poll) == (3.0, 4.0)


@pytest.mark.parametrize(
    ("named", "poll"),
    [(None, 5.0), (0, 0.1), (-1, 5.0), (1e300, 5.0), (10**9, 300.0), (True, 5.0), ("7", 5.0), (float("nan"), 5.0)],
)
def test_a_server_can_neither_hurry_us_nor_put_us_to_sleep(named: Any, poll: float) -> None:
    assert modern("working", pollIntervalMs=named).poll == poll


@pytest.mark.parametrize("value", [None, [], "t", {}, {"taskId": 7}, {"taskId": ""}, {"taskId": "x" * 2000}])
@pytest.mark.parametrize("era", list(Era))
def test_what_is_no_task_is_refused(value: Any, era: Era) -> None:
    with pytest.raises(ProtocolError) as refused:
        state_of(value | {"status": "working"} if isinstance(value, dict) else value, era)
    assert refused.value.fault is Fault.INVALID_RESULT


def test_an_unknown_state_is_refused_and_named() -> None:
    with pytest.raises(ProtocolError, match="meditating"):
        modern("meditating")


def test_results_and_questions_of_a_task_do_not_show_in_its_representation() -> None:
    assert "secret" not in repr(modern("completed", result={"content": "secret"}))


# -- the next step


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (legacy("working"), Wait()),
        (legacy("input_required"), Fetch()),
        (legacy("completed"), Fetch()),
        (legacy("failed"), Fetch()),
        (modern("working"), Wait()),
        (modern("completed", result={"content": []}), Finished({"content": []})),
    ],
)
def test_each_state_has_its_next_step(state: tasks.TaskState, step: object) -> None:
    era = Era.MODERN if isinstance(step, Finished) else Era.LEGACY
    assert next_step(state, era) == step


@pytest.mark.parametrize("era", list(Era))
def test_a_cancelled_task_ends_in_both_kinds_with_the_words_of_the_server(era: Era) -> None:
    state = state_of({"taskId": "t", "status": "cancelled", "statusMessage": "quota"}, era)
    step = next_step(state, era)
    assert isinstance(step, Ended)
    assert (step.error.fault, step.error.may_have_run) == (Fault.TASK_CANCELLED, True)
    assert step.error.detail == "The server cancelled the task 't'. The server says: \"quota\""


def test_an_empty_result_of_a_failed_task_does_not_pass_for_a_success() -> None:
    failed = legacy("failed", statusMessage="disk full")
    with pytest.raises(McpError, match="disk full") as ended:
        tasks.fetched(failed, {"_meta": {}})
    assert (ended.value.fault, ended.value.may_have_run) == (Fault.TASK_FAILED, True)
    told = {"content": [], "isError": True}
    assert tasks.fetched(failed, told) is told
    assert tasks.fetched(legacy("completed"), {}) == {}


def test_a_failed_task_ends_with_the_error_inside_it() -> None:
    step = next_step(modern("failed", error={"code": -32050, "message": "no", "data": 1}), Era.MODERN)
    assert isinstance(step, Ended)
    assert isinstance(step.error, RpcError)
    assert (step.error.code, step.error.message, step.error.data) == (-32050, "no", 1)


@pytest.mark.parametrize(
    "state",
    [
        modern("completed"),
        modern("completed", result=[]),
        modern("completed", result={"resultType": "input_required"}),
        modern("failed"),
        modern("failed", error={"code": True}),
        modern("input_required"),
        modern("input_required", inputRequests={"k": 7}),
    ],
)
def test_a_state_without_what_belongs_to_it_ends_as_an_invalid_result(state: tasks.TaskState) -> None:
    step = next_step(state, Era.MODERN)
    assert isinstance(step, Ended)
    assert step.error.fault is Fault.INVALID_RESULT


def test_a_question_is_taken_up_once_however_often_it_is_shown() -> None:
    state = modern("input_required", inputRequests={"a": {"method": "x"}, "b": {"method": "y"}})
    assert next_step(state, Era.MODERN) == Wait({"a": {"method": "x"}, "b": {"method": "y"}})
    assert next_step(state, Era.MODERN, {"a"}) == Wait({"b": {"method": "y"}})
    assert next_step(state, Era.MODERN, {"a", "b"}) == Wait()


def test_questions_are_bounded_over_the_whole_life_of_a_task() -> None:
    state = modern("input_required", inputRequests={"new": {"method": "x"}})
    before = {str(number) for number in range(tasks.INPUTS - 1)}
    assert next_step(state, Era.MODERN, before) == Wait({"new": {"method": "x"}})
    step = next_step(state, Era.MODERN, before | {"one more"})
    assert isinstance(step, Ended)
    assert step.error.fault is Fault.ROUND_LIMIT


def test_looks_that_fail_wait_longer_each_time_and_then_no_more() -> None:
    assert [tasks.pause_after_miss(misses, 2.0) for misses in range(1, 5)] == [4.0, 8.0, 16.0, None]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ["taskId", "status", "ttl", "ttlMs", "pollInterval", "pollIntervalMs", "result", "error", "inputRequests"]


@given(
    st.dictionaries(st.sampled_from(MEMBERS), JSON | st.sampled_from(list(Status)), max_size=9), st.sampled_from(Era)
)
def test_any_object_is_a_task_with_a_next_step_or_an_error_of_ours(fields: dict[str, Any], era: Era) -> None:
    try:
        state = state_of(fields, era)
    except McpError:
        return
    assert 0.1 <= state.poll <= 300
    assert isinstance(next_step(state, era), Wait | Fetch | Finished | Ended)


# -- capabilities

CORE = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


@pytest.mark.parametrize("revision", list(REVISIONS))
def test_core_tasks_are_offered_in_one_revision_only(revision: str) -> None:
    offer = tasks.offer_of(CORE, EXTENSION, REVISIONS[revision])
    expected = revision == "2025-11-25"
    assert (offer.call, offer.list, offer.cancel) == (expected, expected, expected)


@pytest.mark.parametrize("revision", list(REVISIONS))
def test_the_extension_needs_both_sides_and_the_modern_revision(revision: str) -> None:
    both = tasks.offer_of(EXTENSION, EXTENSION, REVISIONS[revision])
    assert both.call is both.cancel is REVISIONS[revision].extensions
    assert both.list is False
    assert not tasks.offer_of(EXTENSION, {}, REVISIONS[revision]).call
    assert not tasks.offer_of({}, EXTENSION, REVISIONS[revision]).call


@pytest.mark.parametrize("declared", [{"tasks": {"requests": {"tools": True}}}, {"tasks": True}, {"tasks": {}}])
def test_half_a_declaration_offers_nothing(declared: dict[str, Any]) -> None:
    assert not tasks.offer_of(declared, {}, REVISIONS["2025-11-25"]).call


@pytest.mark.parametrize(
    ("tool", "support"),
    [
        ({}, "forbidden"),
        ({"execution": None}, "forbidden"),
        ({"execution": {"taskSupport": "perhaps"}}, "forbidden"),
        ({"execution": {"taskSupport": "optional"}}, "optional"),
        ({"execution": {"taskSupport": "required"}}, "required"),
    ],
)
def test_a_tool_without_a_clear_word_is_no_task(tool: dict[str, Any], support: str) -> None:
    assert tasks.support_of(tool) == support


# -- refusal messages

DECLARED = {"tools": {"listChanged": True}, "resources": {"subscribe": False, "x": {}}, "odd": 7}


@pytest.mark.parametrize(
    ("capability", "feature", "words"),
    [
        ("prompts", "", "does not offer prompts"),
        ("resources", "subscribe", "does not offer subscriptions to resources"),
        ("logging", "", "does not offer log messages"),
        ("completions", "", "does not offer argument completion"),
        ("new", "thing", "does not offer new thing"),
    ],
)
def test_a_refusal_says_what_is_missing_and_what_is_there(capability: str, feature: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        demand(DECLARED, REVISIONS["2025-11-25"], capability, feature)
    assert refused.value.fault is Fault.NOT_OFFERED
    assert refused.value.permanent
    assert not refused.value.may_have_run
    assert "(it declared: resources with x, tools with listChanged)" in refused.value.detail


def test_a_refusal_names_a_capability_that_was_declared_as_no_object() -> None:
    with pytest.raises(InvalidRequest) as refused:
        demand(DECLARED, REVISIONS["2025-11-25"], "odd")
    assert "(it declared odd as 7, not as an object, so it counts as undeclared)" in refused.value.detail


def test_what_was_declared_is_not_refused() -> None:
    demand(DECLARED, REVISIONS["2025-11-25"], "tools", "listChanged")
    demand(DECLARED, REVISIONS["2025-11-25"], "resources")


def test_a_server_that_declared_nothing_is_said_to_have() -> None:
    with pytest.raises(InvalidRequest, match="it declared nothing"):
        demand({}, None, "prompts")


@pytest.mark.parametrize("revision", LEGACY)
def test_completion_needs_no_declaration_where_there_was_none_to_make(revision: str) -> None:
    """2024-11-05 has the request but no capability for it."""
    if revision == "2024-11-05":
        demand({}, REVISIONS[revision], "completions")
    else:
        with pytest.raises(InvalidRequest):
            demand({}, REVISIONS[revision], "completions")


def test_a_refusal_is_bounded_whatever_the_server_declared() -> None:
    hostile = {f"{'x' * 500}{number}": {"y" * 500: {}} for number in range(500)}
    with pytest.raises(InvalidRequest) as refused:
        demand(hostile, None, "prompts")
    assert len(refused.value.detail) < 4_000
