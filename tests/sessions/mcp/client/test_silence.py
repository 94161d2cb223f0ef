"""The client pings the server of a silent session, and gives up a connection that no longer answers."""

import asyncio

import pytest

from sessions.mcp.core.errors import Fault, McpError, TransportError
from sessions.mcp.core.events import ListKind, StateChanged
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from tests.peers.proxied import proxied
from tests.sessions.mcp.transports.http_answers import OK
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Script, legacy, scripted_http

from .feeds import Feeds, feeding
from .waiting import until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("listens", [False, True])
async def test_an_idle_modern_session_whose_connection_leads_nowhere_is_given_up(listens: bool) -> None:
    """A listen stream has no time limit, so it does not count as a pending response."""
    quick, feeds = Timeouts(keepalive_idle=0.2, keepalive_answer=0.3, keepalive_misses=2), Feeds()
    async with feeding(feeds) as url:
        port, path = url.removeprefix("http://127.0.0.1:").split("/", 1)
        with proxied("127.0.0.1", int(port)) as proxy:
            async with connected(http(f"{proxy.url}/{path}"), timeouts=quick) as made:
                if listens:
                    following = asyncio.create_task(made.client.follow(lists=[ListKind.TOOLS]))
                    await feeds.next()
                    await following
                proxy.black_hole()
                async with asyncio.timeout(20):
                    reason = await made.client.closed
    assert reason is not None
    assert reason.fault is Fault.CONNECTION_LOST
    assert "did not answer 2 pings" in reason.detail


async def test_a_modern_server_that_answers_stays_through_many_silences_and_is_asked_in_each() -> None:
    feeds = Feeds()
    quick = Timeouts(keepalive_idle=0.05, keepalive_answer=10)
    async with feeding(feeds) as url, connected(http(url), timeouts=quick) as made:
        await until(lambda: feeds.discovered > 4)
        assert made.client.state is State.READY
        assert [event.new for event in made.of(StateChanged)][-1] is State.READY


def pinged(answer: Script, session: str = "s") -> Script:
    """A legacy server with a session, where the test answers pings."""
    inner = legacy(lambda asked, line: line.result(asked, OK), session=session)

    async def script(asked: Asked, line: Line) -> None:
        await (answer if asked.method == "ping" else inner)(asked, line)

    return script


async def test_a_session_whose_pings_are_refused_by_http_status_is_given_up() -> None:
    """A server that restarted without its sessions, and reports this with an unknown error message."""

    async def refuse(asked: Asked, line: Line) -> None:
        error = {"code": -32000, "message": "Bad Request: Server not initialized"}
        await line.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)

    quick = Timeouts(keepalive_idle=0.05, keepalive_misses=2)
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=quick) as made:
        async with asyncio.timeout(20):
            reason = await made.client.closed
        assert peer.count("ping") == 2
    assert reason is not None
    assert (reason.fault, reason.detail) == (Fault.RPC_ERROR, "Bad Request: Server not initialized")


async def test_an_idle_session_that_the_server_forgot_is_renewed_by_the_ping() -> None:
    async def refuse_once(asked: Asked, line: Line) -> None:
        if len(pings) == 0:
            pings.append(asked)
            await line.reply(400, b"Bad Request: No valid session ID provided", "text/plain")
        else:
            await line.result(asked, {})

    pings: list[Asked] = []
    quick = Timeouts(keepalive_idle=0.05)
    async with scripted_http(pinged(refuse_once)) as peer, connected(http(peer.url), timeouts=quick) as made:
        await until(lambda: peer.count("ping") > 2)
        assert peer.count("initialize") == 2
        assert made.client.state is State.READY


@pytest.mark.parametrize("status", [200, 400])
async def test_a_server_that_does_not_know_ping_is_alive(status: int) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.error(asked, -32601, status)

    quick = Timeouts(keepalive_idle=0.05, keepalive_misses=1)
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=quick) as made:
        await until(lambda: peer.count("ping") > 2)
        assert made.client.state is State.READY


@pytest.mark.parametrize("session", ["", "s"])
@pytest.mark.parametrize("status", [202, 404, 405, 501])
async def test_a_server_or_gateway_that_refuses_ping_in_plain_http_is_alive_while_it_answers_a_list(
    status: int, session: str
) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="")

    quick = Timeouts(keepalive_idle=0.05, keepalive_misses=1)
    async with scripted_http(pinged(refuse, session)) as peer, connected(http(peer.url), timeouts=quick) as made:
        await until(lambda: peer.count("tools/list") > 3)
        assert made.client.state is State.READY
        assert peer.count("ping") == (2 if session and status == 404 else 1)  # with a session it may be a lost one


