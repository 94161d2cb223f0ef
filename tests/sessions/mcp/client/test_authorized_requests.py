"""A real client against a server that requires a token: every transport, every kind of request, every further
attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from websockets.http11 import Request

from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, SignInNeeded
from sessions.mcp.core.errors import Fault, HttpError, McpError, NotReady
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.registry import HttpSpec, WebSocketSpec
from tests.sessions.mcp.client.authorization_world import Store, World
from tests.sessions.mcp.transports.making import LOCAL, connected, http, unconnected
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, Script, legacy, modern, scripted_http
from tests.sessions.mcp.transports.scripted_sse import SseServer
from tests.sessions.mcp.transports.scripted_websocket import scripted_websocket


class Guarded:
    """Puts a script behind its own authorization server. `good` holds the tokens that it accepts."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.good: set[str] = set()
        self.given = 0
        self.origin = ""
        self.refused: list[str] = []
        #: the error of the token endpoint, and its HTTP status
        self.no_token: tuple[str, int] | None = None

    async def __call__(self, asked: Asked, line: Line) -> None:
        path = asked.path.partition("?")[0]
        if path.startswith("/.well-known/oauth-protected-resource"):
            await line.json({"resource": f"{self.origin}/mcp", "authorization_servers": [self.origin]})
        elif path == "/.well-known/oauth-authorization-server":
            ends = {f"{name}_endpoint": f"{self.origin}/{name}" for name in ("authorization", "token", "registration")}
            await line.json({"issuer": self.origin, "code_challenge_methods_supported": ["S256"], **ends})
        elif path == "/registration":
            await line.json({"client_id": "me"}, 201)
        elif path == "/token" and self.no_token is not None:
            error, status = self.no_token
            await line.json({"error": error}, status)
        elif path == "/token":
            self.given += 1
            self.good = {f"t{self.given}"}
            renewal = f"r{self.given}"
            await line.json({"access_token": f"t{self.given}", "token_type": "Bearer", "refresh_token": renewal})
        elif asked.headers.get("authorization", "").removeprefix("Bearer ") in self.good:
            await self._script(asked, line)
        else:
            self.refused.append(asked.method or asked.verb)
            await line.reply(401, kind="", WWW_Authenticate='Bearer error="invalid_token"')


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[Peer, Guarded]]:
    guarded = Guarded(script)
    async with scripted_http(guarded) as peer:
        guarded.origin = peer.url.removesuffix("/mcp")
        yield peer, guarded


def spec(peer: Peer, store: Store, *, person: bool = True) -> HttpSpec:
    world = World()
    settings = AuthorizationSettings(peer.url, redirect_uri="http://localhost/back")
    consent = world.consent if person else None
    return http(peer.url, authorization=Authorization(settings, store, AuthorizationHttp(LOCAL), consent=consent))


async def answer(asked: Asked, line: Line) -> None:
    await line.result(asked, {"content": []})


@pytest.mark.parametrize("script", [legacy(answer, session="s"), modern(answer)], ids=["legacy", "modern"])
async def test_a_server_that_wants_a_token_is_opened_with_one(script: Script) -> None:
    async with serving(script) as (peer, guarded), connected(spec(peer, Store())) as made:
        await made.client.call_tool("t", {}, input_schema={"type": "object"})
    assert guarded.given == 1
    assert guarded.refused == ["server/discover"]
    to_server = [one for one in peer.asked if one.path == "/mcp"][1:]
    assert {one.headers.get("authorization") for one in to_server} == {"Bearer t1"}
    assert not [one for one in peer.asked if one.path != "/mcp" and "t1" in str(one.headers)]


async def test_a_call_that_is_refused_for_its_token_is_a_further_attempt_recorded_before_it_leaves() -> None:
    attempts: list[tuple[int, str, int]] = []
    async with serving(modern(answer)) as (peer, guarded), connected(spec(peer, Store())) as made:

        async def before_send(number: int, reason: str) -> None:
            attempts.append((number, reason, peer.count("tools/call")))

        guarded.good = set()
        result = await made.client.call_tool("t", {}, input_schema={"type": "object"}, before_send=before_send)
    assert attempts == [(1, "first", 0), (2, "authorization", 1)]
    assert result.attempts == 2
    assert (guarded.given, guarded.refused[1:]) == (2, ["tools/call"])


