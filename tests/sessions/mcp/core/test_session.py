"""The state machine of one session: what each message means to its owner."""

import contextlib
import json
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core import events
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import Fault, InvalidRequest, ProtocolError, RpcError, TooManyPending
from sessions.mcp.core.events import ListKind
from sessions.mcp.core.input_requests import ServerRequest, Withdrawn
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Answered, Outgoing, Session
from sessions.mcp.core.state import TABLES, IllegalTransition, State, Trigger
from sessions.mcp.core.versions import REVISIONS, Era

LEGACY, MODERN = REVISIONS["2025-11-25"], REVISIONS["2026-07-28"]


def session(revision: Any = LEGACY, limits: Limits | None = None) -> Session:
    made = Session(Implementation("hub", "3"), {"roots": {"listChanged": True}}, limits or Limits())
    made.settle(revision)
    return made


def wire(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def test_an_answer_goes_to_the_request_with_its_id() -> None:
    machine = session()
    first, _ = machine.request("ping")
    second, _ = machine.request("ping")
    (answered,) = machine.receive(wire(id=second.id, result={"a": 1}))
    assert isinstance(answered, Answered)
    assert (answered.pending, answered.result) == (second, {"a": 1})
    assert machine.in_flight == 1
    assert machine.find(first.id) is first


def test_a_second_answer_to_one_request_is_a_violation_and_changes_nothing() -> None:
    machine = session()
    pending, _ = machine.request("ping")
    machine.receive(wire(id=pending.id, result={}))
    (event,) = machine.receive(wire(id=pending.id, result={"other": True}))
    assert isinstance(event, events.ProtocolViolation)


def test_what_an_error_of_the_wrong_shape_says_in_a_batch_is_in_no_event() -> None:
    (event,) = session().receive(b'[{"jsonrpc":"2.0","id":1,"error":"no row 17"}]')
    assert isinstance(event, events.ProtocolViolation)
    assert event.detail.endswith("the error is not an object with code and message.")


def test_an_answer_to_a_request_that_was_given_up_is_late_and_keeps_its_tag() -> None:
    machine = session()
    pending, _ = machine.request("tools/call", {"name": "x"}, tag="call-1")
    machine.give_up(pending, late_answer=True)
    (event,) = machine.receive(wire(id=pending.id, result={"content": []}))
    assert event == events.LateAnswer(pending.id, "tools/call", {"content": []}, None, "call-1")


def test_our_id_as_a_string_is_ours_and_told() -> None:
    machine = session()
    pending, _ = machine.request("tools/call", {"name": "x"})
    answered, event = machine.receive(wire(id=str(pending.id), result={"a": 1}))
    assert isinstance(answered, Answered)
    assert (answered.pending, answered.result) == (pending, {"a": 1})
    assert isinstance(event, events.ProtocolViolation)
    assert machine.in_flight == 0


def test_our_id_as_a_float_is_the_same_number() -> None:
    """A server whose numbers are all floats writes 1.0."""
    machine = session()
    pending, _ = machine.request("tools/call", {"name": "x"}, wants_progress=True)
    (progress,) = machine.receive(
        wire(method="notifications/progress", params={"progressToken": float(pending.id), "progress": 1.0})
    )
    assert isinstance(progress, events.Progress)
    (answered,) = machine.receive(wire(id=float(pending.id), result={"a": 1}))
    assert isinstance(answered, Answered)
    assert (answered.pending, answered.result) == (pending, {"a": 1})


@pytest.mark.parametrize("identity", [1.5, 1e300, -1.0, 2.0])
def test_any_other_float_is_not_our_id(identity: float) -> None:
    machine = session()
    machine.request("tools/call", {"name": "x"})
    with contextlib.suppress(ProtocolError):
        machine.receive(wire(id=identity, result={}))
    assert machine.in_flight == 1


def test_a_late_answer_with_our_id_as_a_string_is_late_as_well() -> None:
    machine = session()
    pending, _ = machine.request("tools/call", {"name": "x"}, tag="call-1")
    machine.give_up(pending, late_answer=True)
    late, event = machine.receive(wire(id=str(pending.id), result={"content": []}))
    assert late == events.LateAnswer(pending.id, "tools/call", {"content": []}, None, "call-1")
    assert isinstance(event, events.ProtocolViolation)


@pytest.mark.parametrize("identity", ["01", " 1", "1 ", "+1", "1.0", "٣", "2", "", "9" * 1_000])
def test_any_other_string_is_not_our_id(identity: str) -> None:
    machine = session()
    machine.request("tools/call", {"name": "x"})
    machine.request("tools/call", {"name": "x"})
    machine.receive(wire(id=2, result={}))
    (event,) = machine.receive(wire(id=identity, result={}))
    assert isinstance(event, events.ProtocolViolation)
    assert machine.in_flight == 1


def test_an_error_on_a_refused_http_request_belongs_to_it_whatever_id_the_server_wrote() -> None:
    machine = session()
    pending, outgoing = machine.request("server/discover")
    (answered,) = machine.receive(
        wire(id="server-error", error={"code": -32600, "message": "Missing session ID"}), outgoing, 400
    )
    assert isinstance(answered, Answered)
    assert answered.pending is pending
    assert isinstance(answered.error, RpcError)
    assert answered.error.http_status == 400


def test_a_foreign_id_in_a_good_http_answer_belongs_to_no_one() -> None:
    machine = session()
    _, outgoing = machine.request("tools/call")
    (event,) = machine.receive(wire(id="somebody-else", result={}), outgoing)
    assert isinstance(event, events.ProtocolViolation)
    assert machine.in_flight == 1


@pytest.mark.parametrize("identity", ["p-1", 0, 7])
def test_a_ping_of_the_server_is_answered_with_its_own_id(identity: int | str) -> None:
    (reply,) = session().receive(wire(id=identity, method="ping"))
    assert isinstance(reply, Outgoing)
    assert json.loads(reply.data) == {"jsonrpc": "2.0", "id": identity, "result": {}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "tools/call"])