async def test_a_server_that_refuses_its_list_as_well_as_ping_is_given_up() -> None:
    """A gateway that knows no backend any more."""
    gone = asyncio.Event()
    inner = legacy(lambda asked, line: line.result(asked, OK))

    async def script(asked: Asked, line: Line) -> None:
        await (line.reply(404, b"404 page not found", "text/plain") if gone.is_set() else inner(asked, line))

    async with scripted_http(script) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        gone.set()
        async with asyncio.timeout(20):
            reason = await made.client.closed
    assert reason is not None
    assert reason.fault is Fault.HTTP_STATUS


def serial(released: asyncio.Event) -> Script:
    """A server that works on one request at a time: during a call it answers nothing else, not even a ping."""

    async def on_call(asked: Asked, line: Line) -> None:
        await released.wait()
        await line.result(asked, OK)

    async def on_other(asked: Asked, line: Line) -> None:
        await released.wait()
        await line.result(asked, {"tools": []} if asked.method == "tools/list" else {})

    inner = legacy(on_call, session="s")

    async def script(asked: Asked, line: Line) -> None:
        await (on_other if asked.method in ("ping", "tools/list") else inner)(asked, line)

    return script


QUICK = Timeouts(keepalive_idle=0.05, keepalive_answer=0.05, keepalive_misses=2)


async def test_a_server_that_does_one_thing_at_a_time_may_take_the_whole_time_of_a_call() -> None:
    released = asyncio.Event()
    async with scripted_http(serial(released)) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}, timeout=60))
        await until(lambda: peer.count("ping") > 4)
        assert made.client.state is State.READY
        released.set()
        assert (await call).raw == OK
        assert await made.client.ping() > 0
        assert peer.count("tools/call") == 1


async def test_a_server_that_hangs_while_a_list_is_read_is_given_up_like_an_idle_one() -> None:
    async with scripted_http(serial(asyncio.Event())) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        reading = asyncio.create_task(made.client.list_tools())
        async with asyncio.timeout(20):
            reason = await made.client.closed
        with pytest.raises(McpError):
            await reading
    assert reason is not None
    assert "did not answer 2 pings" in reason.detail


async def test_a_server_that_hangs_is_given_up_with_the_deadline_of_its_call_whatever_was_sent_since() -> None:
    async with scripted_http(serial(asyncio.Event())) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        first = asyncio.create_task(made.client.call_tool("t", {}, timeout=3))
        await until(lambda: peer.count("ping") > 1)  # so one was missed
        later = asyncio.create_task(made.client.call_tool("t", {}, timeout=60))
        errors = []
        for call in (first, later):
            with pytest.raises(McpError) as caught:
                async with asyncio.timeout(30):
                    await call
            errors.append((caught.value.fault, caught.value.may_have_run))
        assert errors == [(Fault.TIMEOUT, True), (Fault.CONNECTION_LOST, True)]
        reason = made.client.closed.result()
        assert reason is not None
        assert "pings of 0.05 s each" in reason.detail


def refused(how: Script, released: asyncio.Event) -> Script:
    """Works on a call until `released`, and refuses pings meanwhile."""

    async def on_call(asked: Asked, line: Line) -> None:
        await released.wait()
        await line.result(asked, OK)

    inner = legacy(on_call, session="s")

    async def script(asked: Asked, line: Line) -> None:
        await (how if asked.method == "ping" and not released.is_set() else inner)(asked, line)

    return script


@pytest.mark.parametrize(("status", "kind"), [(401, ""), (429, ""), (502, ""), (503, ""), (200, "text/html")])
async def test_an_http_error_or_a_page_to_a_ping_ends_no_call_that_the_server_works_on(status: int, kind: str) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, b"<!doctype html>" if kind else b"", kind)

    released = asyncio.Event()
    async with scripted_http(refused(refuse, released)) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}, timeout=60))
        await until(lambda: peer.count("ping") > 4)
        assert made.client.state is State.READY
        released.set()
        assert (await call).raw == OK
        assert peer.count("tools/call") == 1
        assert await made.client.ping() > 0


@pytest.mark.parametrize(("status", "state"), [(429, State.READY), (503, State.DISCONNECTED)])
async def test_a_rate_limit_leaves_an_idle_session_open_and_a_failing_gateway_ends_it(
    status: int, state: State
) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="")

    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        await until(lambda: peer.count("ping") > 4 or made.client.closed.done())
        assert made.client.state is state


@pytest.mark.parametrize(("status", "kind"), [(200, "text/html"), (403, "text/html")])
@pytest.mark.parametrize("credential", [False, True])
async def test_an_idle_session_outlives_one_page_of_a_gateway_or_firewall(
    status: int, kind: str, credential: bool
) -> None:
    async def refuse_once(asked: Asked, line: Line) -> None:
        if not pages:
            pages.append(asked)
            await line.reply(status, b"<!doctype html>", kind)
        else:
            await line.result(asked, {})

    pages: list[Asked] = []
    spec = {"credential": credential}
    async with scripted_http(pinged(refuse_once)) as peer, connected(http(peer.url, **spec), timeouts=QUICK) as made:
        await until(lambda: peer.count("ping") > 4 or made.client.closed.done())
        assert made.client.state is State.READY