async def test_a_call_whose_further_attempt_may_not_be_made_is_not_sent_again() -> None:
    async with serving(modern(answer)) as (peer, guarded), connected(spec(peer, Store())) as made:

        async def before_send(number: int, reason: str) -> None:
            if number > 1:
                raise NotReady("The call was ended meanwhile.")

        guarded.good = set()
        with pytest.raises(NotReady):
            await made.client.call_tool("t", {}, input_schema={"type": "object"}, before_send=before_send)
        assert peer.count("tools/call") == 1
        await made.client.call_tool("t", {}, input_schema={"type": "object"})


async def test_without_a_person_the_client_says_that_one_is_needed_and_nothing_ran() -> None:
    async with serving(modern(answer)) as (peer, _):
        client = unconnected(spec(peer, Store(), person=False))
        with pytest.raises(SignInNeeded) as needed:
            await client.connect()
        await client.close()
    assert needed.value.fault is Fault.UNAUTHORIZED
    assert needed.value.permanent
    assert not needed.value.may_have_run


@pytest.mark.parametrize("no_token", [("slow_down", 400), ("invalid_request", 503)])
async def test_what_an_authorization_server_refuses_for_the_moment_says_nothing_about_the_server(
    no_token: tuple[str, int],
) -> None:
    async with serving(legacy(answer)) as (peer, guarded):
        guarded.no_token = no_token
        client = unconnected(spec(peer, Store()))
        with pytest.raises(McpError) as failed:
            await client.connect()
        await client.close()
        assert [one.method for one in peer.asked if one.path == "/mcp"] == ["server/discover"]
    assert not failed.value.permanent
    assert not failed.value.may_have_run
    assert "right now" in failed.value.detail


async def test_the_stream_beside_the_requests_gets_a_new_token_by_itself() -> None:
    opened: list[str] = []
    again = asyncio.Event()

    async def stream(asked: Asked, line: Line) -> None:
        opened.append(asked.headers["authorization"])
        await line.stream()
        if len(opened) == 1:
            guarded.good = set()
            await line.event(id="e1", retry=100)
            await line.end()
        else:
            again.set()
            await line.hang()

    async with serving(legacy(answer, session="s", on_get=stream)) as (peer, guarded):
        async with connected(spec(peer, Store())), asyncio.timeout(30):
            await again.wait()
        assert opened == ["Bearer t1", "Bearer t2"]
        assert guarded.refused == ["server/discover", "GET"]
        assert [one.path for one in peer.asked].count("/token") == 2


async def test_an_http_sse_server_of_2024_gets_a_token_for_its_stream_and_its_posts() -> None:
    server = SseServer()
    async with (
        serving(server.script) as (peer, guarded),
        connected(replace(spec(peer, Store()), kind="http_sse")) as made,
    ):
        await made.client.call_tool("t", {})
        guarded.good = {"none"}
        await made.client.call_tool("t", {})
    assert guarded.refused == ["GET", "tools/call"]
    assert guarded.given == 2


async def test_a_websocket_server_is_told_the_token_in_its_handshake() -> None:
    def check(request: Request) -> tuple[int, dict[str, str]] | None:
        if request.headers.get("Authorization") == "Bearer t1":
            return None
        return 401, {"WWW-Authenticate": "Bearer"}

    async with scripted_websocket(on_handshake=check) as peer:
        world = World(peer.url.replace("127.0.0.1", "localhost"))
        authorization = world.authorization(Store())
        async with connected(WebSocketSpec(world.server, policy=LOCAL, authorization=authorization)) as made:
            await made.client.call_tool("t", {})
        assert [one.headers.get("Authorization") for one in peer.handshakes] == [None, "Bearer t1"]


async def test_a_refusal_without_authorization_stays_what_it_was() -> None:
    async with serving(modern(answer)) as (peer, guarded):
        client = unconnected(http(peer.url, headers=lambda: {"Authorization": "Bearer stale"}))
        with pytest.raises(HttpError) as refused:
            await client.connect()
        await client.close()
    assert refused.value.challenges == ('Bearer error="invalid_token"',)
    assert guarded.refused == ["server/discover"]


async def test_a_redirect_to_another_origin_gets_no_token() -> None:
    async def elsewhere(asked: Asked, line: Line) -> None:
        await line.reply(401, kind="")

    async with scripted_http(elsewhere) as other, serving(modern(answer)) as (peer, guarded):
        original = guarded._script

        async def leave(asked: Asked, line: Line) -> None:
            if asked.method == "tools/list":
                await line.reply(307, kind="", Location=other.url)
            else:
                await original(asked, line)

        guarded._script = leave
        async with connected(spec(peer, Store())) as made:
            with pytest.raises(McpError) as refused:
                await made.client.list_tools()
        assert refused.value.fault is Fault.REDIRECTED
        assert other.asked == []