def test_what_we_did_not_declare_is_answered_with_method_not_found(method: str) -> None:
    reply, event = session().receive(wire(id=1, method=method, params={}))
    assert isinstance(reply, Outgoing)
    assert json.loads(reply.data)["error"]["code"] == -32601
    assert event == events.RequestRefused(method, -32601)


def test_what_we_declared_is_handed_on_with_the_request_whose_stream_carried_it() -> None:
    machine = session()
    pending, outgoing = machine.request("tools/call")
    (request,) = machine.receive(wire(id="q", method="roots/list"), outgoing)
    assert request == ServerRequest("q", "roots/list", {}, "request", pending.id)
    (request,) = machine.receive(wire(id=0, method="roots/list"))
    assert request == ServerRequest(0, "roots/list", {}, "request", None)


def test_a_question_for_a_task_says_so() -> None:
    meta = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
    (request,) = session().receive(wire(id=1, method="roots/list", params={"_meta": meta}))
    assert isinstance(request, ServerRequest)
    assert request.origin == "task"


@pytest.mark.parametrize("identity", [1, "1"])
def test_a_legacy_server_may_withdraw_its_request(identity: int | str) -> None:
    (withdrawn,) = session().receive(wire(method="notifications/cancelled", params={"requestId": identity}))
    assert withdrawn == Withdrawn(identity)
    assert type(withdrawn.id) is type(identity)


@pytest.mark.parametrize("identity", [True, None, [], 1.5])
def test_a_withdrawal_of_nothing_means_nothing(identity: Any) -> None:
    assert session().receive(wire(method="notifications/cancelled", params={"requestId": identity})) == []


def test_before_a_revision_is_settled_nothing_counts_as_declared() -> None:
    reply, _ = session(None).receive(wire(id=1, method="roots/list"))
    assert isinstance(reply, Outgoing)
    assert json.loads(reply.data)["error"]["code"] == -32601


def test_metadata_of_the_caller_travels_below_ours() -> None:
    meta = {"traceparent": "00-a-b-01"}
    _, outgoing = session().request("tools/call", {"name": "x"}, meta=meta, wants_progress=True)
    assert json.loads(outgoing.data)["params"]["_meta"] == {**meta, "progressToken": outgoing.id}
    machine = session(MODERN)
    machine.log_level = "warning"
    _, outgoing = machine.request("tools/call", {"name": "x"}, meta=meta)
    sent = json.loads(outgoing.data)["params"]["_meta"]
    assert (sent["traceparent"], sent["io.modelcontextprotocol/logLevel"]) == ("00-a-b-01", "warning")


