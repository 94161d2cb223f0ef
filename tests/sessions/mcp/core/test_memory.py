"""What is remembered of a server: its serialization, its expiry, and which errors contradict it."""

import json
from typing import Any

import pytest

from sessions.mcp.core.errors import (
    AddressRefused,
    Fault,
    HttpError,
    IncompatibleVersion,
    McpError,
    ProtocolError,
    RpcError,
    TransportError,
)
from sessions.mcp.core.memory import LIFETIME, Remembered, contradicts, outdates, recalled
from sessions.mcp.core.versions import Era

HTTP = Remembered(Era.LEGACY, "2025-06-18", "streamable_http", "https://a/mcp", 1_000.0)
STDIO = Remembered(Era.LEGACY, "2025-11-25", "stdio", "", 1_000.0)


def status(code: int) -> HttpError:
    return HttpError(Fault.HTTP_STATUS, "x", status=code, may_have_run=False)


def lost(fault: Fault) -> TransportError:
    return TransportError(fault, "x", may_have_run=True)


@pytest.mark.parametrize("memory", [HTTP, STDIO, Remembered(Era.MODERN, "2026-07-28", "websocket", "ws://a/", 0.5)])
def test_what_was_written_down_is_read_again(memory: Remembered) -> None:
    assert recalled(json.loads(json.dumps(memory.wire()))) == memory


@pytest.mark.parametrize(
    "change",
    [
        {"era": "modern"},
        {"revision": "2024-10-07"},
        {"revision": None},
        {"kind": "carrier pigeon"},
        {"kind": ["stdio"]},
        {"url": 5},
        {"decided_at": "today"},
        {"decided_at": True},
    ],
)
def test_what_we_never_wrote_is_not_read(change: dict[str, Any]) -> None:
    assert recalled(HTTP.wire() | change) is None


@pytest.mark.parametrize("value", [None, [], "x", {}])
def test_what_is_no_memory_at_all_is_none(value: Any) -> None:
    assert recalled(value) is None


def test_memory_lives_for_a_day_and_never_begins_in_the_future() -> None:
    assert HTTP.fresh(1_000.0)
    assert HTTP.fresh(1_000.0 + LIFETIME - 1)
    assert not HTTP.fresh(1_000.0 + LIFETIME)
    assert not HTTP.fresh(999.0)


@pytest.mark.parametrize(
    "error",
    [
        status(400),
        status(404),
        status(405),
        status(307),
        RpcError(-32022, "x"),
        RpcError(-32601, "x"),
        ProtocolError(Fault.NOT_MCP, "x"),
        IncompatibleVersion("x"),
    ],
)
def test_an_answer_that_does_not_fit_proves_the_memory_wrong(error: McpError) -> None:
    assert contradicts(error, HTTP)
    assert contradicts(error, STDIO)


@pytest.mark.parametrize(
    "error",
    [status(401), status(403), status(429), status(500), status(503), lost(Fault.CONNECTION_REFUSED),
     lost(Fault.TIMEOUT), lost(Fault.CONNECTION_LOST), lost(Fault.DNS_FAILED), AddressRefused("x")],
)  # fmt: skip
def test_what_may_pass_says_nothing_about_the_memory(error: McpError) -> None:
    assert not contradicts(error, HTTP)


@pytest.mark.parametrize("fault", [Fault.PROCESS_EXITED, Fault.CONNECTION_LOST])
def test_a_child_that_dies_may_be_another_program_now(fault: Fault) -> None:
    assert contradicts(lost(fault), STDIO)


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.STDOUT_NOISE])
def test_a_child_that_is_silent_or_prints_is_started_once(fault: Fault) -> None:
    assert not contradicts(lost(fault), STDIO)


def test_an_open_modern_session_is_outdated_by_what_no_modern_server_answers() -> None:
    assert outdates(status(404))
    assert outdates(status(405))
    assert outdates(RpcError(-32022, "x"))
    assert outdates(RpcError(-32601, "x"), discover=True)
    assert not outdates(RpcError(-32601, "x"))
    assert not outdates(RpcError(-32602, "x"), discover=True)
    assert not outdates(status(500))
    assert not outdates(lost(Fault.TIMEOUT))
