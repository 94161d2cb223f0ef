"""Requests of a legacy server over stdio reach the answerer within bounds, and each gets one reply."""

import asyncio
from typing import Any

import pytest

from sessions.mcp.client import Client, InputRequest, Refused, Root
from sessions.mcp.client.side_queue import _WAITING
from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.core.events import NotDelivered, ProtocolViolation, RequestRefused, ServerAsked
from sessions.mcp.core.limits import Limits
from tests.sessions.mcp.client.answers import (
    DEFAULTS,
    ELICIT,
    FORM,
    SAMPLE,
    SAMPLING,
    ask,
    asking,
    complete,
    defaults,
    question,
    refuse,
    value,
)
from tests.sessions.mcp.transports.making import FlowSecrets, connected

pytestmark = pytest.mark.integration
ROOTS = (Root("file:///srv/a", "A"), Root("file:///srv/b"))


async def answers_to(made: FlowSecrets, *questions: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = value(await made.client.call_tool("ask", ask(*questions), **more))
    return answers


async def never(asked: InputRequest) -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_form_is_answered_and_the_person_learns_what_asked() -> None:
    seen: list[InputRequest] = []

    async def answer(asked: InputRequest) -> dict[str, Any]:
        seen.append(asked)
        return await defaults(asked)

    async with connected(asking(), capabilities=None, answers={ELICIT: answer}) as made:
        (reply,) = await answers_to(made, question("e-1", ELICIT, FORM), tag="call-7")
        assert reply == {"jsonrpc": "2.0", "id": "e-1", "result": {"action": "accept", "content": DEFAULTS}}
        assert seen == [InputRequest(ELICIT, FORM, "request", "e-1", "call-7")]
        assert made.of(ServerAsked) == [ServerAsked(ELICIT, "request", "e-1", "call-7")]


async def test_several_questions_are_answered_at_the_same_time_each_under_its_own_id() -> None:
    together = asyncio.Barrier(3)

    async def answer(asked: InputRequest) -> dict[str, Any]:
        await together.wait()
        return {**await complete(asked), "model": asked.key}

    async with connected(asking(), capabilities=None, answers={SAMPLE: answer}) as made:
        replies = await answers_to(made, *(question(key, SAMPLE, SAMPLING) for key in (0, "0", 1)))
    assert [(reply["id"], reply["result"]["model"]) for reply in replies] == [(0, "0"), ("0", "0"), (1, "1")]


async def test_a_refusal_has_the_code_of_the_user_and_his_words() -> None:
    async with connected(asking(), capabilities=None, answers={SAMPLE: refuse}) as made:
        (reply,) = await answers_to(made, question(1, SAMPLE, SAMPLING))
        assert reply["error"] == {"code": -1, "message": "Not today"}
        assert made.of(RequestRefused) == [RequestRefused(SAMPLE, -1)]


@pytest.mark.parametrize(
    "answer", [{"action": "perhaps"}, {"action": "accept"}, [], {"action": "accept", "content": {"a": {}}}]
)
async def test_an_answer_that_is_none_reaches_the_server_as_an_internal_error(answer: Any) -> None:
    async def wrong(asked: InputRequest) -> Any:
        return answer

    async with connected(asking(), capabilities=None, answers={ELICIT: wrong}) as made:
        (reply,) = await answers_to(made, question(1, ELICIT, FORM))
    assert reply["error"] == {"code": -32603, "message": "Internal error"}


async def test_a_crash_of_the_answerer_tells_the_server_nothing_and_leaves_the_session_alive() -> None:
    async def crash(asked: InputRequest) -> dict[str, Any]:
        raise ValueError("the secret is 42")

    async with connected(asking(), capabilities=None, answers={SAMPLE: crash, ELICIT: defaults}) as made:
        (reply,) = await answers_to(made, question(1, SAMPLE, SAMPLING))
        assert reply["error"] == {"code": -32603, "message": "Internal error"}
        (reply,) = await answers_to(made, question(2, ELICIT, FORM))
        assert reply["result"]["action"] == "accept"


@pytest.mark.parametrize(
    ("revision", "capabilities", "method", "params", "code"),
    [
        ("2025-11-25", {}, SAMPLE, SAMPLING, -32601),
        ("2025-11-25", {}, "roots/list", {}, -32601),
        ("2025-11-25", {"elicitation": {}}, ELICIT, {"mode": "url", "url": "https://a.example"}, -32602),
        ("2025-11-25", {"elicitation": {"url": {}}}, ELICIT, FORM, -32602),
        ("2025-11-25", {"elicitation": {}}, ELICIT, {**FORM, "mode": 7}, -32602),
        ("2025-11-25", {"sampling": {}}, SAMPLE, {**SAMPLING, "tools": []}, -32602),
        ("2025-11-25", {"sampling": {}}, "tools/call", {}, -32601),
        ("2025-06-18", {"elicitation": {"url": {}}}, ELICIT, FORM, -32601),
        ("2025-06-18", {"sampling": {"tools": {}}}, SAMPLE, {**SAMPLING, "tools": []}, -32602),
        ("2025-03-26", {"elicitation": {"form": {}}}, ELICIT, FORM, -32601),
    ],
)
async def test_what_the_agreed_revision_or_we_ourselves_do_not_offer_is_refused_by_its_code(
    revision: str, capabilities: dict[str, Any], method: str, params: dict[str, Any], code: int
) -> None:
    offered = {"capabilities": capabilities, "answers": {SAMPLE: complete, ELICIT: defaults}}
    async with connected(asking(revision), **offered) as made:
        (reply,) = await answers_to(made, question(1, method, params))
        assert reply["error"]["code"] == code
        assert made.of(ServerAsked) == []


async def test_a_context_that_was_not_declared_counts_as_none() -> None:
    seen: list[Any] = []

    async def answer(asked: InputRequest) -> dict[str, Any]:
        seen.append(asked.params["includeContext"])
        return await complete(asked)

    async with connected(asking(), capabilities=None, answers={SAMPLE: answer}) as made:
        await answers_to(made, question(1, SAMPLE, {**SAMPLING, "includeContext": "allServers"}))
    assert seen == ["none"]


async def test_a_ping_is_answered_while_a_person_thinks() -> None:
    async with connected(asking(), capabilities=None, answers={ELICIT: never}) as made:
        messages = [question("e", ELICIT, FORM), question("p", "ping")]
        (reply,) = value(await made.client.call_tool("ask", {"messages": messages, "expect": ["p"]}))
    assert reply == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_a_request_that_the_server_withdraws_is_stopped_and_never_answered() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def answer(asked: InputRequest) -> dict[str, Any]:
        began.set()
        try:
            return await never(asked)
        finally:
            ended.set()

    async with connected(asking(), capabilities=None, answers={ELICIT: answer}) as made:
        await made.client.call_tool("send", {"messages": [question("e", ELICIT, FORM)]})
        await began.wait()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": "e"}}
        await made.client.call_tool("send", {"messages": [cancelled]})
        await asyncio.wait_for(ended.wait(), 30)
        heard = value(await made.client.call_tool("heard", {}))
    assert [message for message in heard if message.get("id") == "e"] == []


async def test_one_id_asked_twice_is_put_to_a_person_once() -> None:
    async with connected(asking(), capabilities=None, answers={ELICIT: defaults}) as made:
        twice = [question("e", ELICIT, FORM)] * 2
        await made.client.call_tool("ask", {"messages": twice, "expect": ["e"]})
        assert len(made.of(ServerAsked)) == 1
        assert "twice" in made.of(ProtocolViolation)[0].detail


async def test_a_flood_of_requests_is_answered_within_bounds_and_the_session_goes_on() -> None:
    most = 0
    working = 0

    async def answer(asked: InputRequest) -> dict[str, Any]:
        nonlocal most, working
        working += 1
        most = max(most, working)
        try:
            return await never(asked)
        finally:
            working -= 1

    limits = Limits(open_server_requests=4, server_requests_per_minute=10)
    async with connected(asking(), capabilities=None, answers={SAMPLE: answer}, limits=limits) as made:
        await made.client.call_tool("flood", {"count": 10_000, "method": SAMPLE})
        assert len(asyncio.all_tasks()) < 30
        await made.client.call_tool("heard", {})
        assert most == 4
        assert len(made.of(ServerAsked)) == 4
        refused = [event for event in made.of(RequestRefused) if event.method == SAMPLE]
        assert refused
        assert {event.code for event in refused} == {-32603}
    assert working == 0


async def test_a_flood_of_pings_is_answered_as_far_as_the_bound_and_the_rest_is_dropped_with_a_word() -> None:
    async with connected(asking()) as made:
        await made.client.call_tool("flood", {"count": 10_000, "method": "ping"})
        assert len(asyncio.all_tasks()) < 60
        heard = value(await made.client.call_tool("heard", {}))
        answered = [message for message in heard if str(message.get("id")).startswith("f")]
        dropped = [event for event in made.of(NotDelivered) if "dropped" in event.detail]
        assert answered
        assert dropped
        assert 10_000 - _WAITING - 60 <= len(answered) + len(dropped) <= 10_000, "each is answered, waits, or is told"


async def test_the_rate_of_a_minute_is_kept_also_when_each_question_is_answered_at_once() -> None:
    limits = Limits(server_requests_per_minute=3)
    async with connected(asking(), capabilities=None, answers={SAMPLE: complete}, limits=limits) as made:
        replies = await answers_to(made, *(question(n, SAMPLE, SAMPLING) for n in range(5)))
    assert [("result" in reply) for reply in replies] == [True, True, True, False, False]
    assert replies[4]["error"]["code"] == -32603


async def test_the_idle_time_of_a_call_is_paused_while_we_answer_but_the_total_is_not() -> None:
    async def slowly(asked: InputRequest) -> dict[str, Any]:
        await asyncio.sleep(2.5)
        return await defaults(asked)

    async with connected(asking(), capabilities=None, answers={ELICIT: slowly}) as made:
        (reply,) = await answers_to(made, question(1, ELICIT, FORM), timeout=2.0)
        assert reply["result"]["action"] == "accept"
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("ask", ask(question(2, ELICIT, FORM)), timeout=2.0, total_timeout=2.2)
        assert caught.value.fault is Fault.TOTAL_DEADLINE
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("ask", {"messages": [], "expect": ["nothing"]}, timeout=0.1)
        assert caught.value.fault is Fault.TIMEOUT


async def test_the_end_of_the_session_ends_what_is_being_answered() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def answer(asked: InputRequest) -> dict[str, Any]:
        began.set()
        try:
            return await never(asked)
        finally:
            ended.set()

    async with connected(asking(), capabilities=None, answers={ELICIT: answer}) as made:
        await made.client.call_tool("send", {"messages": [question("e", ELICIT, FORM)]})
        await began.wait()
    await asyncio.wait_for(ended.wait(), 30)


async def test_roots_are_answered_by_the_client_itself_and_a_change_is_announced() -> None:
    async with connected(asking(), capabilities=None, roots=ROOTS) as made:
        assert made.connected.client_capabilities == {"roots": {"listChanged": True}}
        (reply,) = await answers_to(made, question(1, "roots/list"))
        assert reply["result"] == {"roots": [{"uri": "file:///srv/a", "name": "A"}, {"uri": "file:///srv/b"}]}
        assert await made.client.set_roots(ROOTS[:1])
        (reply,) = await answers_to(made, question(2, "roots/list"))
        assert len(reply["result"]["roots"]) == 1
        heard = value(await made.client.call_tool("heard", {}))
        assert {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"} in heard


async def test_roots_that_were_not_declared_are_not_announced() -> None:
    async with connected(asking()) as made:
        assert not await made.client.set_roots(ROOTS)
        heard = value(await made.client.call_tool("heard", {}))
        assert not [message for message in heard if message.get("method", "").startswith("notifications/roots")]


async def test_what_is_declared_follows_from_who_answers() -> None:
    async with connected(asking(), capabilities=None, answers={SAMPLE: complete, ELICIT: defaults}) as made:
        (initialize,) = [
            message
            for message in value(await made.client.call_tool("heard", {}))
            if message.get("method") == "initialize"
        ]
    assert initialize["params"]["capabilities"] == {
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
        "tasks": {
            "list": {},
            "cancel": {},
            "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
        },
    }


async def test_a_capability_that_no_one_answers_is_our_own_fault() -> None:
    async def open_transport(**_: Any) -> Any:
        raise AssertionError("never opened")

    with pytest.raises(ValueError, match="no handler answers sampling/createMessage"):
        Client(open_transport, client_info=None, capabilities={"sampling": {}}, on_event=print)  # type: ignore[arg-type]  # not reached


@pytest.mark.parametrize("code", [-32020, -32042, -32099])
def test_a_refusal_never_uses_a_code_of_the_specification(code: int) -> None:
    with pytest.raises(ValueError, match="belongs to the specification"):
        Refused(code)


def test_a_root_is_a_file_uri() -> None:
    with pytest.raises(ValueError, match="file:///"):
        Root("https://a.example")
