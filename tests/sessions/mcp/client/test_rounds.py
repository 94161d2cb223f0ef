"""Calls that need input, over HTTP: rounds of the modern era, and the error that names URLs to visit."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.mcp.client import InputRequest as Question
from sessions.mcp.client import Root
from sessions.mcp.core.errors import Fault, LocalError, McpError, ProtocolError, RpcError
from sessions.mcp.core.events import RequestRefused, ServerAsked
from sessions.mcp.core.limits import Limits
from tests.sessions.mcp.client.answers import (
    DEFAULTS,
    ELICIT,
    FORM,
    SAMPLE,
    SAMPLING,
    asking,
    complete,
    defaults,
    refuse,
)
from tests.sessions.mcp.transports.making import FlowSecrets, connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, Script, modern, scripted_http

pytestmark = pytest.mark.integration
ANSWERS = {ELICIT: defaults, SAMPLE: complete}
DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
WHO = {"who": {"method": ELICIT, "params": FORM}}


def wanted(state: Any = None, **requests: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    return result if state is None else {**result, "requestState": state}


def in_turn(*results: dict[str, Any]) -> Script:
    """A modern server that answers calls with these results in order; the last one repeats."""
    left = list(results)

    async def on_call(asked: Asked, line: Line) -> None:
        await line.result(asked, left.pop(0) if len(left) > 1 else left[0])

    return modern(on_call)


def calls(peer: Peer) -> list[dict[str, Any]]:
    return [one.message["params"] for one in peer.asked if one.method == "tools/call"]


def serving(peer: Peer, **more: Any) -> Any:
    return connected(http(peer.url), **{"capabilities": None, "answers": ANSWERS, **more})


async def test_a_form_is_answered_and_the_call_sent_again_with_answers_and_state() -> None:
    attempts: list[tuple[int, str]] = []

    async def before(number: int, reason: str) -> None:
        attempts.append((number, reason))

    state = 'opaque-AAB="\\ \u2028 \U0001f511'
    async with scripted_http(in_turn(wanted(state, **WHO), DONE)) as peer, serving(peer) as made:
        result = await made.client.call_tool("t", {"a": 1}, before_send=before, tag="c", meta={"traceparent": "00-x"})
        first, second = calls(peer)
        assert first["name"] == second["name"] == "t"
        assert first["arguments"] == second["arguments"] == {"a": 1}
        assert first["_meta"] == second["_meta"]
        assert second["_meta"]["traceparent"] == "00-x"
        assert second["inputResponses"] == {"who": {"action": "accept", "content": DEFAULTS}}
        assert second["requestState"] == state
        ids = [one.id for one in peer.asked if one.method == "tools/call"]
        headers = [one.headers["mcp-name"] for one in peer.asked if one.method == "tools/call"]
        assert ids[0] != ids[1]
        assert headers == ["t", "t"]
        assert attempts == [(1, "first"), (2, "round")]
        assert (result.attempts, result.request_id) == (2, ids[1])
        assert made.of(ServerAsked) == [ServerAsked(ELICIT, "round", "who", "c")]


async def test_each_round_has_a_progress_token_of_its_own() -> None:
    async with scripted_http(in_turn(wanted("s"), DONE)) as peer, serving(peer) as made:
        await made.client.call_tool("t", {}, on_progress=lambda value, total, message: None)
        first, second = (params["_meta"]["progressToken"] for params in calls(peer))
    assert first != second


async def test_answers_and_state_of_an_earlier_round_are_never_sent_again() -> None:
    rounds = [wanted("one", **WHO), wanted(None, how={"method": SAMPLE, "params": SAMPLING}), wanted("three"), DONE]
    async with scripted_http(in_turn(*rounds)) as peer, serving(peer) as made:
        await made.client.call_tool("t", {})
        first, second, third, fourth = calls(peer)
    assert "requestState" not in first
    assert "inputResponses" not in first
    assert (second["requestState"], list(second["inputResponses"])) == ("one", ["who"])
    assert "requestState" not in third
    assert list(third["inputResponses"]) == ["how"]
    assert fourth["requestState"] == "three"
    assert "inputResponses" not in fourth


async def test_two_calls_at_the_same_time_share_no_state() -> None:
    together = asyncio.Barrier(2)

    async def on_call(asked: Asked, line: Line) -> None:
        params = asked.message["params"]
        if "requestState" in params:
            await line.result(asked, {"resultType": "complete", "content": [], "structuredContent": params})
        else:
            await together.wait()
            await line.result(asked, wanted("state of " + params["name"], **WHO))

    async def answer(asked: Question) -> dict[str, Any]:
        return {"action": "accept", "content": {"tag": asked.tag}}

    async with scripted_http(modern(on_call)) as peer, serving(peer, answers={ELICIT: answer}) as made:
        results = await asyncio.gather(*(made.client.call_tool(name, {}, tag=name) for name in ("a", "b")))
    for name, result in zip("ab", results, strict=True):
        assert result.structured["requestState"] == f"state of {name}"
        assert result.structured["inputResponses"]["who"]["content"] == {"tag": name}


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("prompts/get", lambda client: client.get_prompt("p", {"x": "1"}, tag="q")),
        ("resources/read", lambda client: client.read_resource("file:///x", tag="q")),
    ],
)
async def test_prompts_and_resources_may_ask_back_too(method: str, ask: Callable[[Any], Awaitable[Any]]) -> None:
    answers = [wanted("s", **WHO), {"resultType": "complete", "ok": True}]

    capabilities = {"prompts": {}, "resources": {}}

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == method:
            await line.result(asked, answers.pop(0))
        else:
            await line.result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities})

    async with scripted_http(script) as peer, serving(peer) as made:
        assert (await ask(made.client))["ok"] is True
        second = [one.message["params"] for one in peer.asked if one.method == method][1]
    assert (second["requestState"], list(second["inputResponses"])) == ("s", ["who"])


async def fail_call(script: Script, **more: Any) -> tuple[McpError, Peer, FlowSecrets]:
    async with scripted_http(script) as peer, serving(peer, **more) as made:
        with pytest.raises(McpError) as caught:
            await made.client.call_tool("t", {})
    return caught.value, peer, made


async def test_endless_rounds_end_at_their_limit() -> None:
    error, peer, _ = await fail_call(in_turn(wanted("again", **WHO)), limits=Limits(rounds=3))
    assert isinstance(error, ProtocolError)
    assert (error.fault, error.may_have_run) == (Fault.ROUND_LIMIT, True)
    assert len(calls(peer)) == 4


async def test_an_oversized_state_is_refused_without_a_word_of_it() -> None:
    error, peer, _ = await fail_call(in_turn(wanted("secret" * 20)), limits=Limits(request_state_bytes=100))
    assert error.fault is Fault.ROUND_LIMIT
    assert "secret" not in str(error)
    assert len(calls(peer)) == 1


async def test_too_many_questions_in_one_round_are_put_to_no_one() -> None:
    questions = {f"q{n}": WHO["who"] for n in range(5)}
    error, _, made = await fail_call(in_turn(wanted(**questions)), limits=Limits(open_server_requests=4))
    assert error.fault is Fault.SERVER_REQUEST_LIMIT
    assert made.of(ServerAsked) == []


async def test_more_questions_than_a_minute_allows_end_the_call() -> None:
    error, peer, made = await fail_call(in_turn(wanted("s", **WHO)), limits=Limits(server_requests_per_minute=2))
    assert error.fault is Fault.SERVER_REQUEST_LIMIT
    assert len(made.of(ServerAsked)) == 2
    assert len(calls(peer)) == 3


@pytest.mark.parametrize(
    "question",
    [
        {"method": SAMPLE, "params": SAMPLING},
        {"method": "roots/list"},
        {"method": "strange/method", "params": {}},
        {"method": ELICIT, "params": {"mode": "url", "url": "https://a.example", "message": "m"}},
    ],
)
async def test_a_question_that_was_not_offered_ends_the_call_before_anyone_is_asked(question: Any) -> None:
    offered = {"capabilities": {"elicitation": {"form": {}}}, "answers": {ELICIT: defaults}}
    error, peer, made = await fail_call(in_turn(wanted(**WHO, other=question)), **offered)
    assert isinstance(error, ProtocolError)
    assert (error.fault, error.may_have_run) == (Fault.INPUT_NOT_OFFERED, True)
    assert len(calls(peer)) == 1
    assert made.of(ServerAsked) == []
    assert [event.method for event in made.of(RequestRefused)] == [question["method"]]


async def test_a_refusal_ends_the_call_and_the_other_questions_with_it() -> None:
    ended = asyncio.Event()

    async def wait(asked: Question) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("unreachable")

    script = in_turn(wanted(**WHO, how={"method": SAMPLE, "params": SAMPLING}))
    error, peer, _ = await fail_call(script, answers={ELICIT: wait, SAMPLE: refuse})
    assert isinstance(error, LocalError)
    assert (error.fault, error.may_have_run) == (Fault.INPUT_REFUSED, True)
    assert "Not today" in error.detail
    assert ended.is_set()
    assert len(calls(peer)) == 1


async def test_to_decline_a_form_is_an_answer_and_no_end() -> None:
    async def decline(asked: Question) -> dict[str, Any]:
        return {"action": "decline", "content": {"dropped": True}}

    answers = {ELICIT: decline}
    async with scripted_http(in_turn(wanted(**WHO), DONE)) as peer, serving(peer, answers=answers) as made:
        await made.client.call_tool("t", {})
        assert calls(peer)[1]["inputResponses"] == {"who": {"action": "decline"}}


async def test_a_person_is_asked_one_thing_at_a_time() -> None:
    open_now, most = 0, 0

    async def answer(asked: Question) -> dict[str, Any]:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        return await defaults(asked)

    questions = {f"q{n}": WHO["who"] for n in range(3)}
    answers = {ELICIT: answer}
    async with scripted_http(in_turn(wanted(**questions), DONE)) as peer, serving(peer, answers=answers) as made:
        await made.client.call_tool("t", {})
        assert list(calls(peer)[1]["inputResponses"]) == ["q0", "q1", "q2"]
    assert most == 1


async def test_roots_are_declared_with_the_next_request_and_answered_by_the_client() -> None:
    script = in_turn(wanted(roots={"method": "roots/list"}), DONE)
    async with scripted_http(script) as peer, serving(peer, answers={}) as made:
        assert await made.client.set_roots((Root("file:///srv/x", "x"),))
        await made.client.call_tool("t", {})
        first, second = calls(peer)
        assert first["_meta"]["io.modelcontextprotocol/clientCapabilities"]["roots"] == {}
        assert second["inputResponses"] == {"roots": {"roots": [{"uri": "file:///srv/x", "name": "x"}]}}
        assert not [name for name in peer.methods() if name.startswith("notifications/")]


async def test_the_total_time_goes_on_while_a_person_thinks_and_the_idle_time_does_not() -> None:
    async def think(asked: Question) -> dict[str, Any]:
        await asyncio.sleep(2.5)
        return await defaults(asked)

    async with scripted_http(in_turn(wanted(**WHO), DONE)) as peer, serving(peer, answers={ELICIT: think}) as made:
        await made.client.call_tool("t", {}, timeout=2.0)
    async with scripted_http(in_turn(wanted(**WHO), DONE)) as peer, serving(peer, answers={ELICIT: think}) as made:
        with pytest.raises(LocalError) as caught:
            await made.client.call_tool("t", {}, timeout=2.0, total_timeout=2.2)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TOTAL_DEADLINE, True)
        assert len(calls(peer)) == 1


async def test_the_end_of_the_session_ends_a_question_and_its_call() -> None:
    began = asyncio.Event()

    async def think(asked: Question) -> dict[str, Any]:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with scripted_http(in_turn(wanted(**WHO))) as peer, serving(peer, answers={ELICIT: think}) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}))
        await began.wait()
        await made.client.close()
        with pytest.raises(McpError) as caught:
            await call
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.CLOSED, True)


async def test_a_cancelled_call_takes_its_question_with_it() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def think(asked: Question) -> dict[str, Any]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("unreachable")

    async with scripted_http(in_turn(wanted(**WHO))) as peer, serving(peer, answers={ELICIT: think}) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert ended.is_set()


async def test_a_later_round_that_cannot_be_sent_proves_nothing_about_the_first() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        if "requestState" in asked.message["params"]:
            await line.error(asked, -32020, 400)
        else:
            await line.result(asked, wanted("s"))

    async with scripted_http(modern(on_call)) as peer, serving(peer) as made:
        with pytest.raises(RpcError) as caught:
            await made.client.call_tool("t", {}, input_schema={})
        assert (caught.value.code, caught.value.may_have_run) == (-32020, True)
        assert [params.get("requestState") for params in calls(peer)] == [None, "s", "s"]


# -- 2025-11-25: URLs to visit first

VISIT = {"mode": "url", "elicitationId": "v-1", "url": "https://a.example/login", "message": "Sign in"}


async def required(made: FlowSecrets, *elicitations: Any, **more: Any) -> str:
    result = await made.client.call_tool("require", {"elicitations": list(elicitations)}, **more)
    return str(json.loads(result.content[0]["text"]))


async def test_a_call_goes_on_when_its_page_was_visited() -> None:
    seen: list[Question] = []
    attempts: list[tuple[int, str]] = []

    async def visit(asked: Question) -> dict[str, Any]:
        seen.append(asked)
        return {"action": "accept"}

    async def before(number: int, reason: str) -> None:
        attempts.append((number, reason))

    async with connected(asking(), capabilities=None, answers={ELICIT: visit}) as made:
        assert await required(made, VISIT, tag="c", before_send=before) == "done"
    assert seen == [Question(ELICIT, VISIT, "error", "v-1", "c")]
    assert attempts == [(1, "first"), (2, "url_elicitation")]


async def test_a_call_goes_on_when_the_server_says_that_its_page_was_visited() -> None:
    async with connected(asking(), capabilities=None, answers={ELICIT: refuse}) as made:
        client = made.client

        async def visit(asked: Question) -> dict[str, Any]:
            other = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "unknown"}}
            over = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "v-1"}}
            await client.call_tool("send", {"messages": [other, over]})
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        client._answers._answers[ELICIT] = visit
        assert await required(made, VISIT) == "done"


@pytest.mark.parametrize(("action", "words"), [("decline", "someone declined"), ("cancel", "no one opened it")])
async def test_a_visit_that_does_not_happen_ends_a_call_that_did_not_run(action: str, words: str) -> None:
    async def answer(asked: Question) -> dict[str, Any]:
        return {"action": action}

    async with connected(asking(), capabilities=None, answers={ELICIT: answer}) as made:
        with pytest.raises(LocalError, match=words) as caught:
            await required(made, VISIT)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.INPUT_REFUSED, False)


async def test_a_call_whose_answerer_breaks_or_whose_time_ends_during_a_visit_did_not_run() -> None:
    async def breaks(asked: Question) -> dict[str, Any]:
        raise RuntimeError("a bug of the owner")

    async def never(asked: Question) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    for answer, fault in ((breaks, Fault.INPUT_REFUSED), (never, Fault.TOTAL_DEADLINE)):
        async with connected(asking(), capabilities=None, answers={ELICIT: answer}) as made:
            with pytest.raises(LocalError) as caught:
                await required(made, VISIT, total_timeout=0.4)
            assert (caught.value.fault, caught.value.may_have_run) == (fault, False)


async def test_the_error_stays_an_error_where_no_one_is_there_to_visit() -> None:
    async with connected(asking(), capabilities=None, answers={ELICIT: refuse}) as made:
        with pytest.raises(RpcError) as caught:
            await required(made, VISIT)
        assert (caught.value.code, caught.value.data) == (-32042, {"elicitations": [VISIT]})


@pytest.mark.parametrize(
    ("capabilities", "entry"),
    [({"elicitation": {"form": {}}}, VISIT), (None, {**VISIT, "mode": "form"}), (None, {**VISIT, "url": 7}), (None, 7)],
)
async def test_the_error_stays_an_error_where_no_visit_is_offered_or_none_is_named(
    capabilities: Any, entry: Any
) -> None:
    async with connected(asking(), capabilities=capabilities, answers={ELICIT: defaults}) as made:
        with pytest.raises(RpcError) as caught:
            await required(made, entry)
        assert caught.value.code == -32042
        assert made.of(ServerAsked) == []
