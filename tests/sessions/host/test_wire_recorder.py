"""What the recorder keeps of the wire: messages paired with their requests, nothing secret, and as much as was chosen."""

import base64
import json
import re
import struct
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import httpx
import pytest

from servers.audit.record import SYSTEM
from servers.enums import Recording
from servers.secret import Secret
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import WireDirection, WireKind
from sessions.host.answer_redaction import MASK, Redactor
from sessions.host.wire import log as wire_log
from sessions.host.wire.log import WireEntry, WireLog
from sessions.host.wire.masking import masked_url
from sessions.host.wire.recorder import DETAIL_CHARS, WireRecorder
from sessions.host.wire.writer import WireWriter
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.cookies import Cookies
from tests.canary.encodings import Searcher

SECRET = "canary/Tok3n+öf=the;🔑server"
SESSION = "wire-session-0f3a9c"


LEASE = Lease(1, uuid4(), 1, uuid4(), "Files", "shared", 1, uuid4(), 1)


class Idle(WireWriter):
    """Writes nothing, so the entries stay where a test can see them."""

    def wake(self, source: Any) -> None:
        pass


def recorder(level: str = Recording.FULL, limits: Limits = Limits()) -> WireRecorder:
    made = WireRecorder(WireLog(Idle(None), LEASE), Redactor([Secret(SECRET)]), level)  # type: ignore[arg-type]  # nothing is stored
    made.opened("streamable_http", limits)
    return made


def make_pending() -> PendingCall:
    return PendingCall(1, uuid4(), 1, "tools/call", "greet", "{}", "", SYSTEM)


def kept(made: WireRecorder) -> list[WireEntry]:
    return made._log.take().to_write


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def request(identity: Any = 1, method: str = "tools/call", tag: Any = None, **params: Any) -> Outgoing:
    return Outgoing(message(id=identity, method=method, params=params), method, identity, tag=tag)


