"""*Run again* runs at once, and asks first whenever a second run may do harm."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.definitions import versions
from servers.enums import DefinitionKind, PayloadKind
from servers.models import Definition
from servers.secret import MASK
from sessions.calls import repeating
from sessions.calls.placing import AuditUnavailable, MaybePlaced
from sessions.enums import ArgumentProblemKind, CallState
from sessions.models import Call
from tests.servers.conftest import person
from tests.servers.schemas.browser_form import posted
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
WARNING = "The first call may have run"


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.mark.parametrize(
    ("state", "may_have_run", "why"),
    [
        (CallState.OUTCOME_UNKNOWN, True, "Its outcome is unknown."),
        (CallState.OUTCOME_UNKNOWN, False, "Its outcome is unknown."),  # the worker died
        (CallState.FAILED, True, "without a usable answer"),
        (CallState.CANCELLED, True, "It was cancelled after it was sent."),
        (CallState.FAILED, False, ""),
        (CallState.TOOL_ERROR, False, ""),
        (CallState.EXPIRED, False, ""),
    ],
)
def test_the_page_warns_where_the_tool_may_have_run(state: CallState, may_have_run: bool, why: str) -> None:
    call = make_call(make_session("tools"), "delete_all")
    Call.objects.filter(pk=call.pk).update(state=state, may_have_run=may_have_run, finished_at=timezone.now())
    client = Client()
    client.force_login(person("carla", "view_server", "call_tool"))
    page = client.get(f"/calls/{call.uid}/repeat/").content.decode()
    assert (WARNING in page) is bool(why)
    assert why in page


@pytest.mark.parametrize("shown_at", ["/calls/{uid}/repeat/", "/calls/{uid}/", "/explorer/rows/calls/{pk}/"])
def test_a_page_that_shows_the_beginning_of_long_arguments_says_so_and_offers_all(shown_at: str) -> None:
    call, client = make_ended()
    address = shown_at.format(uid=call.uid, pk=call.pk)
    assert "Truncated" not in client.get(address).content.decode()
    text = json.dumps({"note": "x" * 200_000, "then": "delete everything"})
    Call.objects.update(arguments=payloads.store(PayloadKind.ARGUMENTS, text))
    shown = client.get(address).content.decode()
    assert "delete everything" not in shown
    assert "these are the first 200,000 characters" in shown
    whole = f"/calls/{call.uid}/arguments.json"
    assert f'href="{whole}"' in shown
    assert f'data-full-url="{whole}"' in shown, "copied is the whole, not the beginning"
    assert client.get(whole).content.decode() == text


# --- one click -----------------------------------------------------------------------------------------------------------
def make_ended(tool: str = "echo", **fields: Any) -> tuple[Call, Client]:
    """An ended call of carla's, and her browser; the server lists the tool."""
    carla = person("carla", "view_server", "call_tool")
    session = make_session("tools")
    listed = [
        {"name": "echo", "inputSchema": {"type": "object"}},
        {"name": "wipe", "annotations": {"destructiveHint": True}},
    ]
    versions.store_listing(session.server, DefinitionKind.TOOL, listed, timezone.now())
    call = make_call(session, tool, text="twice")
    Call.objects.filter(pk=call.pk).update(
        **{"state": CallState.SUCCEEDED, "finished_at": timezone.now(), "user": carla} | fields
    )
    client = Client()
    client.force_login(carla)
    return call, client


def press(client: Client, call: Call, **fields: str) -> Any:
    return client.post(f"/calls/{call.uid}/repeat/", fields, headers={"Accept": "application/json"}).json()


def test_one_click_runs_it_again_and_the_second_click_finds_the_same_call() -> None:
    call, client = make_ended()
    first, second = press(client, call), press(client, call)
    assert first["call"] == second["call"]
    assert "No new call was started" in second["message"]
    assert Call.objects.get(repeats=call).uid.hex == first["call"].replace("-", "")
    plain = client.post(f"/calls/{call.uid}/repeat/")
    assert (plain.status_code, plain["Location"]) == (303, f"/calls/{first['call']}/")
    Call.objects.filter(repeats=call).update(
        state=CallState.SUCCEEDED, created_at=timezone.now() - timedelta(seconds=repeating.TWICE_SECONDS + 1)
    )
    assert press(client, call)["call"] != first["call"]


