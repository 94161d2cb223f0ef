"""Servers that refuse `initialize`: which error is raised, and which servers are probed once more."""

from collections.abc import Awaitable, Callable

import pytest

from sessions.mcp.core.errors import Fault, HttpError, RpcError

from .detecting import DISCOVERED, error_body, no_call, opened, page, refused, refusing, unknown, unsupported
from .scripted_http import Asked, Line, Script, legacy

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_where_neither_transport_is_spoken_both_are_reported(status: int) -> None:
    error, peer = await refused(refusing(status))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status) == (Fault.HTTP_STATUS, status)
    assert "HTTP+SSE was tried as well" in error.detail
    assert peer.methods() == ["server/discover", "initialize", "GET"]


async def test_a_web_page_where_the_endpoint_should_be_is_reported_as_no_mcp_endpoint() -> None:
    error, _ = await refused(refusing(405, get=page))
    assert (error.fault, error.permanent) == (Fault.NOT_MCP, True)
    assert "405" in error.detail


async def test_a_stream_that_asks_for_authorization_is_reported_as_such() -> None:
    async def unauthorized(asked: Asked, line: Line) -> None:
        await line.reply(401, kind="", WWW_Authenticate="Bearer a=b")

    error, _ = await refused(refusing(405, get=unauthorized))
    assert isinstance(error, HttpError)
    assert (error.fault, error.challenges) == (Fault.UNAUTHORIZED, ("Bearer a=b",))


async def test_a_legacy_server_that_refuses_our_initialize_by_an_error_tells_it() -> None:
    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await line.reply(405, kind="")
        else:
            await line.json(error_body(-32602, "bad capabilities", identity=asked.id), 400)

    error, peer = await refused(script)
    assert isinstance(error, RpcError)
    assert "bad capabilities" in error.detail
    assert peer.methods() == ["server/discover", "initialize", "GET"]


def slow_start(refusal: Callable[[Asked, Line], Awaitable[None]]) -> Script:
    """A modern server behind something that gives the first answer and is not modern."""
    probes = 0

    async def script(asked: Asked, line: Line) -> None:
        nonlocal probes
        if asked.method == "server/discover":
            probes += 1
            await (line.reply(404, kind="") if probes == 1 else line.result(asked, DISCOVERED))
        elif asked.method == "initialize":
            await refusal(asked, line)
        else:
            await line.error(asked, -32601, 404)

    return script


@pytest.mark.parametrize("refusal", [unsupported, unknown])
async def test_a_server_that_turned_modern_meanwhile_is_probed_once_more(refusal: Script) -> None:
    found, peer = await opened(slow_start(refusal))
    assert found.era == "modern"
    assert peer.methods() == ["server/discover", "initialize", "server/discover"]


async def test_the_setting_modern_never_initializes() -> None:
    error, peer = await refused(legacy(no_call), era="modern")
    assert error.fault is Fault.INCOMPATIBLE_VERSION
    assert peer.methods() == ["server/discover"]
