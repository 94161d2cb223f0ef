"""The privacy rules hold for the recorded wire as they do for payloads: what is masked, encrypted or erased there is so
here."""

import json
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from django.db.models import Q
from django.test import Client
from structlog.testing import capture_logs

from servers import keyring
from servers.audit import payload_privacy, payloads
from servers.audit.payload_privacy import PayloadPrivacy, Rule
from servers.audit.record import SYSTEM
from servers.credentials import rotation
from servers.enums import AuditAction, Recording
from servers.models import AuditEvent, PrivacySettings
from servers.secret import MASK
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import WireDirection, WireKind
from sessions.host.answer_redaction import Redactor
from sessions.host.db import Database
from sessions.host.service import Host
from sessions.host.wire.log import WireEntry, WireLog
from sessions.host.wire.recorder import WireRecorder
from sessions.host.wire.store import append_all
from sessions.host.wire.writer import WireWriter
from sessions.mcp.core.session import Outgoing
from sessions.models import WireMessage
from sessions.wire import reading
from tests.servers.conftest import person
from tests.servers.jobs.conftest import keyring_file  # noqa: F401  a fixture
from tests.sessions.host.make import make_call, make_hold, make_session
from tests.sessions.inbox.rows import FORM, a_question, answered
from tests.sessions.subscriptions.rows import add_version, make_subscription
from tests.sessions.wire.rows import add_message

HIDDEN = "hunter2-is-hidden"
SCHEMA = {"type": "object", "properties": {"password": {"type": "string", "format": "password"}}}