@pytest.mark.parametrize(
    ("problem", "unconfirmed"),
    [(AuditUnavailable("Nothing was done."), False), (MaybePlaced("Check whether it was.", uuid4()), True)],
)
def test_a_script_is_told_whether_the_call_may_have_been_placed(
    monkeypatch: pytest.MonkeyPatch, problem: AuditUnavailable, unconfirmed: bool
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise problem

    call, client = make_ended()
    monkeypatch.setattr(repeating, "place", failing)
    assert press(client, call) == {"message": str(problem), "unconfirmed": unconfirmed}


def test_after_the_clock_was_set_back_a_click_makes_a_new_call() -> None:
    call, client = make_ended()
    first = press(client, call)
    ahead = timezone.now() + timedelta(hours=1)
    Call.objects.filter(repeats=call).update(state=CallState.SUCCEEDED, created_at=ahead)
    assert press(client, call)["call"] != first["call"]


@pytest.mark.parametrize(
    ("tool", "fields", "question"),
    [
        ("wipe", {}, "Type <code>wipe</code> to confirm"),
        ("echo", {"state": CallState.OUTCOME_UNKNOWN}, WARNING),
        ("echo", {"doubt": ArgumentProblemKind.INVALID}, "even though they don't match the tool's schema"),
        ("echo", {"definition_digest": "an older version"}, "has had a breaking change"),
    ],
)
def test_what_may_do_harm_a_second_time_is_asked_first(tool: str, fields: dict[str, Any], question: str) -> None:
    call, client = make_ended(tool, **fields)
    older = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
    now = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "integer"}}}}
    if "definition_digest" in fields:
        definition = Definition.objects.get(key="echo")
        definition.versions.create(digest="an older version", body=json.dumps(older), seen_at=timezone.now())
        Definition.objects.filter(pk=definition.pk).update(body=json.dumps(now))
    url = f"/calls/{call.uid}/repeat/"
    assert press(client, call) == {"ask": url}
    assert client.post(url)["Location"] == url
    assert question in client.get(url).content.decode()
    assert not Call.objects.filter(repeats=call).exists()
    if tool == "wipe":
        assert client.post(url, {"asked": "yes", "confirm": "wipe"}).status_code == 303
        assert Call.objects.filter(repeats=call).count() == 1


# --- the form with the arguments of a call -------------------------------------------------------------------------------
def test_masked_values_of_a_call_are_left_empty_in_its_form_and_said() -> None:
    call, client = make_ended()
    masked = {"text": "kept", "token": MASK, "nested": {"list": ["a", f"Bearer {MASK}"]}}
    stored = payloads.store(PayloadKind.ARGUMENTS, json.dumps(masked), redacted=2)
    Call.objects.filter(pk=call.pk).update(arguments=stored)
    page = client.get(f"/servers/tools/tools/?tool=echo&call={call.uid}&mode=json").content.decode()
    assert "2 masked values left out: enter them again." in page
    assert MASK not in page[page.index('<form id="tool-form"') : page.index("</form>", page.index("tool-form"))]
    assert "kept" in page
    payloads.erase(stored)
    assert (
        "Its arguments were erased." in client.get(f"/servers/tools/tools/?tool=echo&call={call.uid}").content.decode()
    )


def test_a_masked_item_of_a_list_keeps_its_place_and_has_to_be_entered_again() -> None:
    call, client = make_ended()
    schema = {"type": "object", "properties": {"args": {"type": "array", "items": {"type": "string"}}}}
    tools = [{"name": "echo", "inputSchema": schema}]
    versions.store_listing(call.server, DefinitionKind.TOOL, tools, timezone.now())
    masked = json.dumps({"args": ["--token", MASK, "--dry-run"]})
    Call.objects.filter(pk=call.pk).update(arguments=payloads.store(PayloadKind.ARGUMENTS, masked, redacted=1))
    page = client.get(f"/servers/tools/tools/?tool=echo&call={call.uid}").content.decode()
    assert "1 masked value left empty: enter it again." in page
    start = page.index('<form id="tool-form"')
    fields: dict[str, Any] = posted(page[start : page.index("</form>", start)])
    assert [fields[f"arg:/args/{number}"] for number in range(3)] == [["--token"], [""], ["--dry-run"]]
    refused = client.post("/servers/tools/call/?tool=echo", fields)
    assert (refused.status_code, "Required." in refused.content.decode()) == (422, True)
    assert Call.objects.count() == 1
    client.post("/servers/tools/call/?tool=echo", fields | {"arg:/args/1": ["again"]})
    assert payloads.read(Call.objects.latest("pk").arguments) == '{"args": ["--token", "again", "--dry-run"]}'


@pytest.mark.parametrize(("chars", "cut"), [(100, False), (100_000, True)])
def test_the_text_of_a_result_that_is_cut_has_the_address_of_all_of_it(chars: int, cut: bool) -> None:
    call, client = make_ended()
    text = json.dumps({"content": [{"type": "text", "text": "word " * (chars // 5)}, {"type": "text", "text": "end"}]})
    Call.objects.update(result=payloads.store(PayloadKind.RESULT, text))
    shown = client.get(f"/calls/{call.uid}/").content.decode()
    address = reverse("calls:content", args=[call.uid, 0])
    assert (f'data-full-url="{address}"' in shown) is cut
    assert (f'href="{address}"' in shown) is cut