async def test_a_page_in_answer_to_a_ping_is_no_answer_to_another_request() -> None:
    async def on_list(asked: Asked, line: Line) -> None:
        await line.hang()

    async def page(asked: Asked, line: Line) -> None:
        await line.reply(200, b"<!doctype html>", "text/html")

    inner = pinged(page)

    async def script(asked: Asked, line: Line) -> None:
        await (on_list if asked.method == "tools/list" else inner)(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        with pytest.raises(TransportError) as caught:
            async with asyncio.timeout(20):
                await made.client.list_tools()
        reason = made.client.closed.result()
    assert reason is not None
    assert reason.fault is Fault.NOT_MCP
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert "while the server worked on the request" in caught.value.detail


@pytest.mark.parametrize(("status", "state"), [(200, State.READY), (401, State.DISCONNECTED)])
async def test_a_check_that_is_asked_for_finds_at_once_whether_the_session_is_still_accepted(
    status: int, state: State
) -> None:
    async def answer(asked: Asked, line: Line) -> None:
        await (line.result(asked, {}) if status == 200 else line.reply(status, kind=""))

    patient = Timeouts(keepalive_idle=60)
    async with scripted_http(pinged(answer)) as peer, connected(http(peer.url), timeouts=patient) as made:
        for _ in range(5):
            made.client.check()
        await until(lambda: peer.count("ping") == 1)
        await asyncio.sleep(0.1)
        assert (made.client.state, peer.count("ping")) == (state, 1)


async def test_a_check_that_is_asked_for_ends_no_call_that_the_server_works_on() -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(401, kind="")

    released = asyncio.Event()
    patient = Timeouts(keepalive_idle=60)
    async with scripted_http(refused(refuse, released)) as peer, connected(http(peer.url), timeouts=patient) as made:
        call = asyncio.create_task(made.client.call_tool("t", {}, timeout=60))
        await until(lambda: peer.count("tools/call") == 1)
        made.client.check()
        await until(lambda: peer.count("ping") == 1)
        await asyncio.sleep(0.1)
        assert made.client.state is State.READY
        released.set()
        assert (await call).raw == OK


async def test_the_second_ping_after_an_http_error_waits_as_long_as_the_first() -> None:
    times: list[float] = []

    async def refuse(asked: Asked, line: Line) -> None:
        times.append(asyncio.get_running_loop().time())
        await line.reply(503, kind="")

    slow = Timeouts(keepalive_idle=0.3, keepalive_misses=2)
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=slow) as made:
        async with asyncio.timeout(20):
            await made.client.closed
    assert len(times) == 2
    assert times[1] - times[0] > 0.25


@pytest.mark.parametrize("status", [403, 429])
async def test_a_rate_limit_says_how_long_no_ping_is_sent(status: int) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="", Retry_After="60")

    spec = {"credential": True}
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url, **spec), timeouts=QUICK) as made:
        await until(lambda: peer.count("ping") == 1)
        await asyncio.sleep(0.5)
        assert peer.count("ping") == 1
        assert made.client.state is State.READY


async def test_a_call_in_flight_may_have_run_although_the_ping_that_ended_its_session_found_no_server() -> None:
    """A server that closes its listening socket and finishes the requests that it has."""

    async def on_call(asked: Asked, line: Line) -> None:
        called.set()
        await line.hang()

    async def on_ping(asked: Asked, line: Line) -> None:
        await line.hang()

    called = asyncio.Event()
    inner = legacy(on_call, session="s")

    async def script(asked: Asked, line: Line) -> None:
        await (on_ping if asked.method == "ping" else inner)(asked, line)

    idle = Timeouts(keepalive_idle=0.3, keepalive_answer=0.2, keepalive_misses=2)
    async with scripted_http(script) as peer, connected(http(peer.url), timeouts=idle) as made:
        call = asyncio.create_task(made.client.call_tool("pay", {}, timeout=60))
        await called.wait()
        peer.refuse()
        with pytest.raises(McpError) as caught:
            async with asyncio.timeout(20):
                await call
        reason = made.client.closed.result()
    assert reason is not None
    assert (reason.fault, reason.may_have_run) == (Fault.CONNECTION_REFUSED, False)
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert "while the server worked on the request" in caught.value.detail


async def test_the_words_of_a_refused_ping_are_no_answer_to_the_call_in_flight() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.hang()

    async def on_ping(asked: Asked, line: Line) -> None:
        await line.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32000, "message": "not you"}}, 400)

    inner = legacy(on_call, session="s")

    async def script(asked: Asked, line: Line) -> None:
        await (on_ping if asked.method == "ping" else inner)(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url), timeouts=QUICK) as made:
        with pytest.raises(TransportError) as caught:
            async with asyncio.timeout(20):
                await made.client.call_tool("pay", {}, timeout=60)
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert caught.value.detail.endswith("not you")