def test_what_is_declared_again_reaches_a_modern_server_with_the_next_request() -> None:
    machine = session(MODERN)
    machine.declare({})
    _, outgoing = machine.request("tools/list")
    meta = json.loads(outgoing.data)["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


def test_an_answer_over_the_limit_of_a_message_does_not_leave() -> None:
    with pytest.raises(ProtocolError) as caught:
        session(limits=Limits(message_bytes=100)).reply(1, {"content": "x" * 100})
    assert caught.value.fault is Fault.MESSAGE_LIMIT


def test_a_request_of_a_modern_server_is_a_violation_without_an_answer() -> None:
    (event,) = session(MODERN).receive(wire(id=1, method="elicitation/create"))
    assert isinstance(event, events.ProtocolViolation)


def test_each_modern_request_carries_its_metadata_and_headers() -> None:
    _, outgoing = session(MODERN).request("tools/call", {"name": "büro", "arguments": {}}, wants_progress=True)
    params = json.loads(outgoing.data)["params"]
    assert params["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "hub", "version": "3"},
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
        "progressToken": outgoing.id,
    }
    assert outgoing.headers == {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?YsO8cm8=?=",
    }


def test_for_a_transport_without_headers_a_modern_request_makes_none() -> None:
    _, outgoing = session(MODERN).request("tools/call", {"name": "büro", "arguments": {}}, mirrored=None)
    assert outgoing.headers == {}
    assert "io.modelcontextprotocol/protocolVersion" in json.loads(outgoing.data)["params"]["_meta"]


def test_a_legacy_request_without_listener_carries_neither() -> None:
    _, outgoing = session().request("tools/list")
    assert json.loads(outgoing.data) == {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert outgoing.headers == {}


def test_progress_counts_only_for_our_token_and_only_when_it_grows() -> None:
    machine = session()
    pending, _ = machine.request("tools/call", {}, wants_progress=True, tag="t")

    def progress(value: object, token: object) -> list[Any]:
        params = {"progressToken": token, "progress": value, "total": 4, "message": "m"}
        return machine.receive(wire(method="notifications/progress", params=params))

    assert progress(0, pending.id) == [events.Progress(pending.id, 0.0, 4.0, "m", "t")]
    assert progress(0, pending.id) == []
    assert progress(1, str(pending.id)) == []
    assert progress(True, pending.id) == []
    assert progress(2.5, pending.id) == [events.Progress(pending.id, 2.5, 4.0, "m", "t")]


def test_progress_on_a_request_without_listener_is_nobodys() -> None:
    machine = session()
    pending, _ = machine.request("tools/call", {})
    params = {"progressToken": pending.id, "progress": 1}
    assert machine.receive(wire(method="notifications/progress", params=params)) == []


@pytest.mark.parametrize(
    ("method", "params", "event"),
    [
        ("notifications/message", {"level": "error", "data": [1]}, events.LogMessage("error", None, [1])),
        ("notifications/tools/list_changed", {}, events.ListChanged(ListKind.TOOLS)),
        ("notifications/prompts/list_changed", {}, events.ListChanged(ListKind.PROMPTS)),
        ("notifications/resources/updated", {"uri": "file:///a"}, events.ResourceUpdated("file:///a")),
        ("notifications/strange", {"a": 1}, events.OtherNotification("notifications/strange", {"a": 1})),
    ],
)
def test_notifications_become_events(method: str, params: dict[str, Any], event: events.Event) -> None:
    assert session().receive(wire(method=method, params=params)) == [event]


def test_requests_in_flight_are_bounded() -> None:
    machine = session(limits=Limits(pending_requests=2))
    machine.request("ping")
    machine.request("ping")
    with pytest.raises(TooManyPending):
        machine.request("ping")


def test_a_request_over_the_limit_is_refused_and_not_in_flight() -> None:
    machine = session(limits=Limits(message_bytes=100))
    with pytest.raises(ProtocolError) as caught:
        machine.request("tools/call", {"text": "x" * 100})
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.MESSAGE_LIMIT, False)
    assert machine.in_flight == 0


class Torn(UserDict[str, Any]):
    """An entry of `_meta` that cannot be read."""

    def keys(self) -> Any:
        raise RuntimeError("torn")


def test_a_request_that_could_not_be_made_for_any_reason_is_not_in_flight() -> None:
    machine = session(MODERN)
    with pytest.raises(InvalidRequest):
        machine.request("tools/call", {"name": "\ud800"})
    with pytest.raises(RuntimeError):
        machine.request("tools/call", {"name": "t"}, meta=Torn(a=1))
    assert machine.in_flight == 0


@pytest.mark.parametrize(
    "broken",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"a":1,"a":2}}',
        b'{"id":%d,"jsonrpc":"2.0","result":{"deep":[[[',
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":%d}',
        b'{"result":{"id":99},"id":%d,"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":%d.0,"result":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":%d.0}',
    ],
)
def test_an_unreadable_answer_is_attributed_by_the_id_at_its_edge(broken: bytes) -> None:
    machine = session()
    machine.request("ping")
    pending, _ = machine.request("ping")
    assert machine.attribute(broken % pending.id) is pending


