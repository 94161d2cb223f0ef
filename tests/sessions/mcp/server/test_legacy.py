"""Legacy requests: opening, versions, batches."""

import pytest

from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.jsonrpc import Notification, Request, Response
from sessions.mcp.server import legacy
from sessions.mcp.server.posted import Posted
from sessions.mcp.server.refusals import Refusal

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def opening(version="2025-11-25", **more):
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}, **more}
    value = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return legacy.opening_of(Posted((value,), batch=False))


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
    ],
)
def test_the_agreed_revision_is_theirs_if_we_serve_it_and_else_our_best(asked, agreed):
    found = opening(asked)
    assert found.revision == agreed
    assert legacy.initialized(found, Implementation("a", "1"), {}, "Read me.")["protocolVersion"] == agreed


@pytest.mark.parametrize("more", [{"protocolVersion": 1}, {"capabilities": []}, {"clientInfo": "x"}])
def test_an_opening_of_another_shape_is_refused_with_its_id(more):
    with pytest.raises(Refusal) as refused:
        opening(**more)
    assert (refused.value.code, refused.value.id) == (-32602, 0)


def test_everything_else_opens_nothing():
    assert not legacy.opens(Posted((LIST,), batch=False))
    assert not legacy.opens(Posted(({**LIST, "method": "initialize"},), batch=True))
    assert not legacy.opens(Posted(("initialize",), batch=False))


@pytest.mark.parametrize(
    ("header", "revision", "ok"),
    [
        (None, "2025-11-25", True),
        ("2025-11-25", "2025-11-25", True),
        ("2025-03-26", "2025-11-25", False),
        ("2025-11-25", "2025-03-26", True),
        ("nonsense", "2025-03-26", False),
    ],
)
def test_the_version_header_must_name_what_was_agreed(header, revision, ok):
    headers = {} if header is None else {"mcp-protocol-version": header}
    if ok:
        assert legacy.read(Posted((LIST,), batch=False), headers, revision)
        return
    with pytest.raises(Refusal) as refused:
        legacy.read(Posted((LIST,), batch=False), headers, revision)
    assert refused.value.status == 400


def test_only_the_first_revision_takes_batches_and_bounds_them():
    values = (
        LIST,
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "method": "initialize"},
        7,
    )
    kinds = [type(one) for one in legacy.read(Posted(values, batch=True), {}, "2025-03-26")]
    assert kinds == [Request, Notification, Response, Refusal, Refusal]
    with pytest.raises(Refusal):
        legacy.read(Posted((LIST,), batch=True), {}, "2025-06-18")
    with pytest.raises(Refusal):
        legacy.read(Posted((LIST,) * 51, batch=True), {}, "2025-03-26")


def test_an_unknown_method_is_an_error_inside_an_ordinary_answer():
    (found,) = legacy.read(Posted(({**LIST, "method": "tasks/list"},), batch=False), {}, "2025-11-25")
    assert (found.status, found.code, found.id) == (200, -32601, 1)