def raw(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


def everything(entries: list[WireEntry]) -> bytes:
    return "\n".join(str(value) for entry in entries for value in asdict(entry).values()).encode()


# --- pairs ---------------------------------------------------------------------------------------------------------------
def test_an_answer_has_the_method_target_call_and_duration_of_its_request() -> None:
    made, call = recorder(), make_pending()
    made.sent(request(7, name="greet", tag=call))
    made.received(message(id=7, result={"content": [], "isError": True}))
    asked, answered = kept(made)
    assert (asked.kind, asked.direction, asked.rpc_id, asked.target) == ("request", WireDirection.SENT, "7", "greet")
    assert (answered.kind, answered.direction) == (WireKind.RESULT, WireDirection.RECEIVED)
    assert (answered.method, answered.target, answered.call_uid) == ("tools/call", "greet", call.uid)
    assert answered.duration_ms is not None
    assert (asked.duration_ms, answered.fault) == (None, "tool_error")


def test_ids_of_both_sides_and_of_both_types_are_kept_apart() -> None:
    made = recorder()
    made.sent(request(1, "tools/list"))
    made.received(message(id=1, method="elicitation/create", params={}))
    made.received(message(id="1", method="roots/list"))
    made.sent(Outgoing(message(id="1", result={"roots": []})))
    made.sent(Outgoing(message(id=1, error={"code": -32601, "message": "no"})))
    made.received(message(id=1, result={"tools": []}))
    assert [entry.method for entry in kept(made)[3:]] == ["roots/list", "elicitation/create", "tools/list"]


def test_progress_and_questions_belong_to_the_call_that_they_are_about() -> None:
    made, call, other = recorder(), make_pending(), make_pending()
    made.sent(request(1, tag=call))
    made.received(message(id=5, method="elicitation/create", params={}))
    made.sent(request(2, tag=other))
    made.received(message(id=6, method="elicitation/create", params={}))
    made.received(message(method="notifications/progress", params={"progressToken": 2, "progress": 1}))
    made.sent(Outgoing(message(method="notifications/cancelled", params={"requestId": 1}), "notifications/cancelled"))
    made.sent(Outgoing(message(id=5, result={"action": "accept"})))
    found = [entry.call_uid for entry in kept(made)]
    assert found == [call.uid, call.uid, other.uid, None, other.uid, call.uid, call.uid]


def test_after_a_call_that_was_given_up_the_requests_of_its_server_are_not_filed_under_it() -> None:
    made, call, other = recorder(), make_pending(), make_pending()
    made.sent(request(1, tag=call))
    made.sent(Outgoing(message(method="notifications/cancelled", params={"requestId": 1}), "notifications/cancelled"))
    made.received(message(id=5, method="ping"))
    made.sent(request(2, tag=other))
    made.received(message(id=6, method="elicitation/create", params={}))
    made.received(message(id=1, result={"content": []}))
    assert [entry.call_uid for entry in kept(made)] == [call.uid, call.uid, None, other.uid, other.uid, call.uid]


@pytest.mark.parametrize("created", [{"task": {"taskId": "t-1"}}, {"resultType": "task", "taskId": "t-1"}])
def test_what_a_call_gets_through_a_task_belongs_to_the_call(created: dict[str, Any]) -> None:
    made, call = recorder(), make_pending()
    made.sent(request(1, tag=call))
    made.received(message(id=1, result=created))
    made.sent(request(2, "tasks/result", taskId="t-1"))
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t-1"}}
    made.received(message(id=9, method="elicitation/create", params={"_meta": related}))
    made.received(message(id=2, result={"content": []}))
    made.sent(request(3, "tasks/get", taskId="t-2"))
    found = kept(made)
    assert [entry.call_uid for entry in found] == [*[call.uid] * 5, None]
    assert found[4].target == "t-1"


def test_the_state_of_a_round_is_not_kept() -> None:
    made = recorder()
    made.sent(request(1, name="greet"))
    made.received(message(id=1, result={"resultType": "input_required", "requestState": "canary-state", "n": 2**70}))
    made.sent(request(2, name="greet", requestState="canary-state"))
    found = kept(made)
    assert b"canary-state" not in everything(found)
    assert str(2**70) in found[1].body


def test_a_batch_is_as_many_messages_and_what_cannot_be_read_is_kept_as_such() -> None:
    made = recorder()
    made.received(b'[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]')
    made.received(b'{"jsonrpc": "2.0", "broken')
    made.received(b'{"jsonrpc":"2.0","neither":1}')
    kinds = [entry.kind for entry in kept(made)]
    assert kinds == [WireKind.NOTIFICATION, WireKind.RESULT, WireKind.INVALID, WireKind.INVALID]


DEEP = b"[" * 1_020 + b"]" * 1_020
OVER_A_LIMIT = {
    "more messages than a batch may hold": b"[" + b",".join([b"0"] * 101) + b"]",
    "more values than a message may hold": b'{"jsonrpc":"2.0","id":1,"result":{"a":['
    + b",".join([b"0"] * 2_001)
    + b"]}}",
    "a batch that nests too deeply": b"[" + DEEP + b"]",
    "a message that nests too deeply": b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":' + DEEP + b"}}",
    "deeper than any parser reads": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("data", OVER_A_LIMIT.values(), ids=OVER_A_LIMIT)
def test_what_is_over_a_limit_of_the_connection_is_one_message_that_cannot_be_read(data: bytes) -> None:
    made = recorder(limits=Limits(message_values=2_000, batch_messages=100))
    made.received(data)
    (entry,) = kept(made)
    assert (entry.kind, entry.rpc_id, entry.size) == (WireKind.INVALID, "", len(data))


@pytest.mark.parametrize("data", OVER_A_LIMIT.values(), ids=OVER_A_LIMIT)
def test_without_such_limits_it_is_recorded_as_far_as_it_can_be_read(data: bytes) -> None:
    made = recorder(limits=Limits(depth=10**6))
    made.received(data)
    made.received(message(id=1, result={}))
    *_, after = kept(made)
    assert after.kind == WireKind.RESULT