class Idle(WireWriter):
    def wake(self, source: Any) -> None:
        pass


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`rules(seal=…, rules=…)` is what this process last read of the settings."""

    def read(**given: Any) -> None:
        monkeypatch.setattr(payload_privacy, "_latest", PayloadPrivacy(**given))

    return read


def recorded(*, definition: str = "", lease: Lease | None = None, **params: Any) -> tuple[WireLog, list[WireEntry]]:
    """A call whose arguments and result hold `params`."""
    lease = lease or Lease(1, uuid4(), 7, uuid4(), "Files", "shared", 1, uuid4(), 1)
    log = WireLog(Idle(None), lease)  # type: ignore[arg-type]  # the test writes itself
    recorder = WireRecorder(log, Redactor(), Recording.FULL)
    call = PendingCall(1, uuid4(), 1, "tools/call", "sign_up", "{}", "", SYSTEM, definition)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sign_up", "arguments": params}}
    recorder.sent(Outgoing(json.dumps(asked).encode(), "tools/call", 1, tag=call))
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "structuredContent": params}}
    recorder.received(json.dumps(answer).encode())
    return log, [*log._pending]


def wire(*messages: tuple[str, dict[str, Any]], call: PendingCall | None = None) -> list[str]:
    """The bodies kept of these messages ("sent" or "received"). `call`: only its own requests `tools/call` carry it."""
    log = WireLog(Idle(None), Lease(1, uuid4(), 7, uuid4(), "Files", "shared", 1, uuid4(), 1))  # type: ignore[arg-type]  # nothing is stored
    recorder = WireRecorder(log, Redactor(), Recording.FULL)
    for way, message in messages:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if way == "sent":
            recorder.sent(
                Outgoing(
                    data,
                    str(message.get("method", "")),
                    message.get("id"),
                    tag=call if message.get("method") == "tools/call" else None,
                )
            )
        else:
            recorder.received(data)
    return [entry.body for entry in log._pending]


ASKED = {"method": "elicitation/create", "params": {"requestedSchema": SCHEMA}}
SIGN_UP = {"name": "sign_up", "arguments": {}}
GIVEN = {"action": "accept", "content": {"password": HIDDEN, "city": "Bern"}}


@pytest.mark.parametrize("given", [{"by_schema": True}, {"rules": (Rule("$..password", "answer", None, "elicit*"),)}])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_a_person_answers_is_masked_in_the_protocol_as_in_the_payload(rules: Any, given: Any, era: str) -> None:
    rules(**given)
    call = PendingCall(1, uuid4(), 1, "tools/call", "sign_up", "{}", "", SYSTEM)
    if era == "legacy":
        bodies = wire(("received", {"id": 5, **ASKED}), ("sent", {"id": 5, "result": GIVEN}), call=call)
    else:
        asking = {"resultType": "input_required", "inputRequests": {"k": ASKED}}
        again = {"method": "tools/call", "params": SIGN_UP | {"inputResponses": {"k": GIVEN}}}
        bodies = wire(
            ("sent", {"id": 1, "method": "tools/call", "params": SIGN_UP}),
            ("received", {"id": 1, "result": asking}),
            ("sent", {"id": 2, **again}),
            call=call,
        )
    assert HIDDEN not in bodies[-1]
    assert MASK in bodies[-1]
    assert "Bern" in bodies[-1]


def test_sampled_words_and_completed_arguments_are_masked_where_their_rules_look(rules: Any) -> None:
    rules(rules=(Rule("$.content.text", "answer", None, ""), Rule("$.context.arguments.pin", "arguments", None, "")))
    sampled = {"role": "assistant", "content": {"type": "text", "text": HIDDEN}, "model": "m"}
    completed = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "x"}}
    bodies = wire(
        ("received", {"id": 5, "method": "sampling/createMessage", "params": {}}),
        ("sent", {"id": 5, "result": sampled}),
        (
            "sent",
            {
                "id": 6,
                "method": "completion/complete",
                "params": completed | {"context": {"arguments": {"pin": HIDDEN}}},
            },
        ),
    )
    assert HIDDEN not in "".join(bodies)
    assert '"name":"p"' in bodies[-1].replace(" ", "")


def test_an_answer_to_what_is_not_known_to_have_been_asked_is_masked_as_any_answer(rules: Any) -> None:
    rules(rules=(Rule("$.content.text", "answer", None, ""), Rule("$.password", "answer", None, "")))
    given = {"a": GIVEN, "b": {"role": "assistant", "content": {"type": "text", "text": HIDDEN}}}
    (body,) = wire(("sent", {"id": 2, "method": "tools/call", "params": SIGN_UP | {"inputResponses": given}}))
    assert HIDDEN not in body
    assert body.count(MASK) == 2


def test_the_result_of_a_task_is_masked_as_that_of_the_call_that_became_it(rules: Any) -> None:
    rules(by_schema=True, rules=(Rule("$..pin", "all", None, "sign_*"),))
    call = PendingCall(1, uuid4(), 1, "tools/call", "sign_up", "{}", "", SYSTEM, json.dumps({"outputSchema": SCHEMA}))
    *_, answer = wire(
        ("sent", {"id": 1, "method": "tools/call", "params": {"name": "sign_up"}}),
        ("received", {"id": 1, "result": {"task": {"taskId": "t-1"}}}),
        ("sent", {"id": 2, "method": "tasks/result", "params": {"taskId": "t-1"}}),
        ("received", {"id": 2, "result": {"structuredContent": {"password": HIDDEN, "pin": HIDDEN}}}),
        call=call,
    )
    assert HIDDEN not in answer
    assert answer.count(MASK) == 2


def test_a_rule_masks_arguments_and_results(rules: Any) -> None:
    rules(rules=(Rule("$..password", "all", None, "sign_*"),))
    _, (asked, answered) = recorded(password=HIDDEN, name="ann")
    for entry in (asked, answered):
        assert HIDDEN not in entry.body
        assert MASK in entry.body
        assert "ann" in entry.body
    rules(rules=(Rule("$..password", "all", 8, ""),))
    assert HIDDEN in recorded(password=HIDDEN)[1][0].body, "a rule of another server"


def test_the_schema_of_the_tool_masks_what_it_calls_a_password(rules: Any) -> None:
    rules()
    definition = json.dumps({"name": "sign_up", "inputSchema": SCHEMA, "outputSchema": SCHEMA})
    _, (asked, answered) = recorded(definition=definition, password=HIDDEN, name="ann")
    assert [HIDDEN in entry.body for entry in (asked, answered)] == [False, False]
    assert "ann" in asked.body


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seal", [False, True])
def test_a_message_with_a_mask_and_half_a_character_pair_is_kept(
    rules: Any,
    keyring_file: Any,  # noqa: F811  the fixture
    seal: bool,
) -> None:
    lease = make_hold(make_session())
    rules(seal=seal, rules=(Rule("$..password", "all", None, ""),))
    log, _ = recorded(lease=lease, password=HIDDEN, text="\ud800 and \0")
    append_all([(log, log.take())])
    texts = [reading.text(row) for row in WireMessage.objects.order_by("seq")]
    assert ["\ufffd and " in text and MASK in text and HIDDEN not in text for text in texts] == [True, True]


@pytest.mark.parametrize("target", ["", "sign_*"])
def test_a_line_that_is_no_json_is_not_kept_while_a_rule_concerns_a_call_in_flight(rules: Any, target: str) -> None:
    rules()
    line = f'{{"result": {{"password": "{HIDDEN}"'.encode()
    log = WireLog(Idle(None), Lease(1, uuid4(), 7, uuid4(), "Files", "shared", 1, uuid4(), 1))  # type: ignore[arg-type]  # the test writes itself
    recorder = WireRecorder(log, Redactor(), Recording.FULL)
    recorder.received(line)
    assert log._pending[-1].body == line.decode()
    rules(rules=(Rule("$..password", "all", None, target),))
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sign_up", "arguments": {}}}
    recorder.sent(Outgoing(json.dumps(asked).encode(), "tools/call", 1))
    recorder.received(line)
    last = log._pending[-1]
    assert (last.kind, last.body, last.size) == (WireKind.INVALID, "", len(line))


def test_what_a_rule_cannot_search_is_not_kept(rules: Any, settings: Any) -> None:
    settings.WIRE_BODY_KIB = 1
    rules(rules=(Rule("$..password", "all", None, ""),))
    _, (asked, answered) = recorded(password=HIDDEN, text="x" * 40_000)
    assert (asked.body, answered.body) == ("", "")
    assert (asked.size > 40_000, asked.method) == (True, "tools/call")


@pytest.mark.django_db(transaction=True)
def test_encrypted_where_payloads_are_and_read_again_also_after_a_rotation(
    rules: Any,
    keyring_file: Any,  # noqa: F811  the fixture
) -> None:
    rules(seal=True)
    session = make_session()
    log, _ = recorded(lease=make_hold(session), text="only sealed")
    batch = log.take()
    append_all([(log, batch)])
    rows = list(WireMessage.objects.order_by("seq"))
    assert [row.body for row in rows] == ["", ""]
    assert all(b"only sealed" not in bytes(row.sealed or b"") for row in rows)
    assert ["only sealed" in reading.text(row) for row in rows] == [True, True]
    before = {row.key_id for row in rows}
    assert rotation.begin() is not None
    rotation.rotate(settle=0.0)
    rows = list(WireMessage.objects.order_by("seq"))
    assert before.isdisjoint({row.key_id for row in rows})
    assert ["only sealed" in reading.text(row) for row in rows] == [True, True]
    client = Client()
    client.force_login(person("rita", "view_server", "view_payload"))
    page = client.get(f"/servers/{session.server.slug}/protocol/1/").content.decode()
    assert "only sealed" in page


@pytest.mark.django_db(transaction=True)
def test_without_a_readable_key_ring_the_body_is_left_out_and_the_message_stays_and_says_so(
    rules: Any,
    keyring_file: Any,  # noqa: F811  the fixture
) -> None:
    rules(seal=True)
    session = make_session()
    log, _ = recorded(lease=make_hold(session), text="only sealed")
    keyring_file.unlink()
    keyring.forget_file()
    with capture_logs() as lines:
        append_all([(log, log.take())])
    assert [(line["event"], line["messages"]) for line in lines] == [("host.wire_not_encrypted", 2)]
    client = Client()
    client.force_login(person("rita", "view_server", "view_payload"))
    for number in (1, 2):
        page = client.get(f"/servers/{session.server.slug}/protocol/{number}/").content.decode()
        assert "could not be encrypted, so it was not stored. The key ring" in page
    rows = list(WireMessage.objects.order_by("seq").values_list("method", "body", "sealed", "uid"))
    assert rows == [("tools/call", "", None, None)] * 2


@pytest.mark.django_db(transaction=True)
def test_erasing_a_payload_empties_the_messages_of_its_call(rules: Any) -> None:
    session = make_session()
    call = make_call(session, "echo", text=HIDDEN)
    add_message(session.server, call_uid=call.uid, body={"x": HIDDEN})
    add_message(session.server, WireKind.ERROR, call_uid=call.uid, body={"x": HIDDEN}, detail=HIDDEN)
    add_message(session.server, body={"x": "another call"})
    payloads.erase(call.arguments)
    texts = [(row.body, row.detail) for row in WireMessage.objects.order_by("seq")]
    assert texts == [("", ""), ("", ""), ('{"x": "another call"}', "")]


@pytest.mark.django_db(transaction=True)
def test_erasing_empties_what_came_meanwhile_without_naming_a_call_and_the_errors_of_its_requests() -> None:
    session = make_session()
    server = session.server
    call, other = make_call(session, "echo", text=HIDDEN), make_call(session, "echo", text="x")
    heard = {"direction": WireDirection.RECEIVED, "method": "notifications/message", "rpc_id": ""}
    add_message(server, WireKind.NOTIFICATION, body="before", **heard)
    add_message(server, WireKind.EXCHANGE, exchange=7, body="", detail=f"HTTP 500: {HIDDEN}")
    add_message(server, call_uid=call.uid, exchange=7, body={"x": HIDDEN})
    add_message(server, WireKind.NOTIFICATION, body=HIDDEN, **heard)
    add_message(server, WireKind.REQUEST, body=HIDDEN, **heard | {"method": "elicitation/create", "rpc_id": "9"})
    add_message(server, WireKind.RESULT, body=HIDDEN, direction=WireDirection.SENT, rpc_id="9")
    add_message(server, call_uid=other.uid, body="of another call")
    add_message(server, WireKind.NOTIFICATION, body="of another connection", connection=2, **heard)
    add_message(server, WireKind.RESULT, call_uid=call.uid, body={"x": HIDDEN})
    add_message(server, WireKind.NOTIFICATION, body="after", **heard)
    payloads.erase(call.arguments)
    assert not WireMessage.objects.filter(Q(body__contains=HIDDEN) | Q(detail__contains=HIDDEN)).exists()
    bodies = [body for body in WireMessage.objects.order_by("seq").values_list("body", flat=True) if body]
    assert bodies == ["before", "of another call", "of another connection", "after"]


@pytest.mark.django_db(transaction=True)
def test_erasing_an_answer_or_a_version_of_a_resource_empties_their_messages_too() -> None:
    subscription = make_subscription(make_session("notes"))
    version = add_version(subscription, HIDDEN)
    server = subscription.server
    read = {"method": "resources/read", "target": subscription.uri, "body": HIDDEN}
    add_message(server, WireKind.RESULT, **read)
    add_message(server, WireKind.RESULT, **read | {"target": "demo://another", "body": "another"})
    payloads.erase(version.contents)
    call = make_call(make_session("tools"), "echo", text="x")
    question = a_question(FORM, call=call)
    answered(question, {"name": HIDDEN}, "ann")
    add_message(call.server, WireKind.RESULT, direction=WireDirection.SENT, call_uid=call.uid, body=HIDDEN)
    payloads.erase(question.answer)
    assert sorted(WireMessage.objects.values_list("body", flat=True)) == ["", "", "another"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", ["question", "answer"])
def test_erasing_a_request_that_belongs_to_no_call_empties_its_messages(part: str) -> None:
    question = a_question(FORM)
    answered(question, {"city": HIDDEN}, "ann")
    server, asked = question.server, {"direction": WireDirection.RECEIVED, "method": "elicitation/create"}
    add_message(server, WireKind.REQUEST, body=HIDDEN, rpc_id="9", **asked)
    add_message(server, WireKind.RESULT, body=HIDDEN, rpc_id="9", **asked | {"direction": WireDirection.SENT})
    add_message(server, WireKind.REQUEST, body="of a call", call_uid=uuid4(), **asked)
    add_message(server, WireKind.REQUEST, body="another", method="ping", direction=WireDirection.RECEIVED)
    payloads.erase(getattr(question, part))
    assert list(WireMessage.objects.order_by("seq").values_list("body", flat=True)) == ["", "", "of a call", "another"]


@pytest.mark.django_db(transaction=True)
def test_reading_the_messages_of_another_persons_call_is_an_event() -> None:
    session = make_session()
    call = make_call(session, "echo", text="x")
    add_message(session.server, call_uid=call.uid, direction=WireDirection.SENT)
    client = Client()
    client.force_login(person("rita", "view_server", "view_payload"))
    for _ in range(2):
        assert client.get(f"/servers/{session.server.slug}/protocol/1/").status_code == 200
    event = AuditEvent.objects.get(action=AuditAction.PAYLOAD_READ)
    assert (event.actor_name, event.call_uid) == ("rita", call.uid)
    without = Client()
    without.force_login(person("vera", "view_server"))
    without.get(f"/servers/{session.server.slug}/protocol/1/")
    assert AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ).count() == 1


@pytest.mark.django_db(transaction=True)
async def test_a_worker_knows_the_privacy_settings_before_it_claims_its_first_session() -> None:
    await PrivacySettings.objects.acreate(pk=1, seal_payloads=True)
    payload_privacy.reset()
    known: list[PayloadPrivacy] = []

    def claim(worker_id: int) -> list[Lease]:
        known.append(payload_privacy.latest())
        return []

    database = Database()
    host = SimpleNamespace(worker_id=1, shared=SimpleNamespace(draining=False), may_claim=True, db=database)
    try:
        assert await Host.claim(cast("Host", host), claim) == 0
    finally:
        database.stop()
        payload_privacy.reset()
    assert [settings.seal for settings in known] == [True]
