"""Calls under a name: their arguments are as private as those of calls, and they run after the same second thoughts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.http import Http404
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.definitions import versions
from servers.enums import AuditAction, DefinitionKind, PayloadKind
from servers.models import AuditEvent, Payload
from servers.secret import MASK
from sessions.models import Call, McpSession, SavedCall
from sessions.saved_calls import saving
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "echo",
        "inputSchema": {"type": "object", "properties": {"text": TEXT, "pin": TEXT | {"format": "password"}}},
    },
    {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}},
]
ADD = "/servers/tools/saved/add/?method=tools/call&target="
JSON = {"Accept": "application/json"}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def session() -> McpSession:
    made = make_session("tools")
    versions.store_listing(made.server, DefinitionKind.TOOL, TOOLS, timezone.now())
    return made


@pytest.fixture
def carla() -> Client:
    return signed_in("carla")


def signed_in(name: str, *more: str) -> Client:
    client = Client()
    client.force_login(person(name, "view_server", "call_tool", *more))
    return client


def save(client: Client, name: str, tool: str = "echo", *, shared: bool = False, **arguments: Any) -> Any:
    fields = {"_mode": "json", "_json": json.dumps(arguments), "_filled": "1", "_name": name}
    return client.post(ADD + tool, fields | ({"_shared": "yes"} if shared else {}), headers=JSON)


def saved(name: str) -> SavedCall:
    return SavedCall.objects.get(name=name)


def run(client: Client, name: str) -> Any:
    return client.post(f"/saved-calls/{saved(name).uid}/run/", headers=JSON).json()


def test_a_form_is_saved_under_a_name_and_runs_with_one_click(session: McpSession, carla: Client) -> None:
    assert save(carla, "Twice", text="x2").json()["message"] == "Saved as “Twice”"
    assert "Choose another name" in save(carla, "Twice", text="x3").json()["message"]
    assert save(carla, "Wrong", text=7).status_code == 200  # also what the schema forbids
    assert save(carla, "Wipe", "wipe").status_code == 200
    first, second = run(carla, "Twice"), run(carla, "Twice")
    assert first["call"] == second["call"]
    call = Call.objects.get(saved=saved("Twice").uid)
    assert payloads.read(call.arguments) == '{"text": "x2"}'
    assert [run(carla, name) for name in ("Wrong", "Wipe")] == [
        {"ask": f"/saved-calls/{saved(name).uid}/run/"} for name in ("Wrong", "Wipe")
    ]
    asked = carla.get(f"/saved-calls/{saved('Wipe').uid}/run/").content.decode()
    assert "Type <code>wipe</code> to confirm" in asked
    page = carla.get("/servers/tools/saved/").content.decode()
    assert f">#{call.pk}</a>" in page
    assert "Twice" in carla.get("/servers/tools/tools/?tool=echo").content.decode()
    assert "x2" in carla.get(f"/servers/tools/tools/?tool=echo&saved={saved('Twice').uid}").content.decode()


def test_others_see_what_is_shared_and_only_the_owner_or_who_may_change_the_server_edits_it(
    session: McpSession, carla: Client
) -> None:
    save(carla, "Own", text="private")
    save(carla, "Common", shared=True, text="for all")
    otto, admin = signed_in("otto"), signed_in("ines", "change_server")
    page = otto.get("/servers/tools/saved/").content.decode()
    assert "Common" in page
    assert "Own" not in page.replace("Owner", "")
    own, common = saved("Own").uid, saved("Common").uid
    assert otto.get(f"/saved-calls/{own}/run/").status_code == 404
    assert "Choose" not in json.dumps(run(otto, "Common"))
    assert otto.post(f"/saved-calls/{common}/change/", {"_name": "Mine"}).status_code == 403
    assert otto.post(f"/saved-calls/{common}/delete/").status_code == 403
    assert admin.post(f"/saved-calls/{common}/change/", {"_name": "Ours"}).status_code == 302
    assert saved("Ours").shared
    kept = saved("Ours").arguments_id
    assert admin.post(f"/saved-calls/{common}/delete/").status_code == 302
    assert not Payload.objects.filter(pk=kept).exists()
    actions = AuditEvent.objects.filter(action__contains="saved_call").order_by("seq").values_list("action", flat=True)
    made, changed, gone = (AuditAction.SAVED_CALL_CREATE, AuditAction.SAVED_CALL_CHANGE, AuditAction.SAVED_CALL_DELETE)
    assert list(actions) == [made, made, changed, gone]


def test_a_secret_is_masked_and_what_is_erased_in_a_call_is_erased_in_what_was_saved_from_it(
    session: McpSession, carla: Client
) -> None:
    save(carla, "Secret", text="a", pin="1234-secret")
    assert MASK in (payloads.read(saved("Secret").arguments) or "")
    assert "masked" in run(carla, "Secret")["message"]
    call = make_call(session, "echo", text="to be erased")
    Call.objects.filter(pk=call.pk).update(user=saved("Secret").owner)
    assert carla.post(f"/calls/{call.uid}/save/", {"_name": "From call"}, headers=JSON).status_code == 200
    save(carla, "Placed", text="b")
    placed = Call.objects.get(uid=run(carla, "Placed")["call"])
    payloads.erase_all([call.arguments_id], everywhere=False)  # the retention: what a person saved stays
    assert saved("From call").arguments.erased_at is None
    for erased in (call.arguments_id, placed.arguments_id):
        Payload.objects.filter(pk=erased).update(erased_at=None)
        payloads.erase_all([erased], everywhere=True)
    assert payloads.read(saved("From call").arguments) is None
    assert payloads.read(saved("Placed").arguments) is None
    assert payloads.read(saved("Secret").arguments) is not None
    session.server.delete()
    assert not Payload.objects.filter(kind=PayloadKind.SAVED).exists()


def test_saving_another_persons_call_is_recorded_as_reading_it(session: McpSession, carla: Client) -> None:
    save(carla, "Own", text="mine")
    call = make_call(session, "echo", text="hers")
    Call.objects.filter(pk=call.pk).update(user=saved("Own").owner)
    vera = signed_in("vera", "view_payload")
    read = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ)
    assert vera.post(f"/calls/{call.uid}/save/", {"_name": ""}, headers=JSON).status_code == 422
    assert vera.post(f"/calls/{call.uid}/save/", {"_name": "Own"}, headers=JSON).status_code == 422
    assert not read.exists()
    for client in (carla, vera):
        name = f"Of {client.session['_auth_user_id']}"
        assert client.post(f"/calls/{call.uid}/save/", {"_name": name}, headers=JSON).status_code == 200
    assert [(event.actor_name, event.call_uid) for event in read] == [("vera", call.uid)]


def test_one_saved_call_and_three_need_the_same_number_of_queries(session: McpSession, carla: Client) -> None:
    counts = []
    for number in range(4):
        save(carla, f"Call {number}", text="x")
        run(carla, f"Call {number}")
        with CaptureQueriesContext(
            connection,
        ) as seen:
            carla.get("/servers/tools/saved/")
        counts.append(len(seen))
    assert counts[1] == counts[3]


def test_of_two_people_who_delete_one_saved_call_the_first_makes_the_event(session: McpSession, carla: Client) -> None:
    save(carla, "Greet", text="hello")
    row = saved("Greet")
    owner = get_user_model().objects.get(username="carla")
    for _ in range(2):
        saving.delete(Actor.of_user(owner), owner, SavedCall.objects.filter(pk=row.pk).first() or row)
    assert AuditEvent.objects.filter(action=AuditAction.SAVED_CALL_DELETE).count() == 1


def test_a_change_of_a_saved_call_that_was_deleted_meanwhile_finds_nothing(session: McpSession, carla: Client) -> None:
    save(carla, "Greet", text="hello")
    row = saved("Greet")
    owner = get_user_model().objects.get(username="carla")
    SavedCall.objects.all().delete()
    with pytest.raises(Http404, match="This saved call does not exist"):
        saving.change(Actor.of_user(owner), owner, row, "Welcome", shared=False)
    assert not AuditEvent.objects.filter(action=AuditAction.SAVED_CALL_CHANGE).exists()


def test_a_change_of_a_saved_call_keeps_what_another_person_changed_meanwhile(
    session: McpSession, carla: Client
) -> None:
    save(carla, "Greet", text="hello")
    row = saved("Greet")
    owner = get_user_model().objects.get(username="carla")
    SavedCall.objects.update(shared=True)
    assert saving.change(Actor.of_user(owner), owner, row, "Welcome", shared=False)
    assert saved("Welcome").shared
    event = AuditEvent.objects.get(action=AuditAction.SAVED_CALL_CHANGE)
    details = json.loads(event.body)["details"]
    assert details["before"] == {"name": "Greet", "shared": True}
    assert details["after"] == {"name": "Welcome", "shared": True}