@pytest.mark.parametrize("depth", [100, 400, 900, 1_020, 5_000])
@pytest.mark.parametrize("text", [SECRET, "ghp_" + "a1B2" * 9], ids=["a known secret", "the shape of one"])
def test_a_secret_in_what_nests_too_deeply_is_in_no_body(text: str, depth: int) -> None:
    made = recorder()
    made.received(b"[" * depth + json.dumps(text).encode() + b"]" * depth)
    (entry,) = kept(made)
    assert (entry.kind, Searcher({"secret": text}).hits(everything([entry]))) == (WireKind.INVALID, [])


def test_the_body_is_the_text_that_was_sent_to_the_last_digit() -> None:
    made = recorder()
    text = '{"jsonrpc": "2.0", "id": 1, "result": {"n": 12345678901234567890123, "f": 1.10, "n": 2}}'
    made.received(text.encode())
    assert kept(made)[0].body == text


def units(text: str) -> tuple[int, ...]:
    """UTF-16, of which JSON's escapes are made."""
    data = text.encode("utf-16-be")
    return struct.unpack(f">{len(data) // 2}H", data)


# --- secrets -------------------------------------------------------------------------------------------------------------
WRITTEN = {
    "plain": json.dumps(SECRET, ensure_ascii=False),
    "escaped slashes": json.dumps(SECRET).replace("/", "\\/"),
    "every character escaped": '"' + "".join(f"\\u{unit:04X}" for unit in units(SECRET)) + '"',
    "quoted once more": json.dumps(json.dumps({"key": SECRET})),
    "base64": json.dumps(base64.b64encode(b"x" + SECRET.encode()).decode()),
    "hex": json.dumps(SECRET.encode().hex()),
    "a name": '{"' + SECRET + '": 1}',
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_secret_is_in_no_body_however_it_is_written(written: str) -> None:
    made = recorder()
    made.received(f'{{"jsonrpc":"2.0","id":1,"result":{{"before":"seen","x":{written}}}}}'.encode())
    made.received(f'{{"jsonrpc":"2.0","method":"x","params":{written}, broken'.encode())
    entries = kept(made)
    assert Searcher({"secret": SECRET}).hits(everything(entries)) == []
    assert ("seen" in entries[0].body, MASK in entries[0].body, MASK in entries[1].body) == (True, True, True)
    assert "\\u" not in entries[0].body


def test_a_secret_in_names_ids_and_errors_is_masked_too() -> None:
    made = recorder()
    made.sent(request(SECRET, f"x/{SECRET}", name=SECRET))
    made.received(message(id=SECRET, error={"code": -1, "message": f"bad {SECRET}", "data": SECRET}))
    entries = kept(made)
    assert Searcher({"secret": SECRET}).hits(everything(entries)) == []
    assert entries[1].detail == f"bad {MASK}"


def test_a_secret_at_the_cut_does_not_leave_its_beginning(settings: Any) -> None:
    settings.WIRE_BODY_KIB = 1
    for shift in range(len(SECRET) + 12):
        made = recorder()
        made.received(message(method="x", params={"p": "x" * (960 + shift) + SECRET + "y" * 2_000}))
        (entry,) = kept(made)
        assert SECRET[:6] not in entry.body
        assert (entry.cut, len(entry.body) <= 1024) == (True, True)


def test_a_secret_written_in_escapes_at_the_cut_does_not_leave_its_beginning_either(settings: Any) -> None:
    settings.WIRE_BODY_KIB = 1
    escaped = "".join(f"\\u{unit:04x}" for unit in units(SECRET))
    for shift in range(0, 12 * len(SECRET) + 60):
        made = recorder()
        made.received(
            b'{"jsonrpc":"2.0","method":"x","params":{"p":"' + (b"x" * (700 + shift) + escaped.encode() * 9 + b'"}}')
        )
        (entry,) = kept(made)
        read = re.sub(r"\\u(....)", lambda found: chr(int(found[1], 16)), entry.body)
        assert SECRET[:6] not in read
        assert entry.cut


def test_a_detected_secret_at_the_cut_does_not_leave_its_beginning(settings: Any) -> None:
    settings.WIRE_BODY_KIB = 1
    token = "ghp_" + "a1B2" * 9
    for shift in range(len(token) + 12):
        made = recorder()
        made.received(message(method="x", params={"p": "x" * (960 + shift) + " " + token + " " + "y" * 3_000}))
        words = "y" * (DETAIL_CHARS - len(token) - 12 + shift)
        made.received(message(id=7, error={"code": -1, "message": f"{words} {token} {'y' * 3_000}"}))
        for entry in kept(made):
            assert token[:8] not in entry.body + entry.detail
        assert entry.cut
        assert len(entry.body) == 1024


def test_a_secret_that_the_session_learned_later_is_masked_from_then_on() -> None:
    made = recorder()
    made._redactor.learn([Secret("canary-renewed")])
    made.hide(SESSION)
    made.received(message(method="x", params={"a": "canary-renewed", "b": SESSION}))
    assert kept(made)[0].body.count(MASK) == 2


# --- HTTP ----------------------------------------------------------------------------------------------------------------
def test_headers_are_kept_without_credentials_and_urls_without_the_values_of_their_query() -> None:
    made = recorder()
    sent = {
        "Authorization": "Bearer abcdefgh12345",
        "Mcp-Session-Id": SESSION,
        "X-Api-Key": "plain-key",
        "X-Tenant": "acme",
        "X-Forwarded": "Bearer abcdefgh12345",
        "X-Echo": f"a {SECRET}",
    }
    exchange = made.exchange("POST", f"https://u:p@h.test/{SECRET}/mcp?key=k1&x=2#frag", sent)
    received = [
        ("Content-Type", "application/json"),
        ("Set-Cookie", "sid=cookie-value"),
        ("Location", "https://h.test/?code=one-time"),
        ("WWW-Authenticate", 'Bearer resource_metadata="https://h.test/m", nonce="n0nce-value"'),
    ]
    exchange.answered(200, raw(received))
    exchange.read(10)
    exchange.read(5)
    exchange.ended()
    (entry,) = kept(made)
    shown = everything([entry]).decode()
    gone = ("abcdefgh", SESSION, "plain-key", "k1", "cookie-value", "one-time", "n0nce-value", "u:p", "frag", SECRET)
    assert [value for value in gone if value in shown] == []
    headers = json.loads(entry.headers)
    assert ["X-Tenant", "acme"] in headers["sent"]
    assert ["Content-Type", "application/json"] in headers["received"]
    assert "resource_metadata" in shown
    assert entry.target == f"https://{MASK}@h.test/{MASK}/mcp?key={MASK}&x={MASK}"
    assert (entry.kind, entry.method, entry.status, entry.size) == (WireKind.EXCHANGE, "POST", 200, 15)


def test_the_value_of_a_cookie_is_masked_in_what_the_server_repeats_and_in_what_is_sent_back() -> None:
    made, url = recorder(), httpx.URL("https://h.test/mcp")
    cookies = Cookies(made.hide)
    cookies.keep(httpx.Response(200, headers={"Set-Cookie": "node=canary-node-71; Path=/"}), url)
    sent = cookies.added({"X-Tenant": "acme"}, url)
    assert sent["Cookie"] == "node=canary-node-71"
    made.exchange("POST", str(url), sent).answered(200, ())
    made.received(message(method="notifications/message", params={"data": "served by canary-node-71"}))
    exchange, received = kept(made)
    assert ["Cookie", MASK] in json.loads(exchange.headers)["sent"]
    assert MASK in received.body
    assert b"canary" not in everything([exchange, received])


def test_a_url_of_a_server_is_masked_in_linear_time_and_behind_a_second_question_mark_too() -> None:
    assert masked_url("https://h.test/?a?key=s3cret&b=c?d=e") == f"https://h.test/?a?key={MASK}&b={MASK}"
    began = time.process_time()
    masked_url("=" + "?" * 100_000)
    assert time.process_time() - began < 2


def test_a_stream_that_ends_after_its_head_was_written_has_a_row_for_its_end() -> None:
    made = recorder()
    exchange = made.exchange("GET", "https://h.test/mcp", {})
    exchange.answered(200, raw([("content-type", "text/event-stream")]))
    made.received(message(method="notifications/message", params={}), exchange=exchange)
    head, inside = kept(made)
    exchange.read(4_000)
    exchange.failed("connection_lost", f"it broke {SECRET}")
    exchange.ended()
    (end,) = kept(made)
    assert (head.exchange, inside.exchange, end.exchange) == (1, 1, 1)
    assert (end.kind, end.size, end.fault, end.detail) == ("stream_end", 4_000, "connection_lost", f"it broke {MASK}")


def test_what_an_exchange_adds_while_it_waits_changes_no_count() -> None:
    made = recorder()
    exchange = made.exchange("GET", "https://h.test/mcp", {})
    exchange.answered(200, [])
    exchange.failed("connection_lost", "x" * 500)
    (entry,) = kept(made)
    assert (entry.detail, made._log._bytes, made._log._writer.pending_bytes) == ("x" * 500, 0, 0)


def test_an_exchange_without_an_answer_says_why() -> None:
    made = recorder()
    exchange = made.exchange("POST", "https://as.test/token", {}, authorization=True)
    exchange.failed("timeout", "as.test did not answer within 10 s.")
    exchange.ended()
    (entry,) = kept(made)
    assert (entry.kind, entry.status, entry.fault) == (WireKind.AUTHORIZATION, None, "timeout")


# --- how much ------------------------------------------------------------------------------------------------------------
def test_headers_only_keeps_no_content() -> None:
    made = recorder(Recording.HEADERS)
    exchange = made.exchange("POST", "https://h.test/mcp", {"Mcp-Param-City": "content-1", "Mcp-Name": "greet"})
    made.sent(request(1, name="greet", arguments={"x": "content-2"}), exchange)
    exchange.answered(200, [])
    made.received(message(id=1, error={"code": -32000, "message": "content-3", "data": "content-4"}))
    entries = kept(made)
    assert [(entry.kind, entry.size > 0) for entry in entries] == [
        ("request", True),
        ("exchange", False),
        ("error", True),
    ]
    assert b"content-" not in everything(entries)
    assert (entries[0].target, entries[2].fault) == ("greet", "-32000")


def test_off_keeps_nothing_and_a_change_counts_from_the_next_message() -> None:
    made = recorder(Recording.OFF)
    made.sent(request(1))
    exchange = made.exchange("POST", "https://h.test/mcp", {})
    exchange.answered(200, [])
    assert kept(made) == []
    made.level = Recording.FULL
    made.received(message(id=1, result={}))
    assert [entry.kind for entry in kept(made)] == [WireKind.RESULT]


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_log, "PENDING_LIMIT", 3)
    made = recorder()
    for number in range(10):
        made.received(message(method=f"m{number}"))
    made.exchange("GET", "https://h.test/", {}).answered(200, [])
    *entries, notice = kept(made)
    assert [entry.method for entry in entries] == ["m0", "m1", "m2"]
    assert (notice.kind, notice.size, notice.detail[:11]) == (WireKind.DROPPED, 8, "8 messages ")
    made.received(message(method="later"))
    assert [entry.method for entry in kept(made)] == ["later"]


def test_large_messages_are_bounded_by_the_bytes_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_log, "PENDING_BYTES", 100_000)
    made = recorder()
    for _ in range(10):
        made.received(message(method="m", params={"p": "x" * 40_000}))
    assert [entry.kind for entry in kept(made)] == ["notification"] * 3 + ["dropped"]
    assert made._log._bytes == 0
    assert made._log._writer.pending_bytes == 0
