"""Requests of a legacy server over Streamable HTTP arrive on either stream and are answered by a POST."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sessions.mcp.client import InputRequest as Question
from sessions.mcp.core.errors import TransportError
from sessions.mcp.core.events import NotDelivered, ProtocolViolation, ServerAsked
from tests.sessions.mcp.client.answers import DEFAULTS, ELICIT, FORM, SAMPLE, complete, defaults, question
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, Script, legacy, scripted_http

pytestmark = pytest.mark.integration
ASK = {"jsonrpc": "2.0", **question("e-1", ELICIT, FORM)}
OK = {"content": [{"type": "text", "text": "ok"}]}


class Answers:
    """Collects the responses that the client posts."""

    def __init__(self) -> None:
        self.posted: list[Asked] = []
        self.arrived = asyncio.Event()

    def catching(self, script: Script, status: int = 202) -> Script:
        async def catch(asked: Asked, line: Line) -> None:
            if isinstance(asked.message, dict) and "method" not in asked.message:
                self.posted.append(asked)
                self.arrived.set()
                await line.reply(status, kind="")
            else:
                await script(asked, line)

        return catch


def serving(peer: Peer, **more: Any) -> Any:
    return connected(http(peer.url), **{"capabilities": None, "answers": {ELICIT: defaults}, **more})


def asking_in_its_stream(answers: Answers, *, then: Callable[[], Any] | None = None) -> Script:
    """A legacy server whose call asks on the call's own stream, and ends after the answer."""

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(ASK)
        await answers.arrived.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    return answers.catching(legacy(on_call, session="s-1"))


async def test_a_question_on_the_stream_of_a_call_is_answered_by_a_post_in_the_same_session() -> None:
    answers = Answers()
    async with scripted_http(asking_in_its_stream(answers)) as peer, serving(peer) as made:
        await made.client.call_tool("t", {}, tag="c")
        (posted,) = answers.posted
        assert posted.message == {"jsonrpc": "2.0", "id": "e-1", "result": {"action": "accept", "content": DEFAULTS}}
        assert posted.headers["mcp-session-id"] == "s-1"
        assert posted.headers["mcp-protocol-version"] == "2025-11-25"
        assert made.of(ServerAsked) == [ServerAsked(ELICIT, "request", "e-1", "c")]


async def test_a_question_on_the_get_stream_is_answered_and_belongs_to_the_only_call_there_is() -> None:
    answers, called = Answers(), asyncio.Event()

    async def on_get(asked: Asked, line: Line) -> None:
        await line.stream()
        await called.wait()
        await line.event(ASK)
        await line.hang()

    async def on_call(asked: Asked, line: Line) -> None:
        called.set()
        await answers.arrived.wait()
        await line.result(asked, OK)

    script = answers.catching(legacy(on_call, session="s-1", on_get=on_get))
    async with scripted_http(script) as peer, serving(peer) as made:
        await made.client.call_tool("t", {}, tag="c")
        assert answers.posted[0].message["result"] == {"action": "accept", "content": DEFAULTS}
        assert made.of(ServerAsked) == [ServerAsked(ELICIT, "request", "e-1", "c")]


async def test_of_two_calls_the_one_whose_stream_asked_is_named_and_only_its_time_is_paused() -> None:
    answers = Answers()

    async def on_call(asked: Asked, line: Line) -> None:
        if asked.message["params"]["name"] == "silent":
            await line.hang()
            return
        await line.stream()
        await line.event(ASK)
        await answers.arrived.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    async def slowly(asked: Question) -> dict[str, Any]:
        assert asked.tag == "asks"
        await asyncio.sleep(3.0)
        return await defaults(asked)

    script = answers.catching(legacy(on_call))
    async with scripted_http(script) as peer, serving(peer, answers={ELICIT: slowly}) as made:
        asks = asyncio.create_task(made.client.call_tool("asks", {}, tag="asks", timeout=2.0))
        with pytest.raises(TransportError):
            await made.client.call_tool("silent", {}, tag="silent", timeout=2.0)
        await asks


async def test_when_a_call_is_given_up_its_question_is_answered_as_by_a_person_who_left() -> None:
    answers, began = Answers(), asyncio.Event()

    async def think(asked: Question) -> dict[str, Any]:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with scripted_http(asking_in_its_stream(answers)) as peer, serving(peer, answers={ELICIT: think}) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(answers.arrived.wait(), 30)
        assert answers.posted[0].message["result"] == {"action": "cancel"}


async def test_an_answer_that_the_server_does_not_take_is_reported_and_the_session_goes_on() -> None:
    answers = Answers()

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(ASK)
        await answers.arrived.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    async with scripted_http(answers.catching(legacy(on_call), 500)) as peer, serving(peer) as made:
        await made.client.call_tool("t", {})
        assert await made.client.ping() >= 0
        assert [event.key for event in made.of(NotDelivered) if "did not accept it" in event.detail] == ["e-1"]
        assert made.of(ProtocolViolation) == [], "the server did nothing wrong"


async def test_a_question_of_a_session_that_the_server_forgot_is_dropped() -> None:
    began, ended, calls = asyncio.Event(), asyncio.Event(), []

    async def think(asked: Question) -> dict[str, Any]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("unreachable")

    async def on_get(asked: Asked, line: Line) -> None:
        await line.stream()
        if not calls:
            await line.event({"jsonrpc": "2.0", **question("s-1", SAMPLE)})
        await line.hang()

    async def on_call(asked: Asked, line: Line) -> None:
        calls.append(asked)
        await (line.reply(404, kind="") if len(calls) == 1 else line.result(asked, OK))

    answers = Answers()
    script = answers.catching(legacy(on_call, session="s", on_get=on_get))
    async with scripted_http(script) as peer, serving(peer, answers={SAMPLE: think}) as made:
        await began.wait()
        await made.client.call_tool("t", {})
        await asyncio.wait_for(ended.wait(), 30)
        assert answers.posted == []
        assert peer.count("initialize") == 2


async def test_requests_in_one_batch_are_each_answered() -> None:
    answers, both = Answers(), asyncio.Event()

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event([{"jsonrpc": "2.0", **question(n, SAMPLE)} for n in (1, 2)])
        await both.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    async def script(asked: Asked, line: Line) -> None:
        await catching(asked, line)
        if len(answers.posted) == 2:
            both.set()

    catching = answers.catching(legacy(on_call))
    async with scripted_http(script) as peer, serving(peer, answers={SAMPLE: complete}) as made:
        await made.client.call_tool("t", {})
    assert sorted(posted.message["id"] for posted in answers.posted) == [1, 2]