@pytest.mark.parametrize("broken", [b'{"result":{"id":1,"x":"', b'{"params":{"id":1}}x', b"", b'{"id":1'])
def test_an_id_that_is_not_at_the_edge_attributes_nothing(broken: bytes) -> None:
    machine = session()
    machine.request("ping")
    assert machine.attribute(broken) is None


def test_of_an_unfinished_answer_only_the_id_at_its_beginning_counts() -> None:
    machine = session()
    pending, _ = machine.request("ping")
    assert machine.attribute(b'{"result":{"rows":[{"id":%d}' % pending.id, unfinished=True) is None
    assert machine.attribute(b'{"jsonrpc":"2.0","id":%d,"result":{"rows":[' % pending.id, unfinished=True) is pending


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_leave_the_machine_alive(data: bytes, modern: bool, on_reply: bool) -> None:
    machine = session(MODERN if modern else LEGACY)
    pending, outgoing = machine.request("tools/call", {})
    try:
        machine.receive(data, outgoing if on_reply else None, 400 if on_reply else None)
    except ProtocolError:
        machine.attribute(data)
    machine.give_up(pending, late_answer=True)
    assert machine.in_flight == 0


messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": st.integers(-2, 4) | st.text(max_size=2) | st.none() | st.floats(allow_nan=False),
        "method": st.sampled_from(["ping", "notifications/progress", "notifications/message", "roots/list", "x"]),
        "params": st.none()
        | st.dictionaries(
            st.sampled_from(["progressToken", "progress", "uri", "level"]),
            st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
        ),
        "result": st.dictionaries(st.text(max_size=2), st.integers(), max_size=2) | st.none(),
        "error": st.fixed_dictionaries({"code": st.integers(), "message": st.text(max_size=3)}) | st.none(),
    },
)


@given(st.lists(messages, min_size=1, max_size=6), st.sampled_from(list(REVISIONS.values())))
def test_any_sequence_of_messages_leaves_the_machine_alive(sequence: list[dict[str, Any]], revision: Any) -> None:
    machine = session(revision)
    for _ in range(3):
        machine.request("tools/call", {}, wants_progress=True)
    for message in sequence:
        try:
            machine.receive(json.dumps(message).encode())
        except ProtocolError:
            continue
    assert 0 <= machine.in_flight <= 3


@pytest.mark.parametrize("era", list(Era))
def test_every_state_leads_back_to_disconnected(era: Era) -> None:
    for start in State:
        reached, frontier = {start}, [start]
        while frontier:
            here = frontier.pop()
            for (state, _), target in TABLES[era].items():
                if state is here and target not in reached:
                    reached.add(target)
                    frontier.append(target)
        assert State.DISCONNECTED in reached


def test_only_the_legacy_era_can_lose_its_wire_session() -> None:
    assert (State.READY, Trigger.SESSION_GONE) in TABLES[Era.LEGACY]
    assert (State.READY, Trigger.SESSION_GONE) not in TABLES[Era.MODERN]


def test_a_change_that_is_not_in_the_table_is_our_own_fault() -> None:
    with pytest.raises(IllegalTransition):
        session().move(Trigger.OPENED)
