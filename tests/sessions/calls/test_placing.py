"""Placing, cancelling and repeating calls against a real database and the real audit writer."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import transaction
from django.http import Http404
from django.test import Client
from django.utils import timezone

from servers import access
from servers.accounts import people
from servers.agents.oauth import clients
from servers.audit import payloads
from servers.audit import writer as writer_module
from servers.audit.proof.rows import Removed
from servers.audit.record import Actor
from servers.enums import AuditAction, AuditOutcome, OAuthClientKind, TransportKind
from servers.models import AgentToken, AuditEvent, Definition, Identity, OAuthClient, Payload, Server
from servers.registration import registering
from sessions.calls import final_states, placing, repeating
from sessions.calls.placing import AuditUnavailable, Rejected, SubmittedArguments
from sessions.calls.proof import CallRows
from sessions.connections import commands
from sessions.enums import ArgumentProblemKind, CallState, Desired
from sessions.models import AgentCall, Call, McpSession, Worker
from tests.benchmarks.audit_rows import Table, uid
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture
from tests.sessions.retention.months import keys

pytestmark = pytest.mark.django_db(transaction=True)
TOOLS = {
    "echo": {"inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    "wipe": {"inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}},
    "odd": {"inputSchema": {"type": "object", "$ref": "https://example.invalid/schema.json"}},
}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writer_module.reset()


@pytest.fixture
def server() -> Server:
    made = Server.objects.create(slug="demo", name="Demo", transport=TransportKind.STDIO, command="true")
    shared, now = Identity.objects.create(server=made), timezone.now()
    for position, (name, body) in enumerate(TOOLS.items()):
        text = json.dumps({"name": name, **body})
        Definition.objects.create(
            server=made,
            identity=shared,
            kind="tool",
            key=name,
            body=text,
            position=position,
            digest="d",
            first_seen_at=now,
            changed_at=now,
        )
    return made


def person(*permissions: str) -> Any:
    user = get_user_model().objects.create_user(f"u{get_user_model().objects.count()}")
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return get_user_model().objects.get(pk=user.pk)


@pytest.fixture
def caller() -> Any:
    return person("view_server", "call_tool")


def place(user: Any, server: Server, tool: str = "echo", **given: Any) -> Call:
    given = given or {"value": {"text": "hello"}}
    return placing.place(Actor.of_user(user), user, server, tool, SubmittedArguments(**given))


def test_a_placed_call_is_durable_with_its_payload_and_event(caller: Any, server: Server) -> None:
    call = place(caller, server)
    stored = Call.objects.select_related("arguments").get(pk=call.pk)
    assert (stored.state, stored.user_name, stored.identity_name) == (CallState.REQUESTED, caller.username, "shared")
    assert json.loads(payloads.read(stored.arguments)) == {"text": "hello"}
    assert stored.deadline > timezone.now() + timedelta(seconds=server.connect_timeout_seconds)
    event = AuditEvent.objects.get(action=AuditAction.CALL_REQUEST)
    assert (event.call_uid, event.outcome, event.actor_id) == (stored.uid, AuditOutcome.PENDING, caller.pk)
    assert json.loads(event.body)["digests"] == {"arguments": stored.arguments.digest}


def test_a_machine_that_sleeps_while_a_call_is_placed_or_cancelled_raises_no_alarm(
    caller: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_sleep = SimpleNamespace(now=lambda: timezone.now() + timedelta(minutes=10))
    monkeypatch.setattr("servers.audit.record.timezone", after_the_sleep)
    call = place(caller, server)
    assert placing.cancel(Actor.of_user(caller), caller, call)
    events = [(event, json.loads(event.body)) for event in AuditEvent.objects.filter(call_uid=call.uid).order_by("seq")]
    assert {AuditAction.CALL_REQUEST, AuditAction.CALL_FINISH} <= {event.action for event, _ in events}
    assert CallRows().of_events(events, Removed()) is None
    Call.objects.update(created_at=timezone.now())
    assert CallRows().of_events(events, Removed()) is not None


def test_a_call_wants_its_session(caller: Any, server: Server) -> None:
    assert commands.shared_session(server).desired == Desired.CLOSED
    place(caller, server)
    assert McpSession.objects.get().desired == Desired.OPEN


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"value": {}}, ""),
        ({"value": {"text": 5}}, "/text"),
        ({"text": '{"text": 5}'}, "/text"),
        ({"text": "{"}, ""),
        ({"form": {"_mode": ["json"], "_json": ['{"text": 5}']}}, "/text"),
    ],
)
def test_wrong_arguments_name_their_place_and_write_nothing(
    caller: Any, server: Server, given: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        place(caller, server, **given)
    assert any(key == pointer or key.startswith(pointer) for key in refusal.value.errors)
    assert not Call.objects.exists()
    assert not Payload.objects.exists()
    assert not AuditEvent.objects.filter(action=AuditAction.CALL_REQUEST).exists()


@pytest.mark.parametrize(
    ("change", "words"), [({"enabled": False}, "disabled"), ({"archived_at": timezone.now()}, "archived")]
)
def test_a_server_out_of_service_takes_no_call(caller: Any, server: Server, change: dict[str, Any], words: str) -> None:
    Server.objects.update(**change)
    with pytest.raises(Rejected, match=words):
        place(caller, server)


def test_a_tool_that_was_removed_is_not_called(caller: Any, server: Server) -> None:
    Definition.objects.filter(key="echo").update(removed_at=timezone.now())
    with pytest.raises(Rejected, match="no longer offers a tool"):
        place(caller, server)


def test_a_destructive_tool_wants_its_own_name(caller: Any, server: Server) -> None:
    for confirm in ("", "yes", "echo", True):
        with pytest.raises(Rejected) as refusal:
            place(caller, server, "wipe", value={}, confirm=confirm)
        assert refusal.value.confirm == "name"
    assert place(caller, server, "wipe", value={}, confirm="wipe").target == "wipe"


def test_arguments_that_cannot_be_checked_need_a_confirmation_which_is_recorded(caller: Any, server: Server) -> None:
    with pytest.raises(Rejected) as refusal:
        place(caller, server, "odd", value={})
    assert refusal.value.confirm == "unchecked"
    place(caller, server, "odd", value={}, unchecked=True)
    assert json.loads(AuditEvent.objects.get(action=AuditAction.CALL_REQUEST).body)["details"]["unchecked"]


def test_the_name_of_a_destructive_tool_is_no_confirmation_of_arguments_that_cannot_be_checked(
    caller: Any, server: Server
) -> None:
    body = {"name": "odd", **TOOLS["odd"], "annotations": {"destructiveHint": True}}
    Definition.objects.filter(key="odd").update(body=json.dumps(body))
    for given, missing in (({"confirm": "odd"}, "unchecked"), ({"unchecked": True}, "name")):
        with pytest.raises(Rejected) as refusal:
            place(caller, server, "odd", value={}, **given)
        assert refusal.value.confirm == missing
    assert place(caller, server, "odd", value={}, confirm="odd", unchecked=True).doubt == ArgumentProblemKind.UNCHECKED


def test_arguments_of_a_tool_whose_schema_has_nulls_are_checked_on_its_page_and_when_it_is_called(
    caller: Any, server: Server, client: Client
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "required": True}}, "required": None}
    Definition.objects.filter(key="odd").update(body=json.dumps({"name": "odd", "inputSchema": schema}))
    client.force_login(person("view_server", "call_tool"))
    shown = client.get("/servers/demo/tools/?tool=odd").content.decode()
    assert 'name="arg:/a"' in shown
    assert "is not valid here" not in shown
    with pytest.raises(Rejected) as refusal:
        place(caller, server, "odd", value={})
    assert refusal.value.errors == {"/a": ["Required."]}
    assert place(caller, server, "odd", value={"a": "x"}).doubt == ""


def test_the_page_of_a_destructive_tool_asks_both_questions(server: Server, client: Client) -> None:
    body = {"name": "odd", **TOOLS["odd"], "annotations": {"destructiveHint": True}}
    Definition.objects.filter(key="odd").update(body=json.dumps(body))
    client.force_login(person("view_server", "call_tool"))
    path, fields = "/servers/demo/call/?tool=odd", {"_mode": "json", "_json": "{}", "_confirm": "odd"}
    refused = client.post(path, fields)
    assert refused.status_code == 422
    assert "Run it with unchecked arguments" in refused.content.decode()
    assert "Type <code>odd</code> to confirm" in refused.content.decode()
    assert client.post(path, fields | {"_unchecked": "yes"}).status_code == 303


def test_without_permission_the_refusal_is_in_the_log(server: Server) -> None:
    with pytest.raises(access.Denied):
        place(person("view_server"), server)
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.subject, event.outcome) == ("echo", AuditOutcome.DENIED)


def test_who_may_not_see_a_server_learns_nothing_of_it(server: Server) -> None:
    with pytest.raises(Http404):
        place(person("call_tool"), server)


def test_a_call_that_audit_cannot_take_is_refused_and_leaves_nothing(
    caller: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_LIMIT", 0)
    with pytest.raises(AuditUnavailable):
        place(caller, server)
    assert not Call.objects.exists()


def test_a_call_that_may_have_been_committed_is_withdrawn_where_no_worker_sent_it(
    caller: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(batch: Any) -> None:
        raise OSError("The disk does not answer.")

    with monkeypatch.context() as disk:
        disk.setattr(writer_module, "make_durable", refuse)
        with pytest.raises(placing.MaybePlaced, match="Check whether the change was made") as refusal:
            place(caller, server)
    writer_module.writer().submit_and_wait(lambda: None)
    call = Call.objects.get()
    assert (call.uid, call.state) == (refusal.value.call, CallState.NOT_SENT)
    assert call.detail.startswith("mcpadmin could not confirm")
    actions = set(AuditEvent.objects.filter(call_uid=call.uid).values_list("action", flat=True))
    assert actions == {AuditAction.CALL_REQUEST, AuditAction.CALL_FINISH}


def test_a_requested_call_ends_when_it_is_cancelled(caller: Any, server: Server) -> None:
    call = place(caller, server)
    assert placing.cancel(Actor.of_user(caller), caller, call)
    stored = Call.objects.get()
    assert stored.state == CallState.CANCELLED
    assert stored.finished_at is not None
    actions = set(AuditEvent.objects.filter(call_uid=call.uid).values_list("action", flat=True))
    assert actions == {AuditAction.CALL_REQUEST, AuditAction.CALL_CANCEL, AuditAction.CALL_FINISH}
    assert not placing.cancel(Actor.of_user(caller), caller, call)


def test_of_a_sent_call_only_the_wish_is_written(caller: Any, server: Server) -> None:
    call = place(caller, server)
    Call.objects.update(state=CallState.SENT, worker_uid=call.uid)
    assert placing.cancel(Actor.of_user(caller), caller, call)
    stored = Call.objects.get()
    assert (stored.state, stored.cancel_requested_by) == (CallState.SENT, caller.username)
    assert not placing.cancel(Actor.of_user(caller), caller, call)


def test_a_repetition_is_a_new_call_with_the_same_arguments(caller: Any, server: Server) -> None:
    first = place(caller, server, value={"text": "twice"})
    second = repeating.repeat(Actor.of_user(caller), caller, first)
    assert second.pk != first.pk
    assert second.repeats == first
    assert payloads.read(second.arguments) == payloads.read(first.arguments)
    event = AuditEvent.objects.get(action=AuditAction.CALL_REQUEST, call_uid=second.uid)
    assert json.loads(event.body)["details"]["repeats"] == str(first.uid)


def test_repeating_another_persons_call_is_recorded_as_reading_it(caller: Any, server: Server) -> None:
    first = place(caller, server)
    other = person("view_server", "call_tool", "view_payload")
    for user in (caller, other):
        repeating.repeat(Actor.of_user(user), user, first)
    event = AuditEvent.objects.get(action=AuditAction.PAYLOAD_READ)
    assert (event.actor_id, event.call_uid) == (other.pk, first.uid)


def test_erased_arguments_cannot_be_repeated(caller: Any, server: Server) -> None:
    first = place(caller, server)
    payloads.erase(first.arguments)
    with pytest.raises(Rejected, match="erased"):
        repeating.repeat(Actor.of_user(caller), caller, first)


def test_arguments_of_others_are_not_repeated_without_permission_to_read_them(caller: Any, server: Server) -> None:
    call = place(caller, server)
    other = person("view_server", "call_tool")
    with pytest.raises(access.Denied):
        repeating.repeat(Actor.of_user(other), other, call)


def test_overdue_calls_expire_while_no_worker_lives(caller: Any, server: Server) -> None:
    place(caller, server)
    Call.objects.update(deadline=timezone.now() - timedelta(seconds=1))
    assert final_states.expire_without_worker() == 1
    writer_module.writer().submit_and_wait(lambda: None)
    assert Call.objects.get().state == CallState.EXPIRED
    assert AuditEvent.objects.filter(action=AuditAction.CALL_FINISH).count() == 1


def test_a_living_worker_is_left_to_end_overdue_calls(caller: Any, server: Server) -> None:
    now = timezone.now()
    Worker.objects.create(node="w", machine="m", pid=1, started_at=now, heartbeat_at=now)
    place(caller, server)
    Call.objects.update(deadline=now - timedelta(seconds=1))
    assert final_states.expire_without_worker() == 0


def test_an_end_never_overtakes_another(caller: Any, server: Server) -> None:
    call = place(caller, server)
    Call.objects.update(state=CallState.SENT)
    assert final_states.end([call.uid], final_states.REFUSED_LATE).result(5) == []
    assert Call.objects.get().state == CallState.SENT


def test_deleting_a_server_ends_what_waits_and_keeps_the_history(caller: Any, server: Server) -> None:
    waiting, running = place(caller, server), place(caller, server)
    Call.objects.filter(pk=running.pk).update(state=CallState.SENT, worker_uid=running.uid)
    server.delete()
    writer_module.writer().submit_and_wait(lambda: None)
    ended = Call.objects.get(pk=waiting.pk)
    assert (ended.state, ended.server_name) == (CallState.CANCELLED, "Demo")
    assert Call.objects.get(pk=running.pk).cancel_requested_at is not None


def _long_history(made: Call, count: int = 20_000, **more: Any) -> None:
    """Ended calls beside `made`."""
    now = timezone.now()
    fields = {"arguments": made.arguments, "server_name": "Demo", "target": "echo", "state": CallState.SUCCEEDED}
    refers = {"server_id": made.server_id, "session_id": made.session_id, "identity_id": made.identity_id} | more
    one, key = Call(**fields, **refers, deadline=now, created_at=now), keys(Call, count)
    with transaction.atomic():
        Table(one, ("id", "uid")).write((key + number, uid(2, number)) for number in range(count))


def _longest_wait(act: Callable[[], Any]) -> float:
    """That another change had to wait while `act` ran."""
    waited, over = [0.0], threading.Event()

    def write() -> None:
        while not over.is_set():
            began = time.monotonic()
            writer_module.writer().submit_and_wait(lambda: Call.objects.filter(pk=0).update(version=1), timeout=20.0)
            waited.append(time.monotonic() - began)
            over.wait(0.02)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        act()
    finally:
        over.set()
        writing.join()
    return max(waited)


def _delete_while_others_write(server: Server) -> float:
    """A server with a long history is deleted. Returns the longest time that another change waited meanwhile."""
    user = get_user_model().objects.create_superuser("root")
    made = place(user, server)
    _long_history(made)
    waited = _longest_wait(lambda: registering.delete(Actor.of_user(user), user, server))
    assert not Server.objects.exists()
    assert Call.objects.filter(server=None, session=None, identity=None, server_name="Demo").count() == 20_001
    writer_module.writer().submit_and_wait(lambda: None)
    assert Call.objects.get(pk=made.pk).state == CallState.CANCELLED
    return waited


def test_others_write_while_a_server_with_a_long_history_is_deleted(server: Server) -> None:
    assert _delete_while_others_write(server) < 0.5


def test_so_they_do_on_postgresql(on_postgres: None, server: Server) -> None:  # noqa: F811  the fixture
    assert _delete_while_others_write(server) < 0.5


def test_others_write_while_an_account_with_a_long_history_is_deleted(caller: Any, server: Server) -> None:
    root = get_user_model().objects.create_superuser("root")
    made = place(caller, server)
    _long_history(made, user=caller, user_name=caller.username)
    token = AgentToken.objects.create(user=caller, name="nightly", public_id="0" * 12, expires_at=timezone.now())
    ended = Call.objects.filter(state=CallState.SUCCEEDED)
    AgentCall.objects.bulk_create([AgentCall(call=call, token=token, token_name="nightly") for call in ended[:2_000]])
    assert _longest_wait(lambda: people.delete(Actor.of_user(root), root, caller)) < 0.5
    assert not get_user_model().objects.filter(pk=caller.pk).exists()
    assert ended.filter(user=None, user_name=caller.username, server=server, session=made.session_id).count() == 20_000
    assert AgentCall.objects.filter(token=None, token_name="nightly").count() == 2_000
    writer_module.writer().submit_and_wait(lambda: None)
    assert Call.objects.get(pk=made.pk).state == CallState.CANCELLED
    acts = AuditEvent.objects.filter(subject=caller.username, actor_name="root").order_by("seq")
    assert list(acts.values_list("action", flat=True)) == [AuditAction.USER_DISABLE, AuditAction.USER_DELETE]


def test_a_client_whose_grants_have_a_long_history_is_blocked_before_it_is_deleted(caller: Any, server: Server) -> None:
    root = get_user_model().objects.create_superuser("root")
    client = OAuthClient.objects.create(kind=OAuthClientKind.ADDED, client_id="editor", name="Editor")
    fields: Any = {"public_id": "0" * 12, "expires_at": timezone.now() + timedelta(days=1)}
    grant = AgentToken.objects.create(user=caller, name="Editor", client=client, **fields)
    _long_history(place(caller, server), 1_000)
    ended = Call.objects.filter(state=CallState.SUCCEEDED)
    AgentCall.objects.bulk_create([AgentCall(call=call, token=grant, token_name="Editor") for call in ended[:1_000]])
    clients.delete(Actor.of_user(root), root, client)
    assert not AgentToken.objects.exists()
    assert AgentCall.objects.filter(token=None, token_name="Editor").count() == 1_000
    acts = AuditEvent.objects.filter(action__in=[AuditAction.OAUTH_CLIENT_BLOCK, AuditAction.OAUTH_CLIENT_DELETE])
    assert acts.order_by("seq").values_list("action", flat=True)[0] == AuditAction.OAUTH_CLIENT_BLOCK
    assert acts.count() == 2


def test_arguments_that_the_schema_forbids_are_sent_only_on_request_and_marked(caller: Any, server: Server) -> None:
    with pytest.raises(Rejected) as refusal:
        place(caller, server, value={"text": 7})
    assert refusal.value.confirm == "anyway"
    given = SubmittedArguments(value={"text": 7}, anyway=True)
    call = placing.place(Actor.of_user(caller), caller, server, "echo", given)
    assert call.doubt == ArgumentProblemKind.INVALID
    event = AuditEvent.objects.get(action=AuditAction.CALL_REQUEST)
    assert json.loads(event.body)["details"]["invalid"] == "1 invalid argument"
    with pytest.raises(Rejected, match="destructive"):
        placing.place(Actor.of_user(caller), caller, server, "wipe", SubmittedArguments(value={}, anyway=True))
    fitting = placing.place(
        Actor.of_user(caller), caller, server, "echo", SubmittedArguments(value={"text": "7"}, anyway=True)
    )
    assert fitting.doubt == ""
