"""Forgotten sessions are renewed and broken streams resumed, and no call is ever executed twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, HttpError, McpError, RpcError
from sessions.mcp.core.events import ListChanged
from sessions.mcp.core.state import State
from sessions.mcp.transports.streamable_http import listener, transport, wire
from sessions.mcp.transports.streamable_http.wire import Cursor
from tests.sessions.mcp.client.waiting import until

from .http_answers import ERAS, OK, fail_call
from .making import connected, http, unconnected
from .scripted_http import INITIALIZED, Asked, Line, Script, legacy, modern, scripted_http

pytestmark = pytest.mark.integration


async def not_found(asked: Asked, line: Line) -> None:
    await line.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -1, "message": "gone"}}, 404)


async def bad_request(asked: Asked, line: Line) -> None:
    """The usual wiring of the TypeScript SDK."""
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    await line.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)


async def bad_request_as_text(asked: Asked, line: Line) -> None:
    """The Python SDK up to 1.12."""
    await line.reply(400, b"Bad Request: No valid session ID provided", "text/plain; charset=utf-8")


def forgetful(calls: list[str], refuse: Script = not_found) -> Script:
    """A server that refuses calls in its first session, until it is initialized again."""
    initialized: list[str] = []

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await line.reply(405, kind="")
        elif asked.method == "initialize":
            initialized.append(f"s{len(initialized) + 1}")
            await line.result(asked, INITIALIZED, Mcp_Session_Id=initialized[-1])
        elif asked.method == "tools/call":
            if asked.headers.get("mcp-session-id") == "s1":
                await refuse(asked, line)
            else:
                calls.append(asked.message["params"]["arguments"]["n"])
                await line.result(asked, OK)
        elif asked.id is None or asked.verb == "DELETE":
            await line.reply(202, kind="")
        else:
            await line.error(asked, -32601)

    return script


@pytest.mark.parametrize("refuse", [not_found, bad_request, bad_request_as_text])
async def test_a_forgotten_session_is_renewed_once_for_many_calls_and_each_is_executed_once(refuse: Script) -> None:
    executed: list[str] = []
    attempts: list[tuple[int, str]] = []

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))

    async with scripted_http(forgetful(executed, refuse)) as peer, connected(http(peer.url)) as made:
        calls = [made.client.call_tool("t", {"n": str(n)}, before_send=note) for n in range(10)]
        results = await asyncio.gather(*calls)
        assert peer.count("initialize") == 2
    assert sorted(executed) == [str(n) for n in range(10)]
    assert all(result.attempts <= 2 for result in results)
    assert attempts.count((2, "session_gone")) == len(attempts) - 10 > 0


@pytest.mark.parametrize("step", ["initialize", "notifications/initialized"])
async def test_no_call_is_sent_while_a_forgotten_session_is_being_renewed(step: str) -> None:
    """One call is about to be sent when another learns that the session is gone."""
    executed: list[str] = []
    attempts: list[tuple[int, str]] = []
    renewing, announced, may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
    inner = forgetful(executed)

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == step and peer.count("initialize") > 1:
            renewing.set()
            await may_answer.wait()
        await inner(asked, line)

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))
        announced.set()
        await renewing.wait()

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        slow = asyncio.create_task(made.client.call_tool("t", {"n": "slow"}, before_send=note))
        await announced.wait()
        quick = asyncio.create_task(made.client.call_tool("t", {"n": "quick"}))
        await renewing.wait()
        await asyncio.sleep(0.1)
        assert peer.count("tools/call") == 1
        may_answer.set()
        await asyncio.gather(slow, quick)
        calls = [one.headers.get("mcp-session-id") for one in peer.asked if one.method == "tools/call"]
        assert calls == ["s1", "s2", "s2"]
        assert peer.count("initialize") == 2
    assert sorted(executed) == ["quick", "slow"]
    assert attempts == [(1, "first"), (2, "session_gone")]


@pytest.mark.parametrize("renewable", [True, False])
async def test_cancelling_the_call_that_renews_a_session_leaves_it_renewed_or_ended(renewable: bool) -> None:
    executed: list[str] = []
    renewing, may_answer = asyncio.Event(), asyncio.Event()
    inner = forgetful(executed)

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "initialize" and peer.count("initialize") > 1:
            renewing.set()
            await may_answer.wait()
            if not renewable:
                await line.error(asked, -32603)
                return
        await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        call = asyncio.create_task(made.client.call_tool("t", {"n": "1"}))
        await renewing.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        may_answer.set()
        if renewable:
            await made.client.call_tool("t", {"n": "2"})
            assert executed == ["2"]
        else:
            async with asyncio.timeout(20):
                assert isinstance(await made.client.closed, RpcError)
        assert peer.count("initialize") == 2


@pytest.mark.parametrize("step", ["initialize", "notifications/initialized", ""])
async def test_closing_while_a_session_is_being_renewed_ends_the_call_that_renews_it(step: str) -> None:
    """`step`: what the server is slow to answer; empty: the GET of the stream for notifications."""
    executed: list[str] = []
    renewing = asyncio.Event()
    inner = forgetful(executed)

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == step and asked.verb != "DELETE" and peer.count("initialize") > 1:
            renewing.set()
            await line.hang()
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        call = asyncio.create_task(made.client.call_tool("t", {"n": "1"}))
        await renewing.wait()
        asked = len(peer.asked)
        await made.client.close()
        with pytest.raises(McpError) as caught:
            await call
        assert not caught.value.may_have_run
        assert [one.verb for one in peer.asked[asked:]] == ([] if step == "initialize" else ["DELETE"])
        assert made.client.state is State.DISCONNECTED
    assert executed == []


@pytest.mark.parametrize("refuse", [not_found, bad_request, bad_request_as_text])
async def test_a_second_refusal_right_after_the_renewal_is_an_error(refuse: Script) -> None:
    async with scripted_http(legacy(refuse, session="s")) as peer, connected(http(peer.url)) as made:
        with pytest.raises(HttpError) as caught:
            await made.client.call_tool("t", {})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.SESSION_GONE, False)
        assert peer.count("tools/call") == 2
        assert peer.count("initialize") == 2


@pytest.mark.parametrize(
    ("refuse", "fault"),
    [
        (not_found, Fault.RPC_ERROR),
        (bad_request, Fault.RPC_ERROR),
        (bad_request_as_text, Fault.HTTP_STATUS),
    ],
)
async def test_a_refusal_without_a_session_is_no_reason_to_try_again(refuse: Script, fault: Fault) -> None:
    error, peer = await fail_call(legacy(refuse))
    assert (error.fault, error.may_have_run, peer.count("tools/call")) == (fault, True, 1)


async def test_a_400_that_names_no_missing_session_is_an_answer_and_never_a_reason_to_try_again() -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        error = {"code": -32000, "message": "No active session. Call start_session first."}
        await line.json({"jsonrpc": "2.0", "id": asked.id, "error": error}, 400)

    error, peer = await fail_call(legacy(refuse, session="s"))
    assert (error.fault, error.may_have_run, peer.count("tools/call")) == (Fault.RPC_ERROR, True, 1)
    assert peer.count("initialize") == 1


@pytest.mark.parametrize("status", [400, 402])
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("words", ["Session not found", "Missing required parameter: api_key", "Invalid host"])
async def test_an_error_with_our_id_is_the_answer_to_a_call_whatever_its_words(
    words: str, era: Callable[..., Script], as_text: bool, status: int
) -> None:
    """A tool has sessions, keys and hosts of its own."""

    async def refuse(asked: Asked, line: Line) -> None:
        identity = str(asked.id) if as_text else asked.id
        await line.json({"jsonrpc": "2.0", "id": identity, "error": {"code": -32000, "message": words}}, status)

    script = era(refuse, session="s") if era is legacy else era(refuse)
    error, peer = await fail_call(script)
    assert (error.fault, error.detail, error.may_have_run) == (Fault.RPC_ERROR, words, True)
    assert peer.count("tools/call") == 1
    assert peer.count("initialize") == int(era is legacy)


async def test_an_error_to_the_opening_is_judged_by_its_words_also_with_our_id() -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        error = {"code": -32000, "message": "Missing API key"}
        await line.json({"jsonrpc": "2.0", "id": asked.id, "error": error}, 400)

    async with scripted_http(refuse) as peer:
        with pytest.raises(HttpError) as caught:
            await unconnected(http(peer.url)).connect()
    assert caught.value.fault is Fault.KEY_NEEDED


async def test_a_broken_stream_with_an_id_is_resumed_by_get_and_never_posted_again() -> None:
    resumed: list[str] = []
    call: list[Asked] = []

    async def first_half(asked: Asked, line: Line) -> None:
        call.append(asked)
        await line.stream()
        await line.event(id="e1", retry=50)
        await line.end()

    async def on_get(asked: Asked, line: Line) -> None:
        last = asked.headers.get("last-event-id")
        if last is None:
            await line.reply(405, kind="")
            return
        resumed.append(last)
        await line.stream()
        if len(resumed) == 1:
            await line.event(id="e2", retry=10)
            await line.end()
        else:
            await line.event({"jsonrpc": "2.0", "id": call[0].id, "result": OK}, id="e3")

    async with scripted_http(legacy(first_half, session="s", on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert resumed == ["e1", "e2"]
        assert peer.count("tools/call") == 1


async def test_a_server_that_restarts_is_asked_again_and_what_it_refuses_may_have_run() -> None:
    call: list[Asked] = []
    answers = iter((503, 200, 404))

    async def broken(asked: Asked, line: Line) -> None:
        call.append(asked)
        await line.stream()
        await line.event(id="e1", retry=10)
        line.reset()

    async def on_get(asked: Asked, line: Line) -> None:
        status = next(answers) if "last-event-id" in asked.headers else 405
        if status != 200:
            await line.reply(status, kind="")
            return
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": call[-1].id, "result": OK}, id="e2")

    async with scripted_http(legacy(broken, session="s", on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        with pytest.raises(HttpError) as caught:
            await made.client.call_tool("t", {})
        assert caught.value.may_have_run
        assert peer.count("tools/call") == 2


async def test_a_stream_that_breaks_again_and_again_without_news_is_given_up() -> None:
    async def broken(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(id="e1", retry=1)
        line.reset()

    async def on_get(asked: Asked, line: Line) -> None:
        if "last-event-id" not in asked.headers:
            await line.reply(405, kind="")
            return
        await line.stream()
        await line.end()

    error, peer = await fail_call(legacy(broken, on_get=on_get))
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert peer.count("tools/call") == 1


async def test_a_silent_reply_that_a_gateway_cuts_is_resumed_until_the_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "STEADY", 0.0)
    monkeypatch.setattr(wire, "_SHORTEST_RETRY_MS", 1)
    call: list[Asked] = []
    resumed: list[Asked] = []

    async def first_part(asked: Asked, line: Line) -> None:
        call.append(asked)
        await line.stream()
        await line.event(id="e1", retry=1)
        await line.end()

    async def on_get(asked: Asked, line: Line) -> None:
        if "last-event-id" not in asked.headers:
            await line.reply(405, kind="")
            return
        resumed.append(asked)
        await line.stream()
        if len(resumed) == 20:
            await line.event({"jsonrpc": "2.0", "id": call[0].id, "result": OK}, id="e2")
        await line.end()

    async with scripted_http(legacy(first_part, on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.count("tools/call") == 1


async def test_an_answer_on_the_get_stream_ends_the_call_whose_own_stream_is_silent() -> None:
    listening: list[Line] = []

    async def on_get(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        listening.append(line)
        await line.hang()

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await listening[0].event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.hang()

    async with scripted_http(legacy(on_call, session="s", on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert [type(event).__name__ for event in made.events if "List" in type(event).__name__] == ["ListChanged"]


@pytest.mark.parametrize("status", [400, 401, 404, 405, 406, 501, 200])
async def test_a_server_without_get_stream_is_fine(status: int) -> None:
    async def on_get(asked: Asked, line: Line) -> None:
        await line.reply(status, b"{}")

    script = legacy(lambda asked, line: line.result(asked, OK), session="s", on_get=on_get)
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.methods().count("GET") == 1


@pytest.mark.parametrize("statuses", [[429], [408], [425], [503] * 5])
async def test_a_get_stream_that_is_refused_for_the_moment_is_opened_later(
    statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cursor, "pause", lambda self, failed: 0.01)
    monkeypatch.setattr(listener, "_SELDOM", 0.02)
    refusals = iter(statuses)

    async def on_get(asked: Asked, line: Line) -> None:
        status = next(refusals, 0)
        if status:
            await line.reply(status, kind="")
            return
        await line.stream()
        await line.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await line.hang()

    script = legacy(lambda asked, line: line.result(asked, OK), session="s", on_get=on_get)
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await until(lambda: bool(made.of(ListChanged)))
        assert peer.count("GET") == len(statuses) + 1


@pytest.mark.parametrize(
    ("failures", "asked", "seconds"), [(1, 0.0, 2.0), (3, 0.0, 300.0), (1, 60.0, 60.0), (3, 400.0, 400.0)]
)
def test_a_stream_that_a_server_never_opened_is_asked_for_seldom_and_not_before_it_said(
    failures: int, asked: float, seconds: float
) -> None:
    listening = listener.Listener(None, None, None, None)  # type: ignore[arg-type]  # it sends nothing
    listening._asked_pause = asked
    assert listening._pause(Cursor(), failures) == seconds


async def test_a_request_of_the_server_on_the_calls_stream_is_answered_by_a_post() -> None:
    answered = asyncio.Event()
    answers: list[Any] = []

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": "e-1", "method": "elicitation/create", "params": {}})
        await answered.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    inner = legacy(on_call)

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "POST" and not asked.method:
            answers.append(asked.message)
            answered.set()
            await line.reply(202, kind="")
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [("e-1", -32601)]


async def test_calls_over_event_streams_share_a_connection() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await asyncio.sleep(0.01)
        await line.end()

    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url)) as made:
        for _ in range(5):
            await made.client.call_tool("t", {}, input_schema={})
            await asyncio.sleep(0.05)
        assert peer.connections <= 2


@pytest.mark.parametrize(
    ("retry_ms", "failed", "seconds"),
    [(500, 0, 0.5), (500, 2, 2.0), (20_000, 3, 30.0), (45_000, 0, 45.0), (90_000, 4, 90.0), (500, 5_000, 30.0)],
)
def test_a_stream_is_never_resumed_sooner_than_its_server_asked_for(retry_ms: int, failed: int, seconds: float) -> None:
    cursor = Cursor()
    cursor.note("e1", retry_ms)
    assert cursor.pause(failed) == seconds
