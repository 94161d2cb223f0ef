"""The answer to the probe decides which era and transport a server speaks."""

import pytest

from sessions.mcp.core.errors import Fault, HttpError

from .detecting import (
    error_body,
    moved_to_slash,
    no_call,
    opened,
    page,
    page_404,
    probed,
    python_1_9_stateless,
    refused,
)
from .making import http, unconnected
from .scripted_http import Asked, Line, Script, legacy, modern, scripted_http
from .scripted_sse import SseServer

pytestmark = pytest.mark.integration


# -- what real servers answer to the probe


async def python_1_30_with_session(asked: Asked, line: Line) -> None:
    body = error_body(-32600, "Bad Request: Missing session ID", identity="server-error")
    await line.json(body, 400, Mcp_Session_Id="poisoned")


async def python_1_30_stateless(asked: Asked, line: Line) -> None:
    body = error_body(-32600, "Bad Request: Unsupported protocol version: 2026-07-28", identity="server-error")
    await line.json(body, 400)


async def typescript_with_session(asked: Asked, line: Line) -> None:
    await line.json(error_body(-32000, "Bad Request: Server not initialized"), 400)


async def typescript_stateless(asked: Asked, line: Line) -> None:
    await line.json(error_body(-32000, "Bad Request: Unsupported protocol version"), 400)


async def no_content(asked: Asked, line: Line) -> None:
    await line.reply(204, kind="")


async def accepted(asked: Asked, line: Line) -> None:
    await line.reply(202, kind="")


@pytest.mark.parametrize(
    "answer",
    [
        python_1_30_with_session,
        python_1_30_stateless,
        python_1_9_stateless,
        typescript_with_session,
        typescript_stateless,
        no_content,
        accepted,
        page,
        page_404,
    ],
)
async def test_a_legacy_server_is_initialized_after_its_answer_to_the_probe(answer: Script) -> None:
    found, peer = await opened(probed(answer))
    assert (found.era, found.revision, found.transport) == ("legacy", "2025-11-25", "streamable_http")
    assert peer.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]
    probe, initialize, initialized = peer.asked[:3]
    assert probe.headers["mcp-protocol-version"] == "2026-07-28"
    assert probe.headers["mcp-method"] == "server/discover"
    assert not {"mcp-session-id", "mcp-protocol-version", "mcp-method"} & set(initialize.headers)
    assert initialized.headers["mcp-session-id"] == "5e55"


async def test_a_modern_server_is_open_after_one_round_trip_and_never_initialized() -> None:
    found, peer = await opened(modern(no_call))
    assert (found.era, found.transport) == ("modern", "streamable_http")
    assert peer.methods() == ["server/discover"]


async def test_an_old_server_that_redirects_to_a_slash_is_followed_and_its_last_url_remembered() -> None:
    found, peer = await opened(moved_to_slash(probed(python_1_30_with_session)))
    assert found.url.endswith("/mcp/")
    assert found.remember is not None
    assert found.remember.url == found.url
    assert [asked.path for asked in peer.asked].count("/mcp") == 1


def killed_by_the_probe() -> Script:
    dead = False

    async def script(asked: Asked, line: Line) -> None:
        nonlocal dead
        dead = dead or asked.method == "server/discover"
        if dead:
            await line.json(error_body(-32600, "task group died", identity="server-error"), 500)
        else:
            await legacy(no_call)(asked, line)

    return script


async def test_a_server_that_the_probe_kills_tells_both_failures_and_opens_with_the_setting_legacy() -> None:
    error, peer = await refused(killed_by_the_probe())
    assert peer.methods() == ["server/discover", "initialize"]
    assert "task group died" in error.detail
    found, peer = await opened(killed_by_the_probe(), era="legacy")
    assert found.decided_by == "its protocol era setting"
    assert peer.methods()[:1] == ["initialize"]


async def test_a_server_of_http_and_sse_is_found_after_two_refused_posts() -> None:
    found, peer = await opened(SseServer().script)
    assert (found.transport, found.revision) == ("http_sse", "2024-11-05")
    assert peer.methods() == ["server/discover", "initialize", "GET", "initialize", "notifications/initialized"]
    assert found.remember is not None
    assert (found.remember.kind, found.remember.url) == ("http_sse", peer.url)


async def test_the_setting_legacy_finds_http_and_sse_without_a_probe() -> None:
    found, peer = await opened(SseServer().script, era="legacy")
    assert found.transport == "http_sse"
    assert peer.methods()[:2] == ["initialize", "GET"]


async def test_a_chosen_transport_is_never_changed() -> None:
    async with scripted_http(SseServer().script) as peer:
        with pytest.raises(HttpError) as caught:
            await unconnected(http(peer.url, kind="streamable_http")).connect()
    assert caught.value.status == 405
    assert peer.count("GET") == 0


# -- answers that do not decide the era


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (401, Fault.UNAUTHORIZED),
        (403, Fault.ACCESS_REFUSED),
        (429, Fault.RATE_LIMITED),
        (500, Fault.HTTP_STATUS),
        (502, Fault.HTTP_STATUS),
        (503, Fault.HTTP_STATUS),
        (301, Fault.REDIRECTED),
        (302, Fault.REDIRECTED),
    ],
)
async def test_a_status_that_says_nothing_about_the_era_ends_the_opening_at_once(status: int, fault: Fault) -> None:
    async def answer(asked: Asked, line: Line) -> None:
        await line.reply(status, b"busy", "text/plain", Retry_After="21", WWW_Authenticate="Bearer", Location="/x")

    error, peer = await refused(probed(answer))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status) == (fault, status)
    if status == 429:
        assert error.retry_after == 21.0
    assert peer.methods() == ["server/discover"]


async def test_an_unreachable_server_stays_of_unknown_era() -> None:
    async def cut(asked: Asked, line: Line) -> None:
        line.reset()

    error, peer = await refused(probed(cut))
    assert error.fault is Fault.CONNECTION_LOST
    assert peer.methods() == ["server/discover"]
