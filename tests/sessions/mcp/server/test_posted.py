"""What a POST must satisfy before its era matters."""

import pytest

from sessions.mcp.core.limits import Limits
from sessions.mcp.core.versions import Era
from sessions.mcp.server import posted
from sessions.mcp.server.refusals import Refusal

LIMITS = Limits(message_bytes=1000, depth=8)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json", "accept": "application/json, text/event-stream"}, None),
        ({"content-type": "application/json; charset=utf-8", "accept": "*/*"}, None),
        ({"content-type": "Application/JSON", "accept": "text/event-stream;q=0.9"}, None),
        ({"content-type": "application/json"}, None),
        ({"content-type": "text/plain", "accept": "*/*"}, 415),
        ({"accept": "*/*"}, 415),
        ({"content-type": "application/json", "accept": "text/html"}, 406),
    ],
)
def test_media_types_that_real_clients_send_pass_and_others_are_refused(headers, status):
    if status is None:
        posted.check_media_types(headers)
        return
    with pytest.raises(Refusal) as refused:
        posted.check_media_types(headers)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("body", "status", "code", "identity"),
    [
        (b"{", 400, -32700, None),
        (b"[]", 400, -32600, None),
        (b'{"a":' + b'"' + b"x" * 1000 + b'"}', 413, -32600, None),
        (b"[" * 9 + b"]" * 9, 400, -32600, None),
        (b'{"jsonrpc":"2.0","id":"k","method":"m","params":{"text":"\\ud800"}}', 400, -32600, "k"),
    ],
)
def test_unreadable_bodies_are_refused_before_anything_else(body, status, code, identity):
    with pytest.raises(Refusal) as refused:
        posted.parse(body, LIMITS)
    assert (refused.value.status, refused.value.code, refused.value.id) == (status, code, identity)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a":1,"a":2}', "an object names one key twice"),
        (b'{"a":1e400}', "a number is too large"),
        (b'{"a":' + b"9" * 900 + b"}", None),
        (b'{"a":' + b"9" * 6_000 + b"}", "an integer has more digits than can be read"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b"{'a':1}", "Expecting property name"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(body, reason):
    if reason is None:
        assert posted.parse(body, LIMITS).values
        return
    with pytest.raises(Refusal) as refused:
        posted.parse(body, Limits())
    assert refused.value.code == -32700
    assert refused.value.message.startswith(f"The body cannot be read as JSON: {reason}")
    assert "server" not in refused.value.message


@pytest.mark.parametrize("identity", [None, 1.5, 1.0, True, "x" * 1025, 10**60])
def test_a_request_with_an_id_that_is_none_is_told_so(identity):
    with pytest.raises(Refusal) as refused:
        posted.message_of({"jsonrpc": "2.0", "id": identity, "method": "ping"})
    assert refused.value.message.startswith("This is not a JSON-RPC 2.0 message: the id of a request is ")
    assert (refused.value.code, refused.value.id) == (-32600, None)


def test_an_id_that_is_half_of_a_surrogate_pair_is_not_echoed_as_another_one():
    with pytest.raises(Refusal) as refused:
        posted.parse(b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', LIMITS)
    assert (refused.value.code, refused.value.id) == (-32600, None)


def test_an_invalid_message_is_refused_with_its_id_as_soon_as_that_can_be_read():
    with pytest.raises(Refusal) as refused:
        posted.message_of({"id": 0, "method": "tools/list"})
    assert b'"id":0' in refused.value.body
    with pytest.raises(Refusal) as refused:
        posted.message_of({"jsonrpc": "2.0", "id": True, "method": "tools/list"})
    assert b'"id":null' in refused.value.body


META = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}


@pytest.mark.parametrize(
    ("value", "headers", "era"),
    [
        ({"method": "tools/list"}, {}, Era.LEGACY),
        ({"method": "tools/list"}, {"mcp-protocol-version": "2025-11-25"}, Era.LEGACY),
        ({"method": "tools/list"}, {"mcp-protocol-version": "2026-07-28"}, Era.MODERN),
        ({"method": "initialize", "params": {"_meta": META}}, {}, Era.MODERN),
        ({"method": "server/discover"}, {}, Era.MODERN),
        ({"method": "initialize", "params": {}}, {}, Era.LEGACY),
        ("text", {}, Era.LEGACY),
        ({"method": []}, {}, Era.LEGACY),
        ({"method": {}}, {}, Era.LEGACY),
    ],
)
def test_the_era_follows_from_metadata_or_header(value, headers, era):
    assert posted.era_of(posted.Posted((value,), batch=False), headers) is era


@pytest.mark.parametrize(
    ("token", "kept"), [(0, True), ("", True), ("1", True), (1, True), (True, False), (None, False)]
)
def test_progress_tokens_keep_their_type(token, kept):
    assert (posted.progress_token({"_meta": {"progressToken": token}}) is token) == (kept or token is None)
