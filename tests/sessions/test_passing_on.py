"""*Use as argument…*: a part of a result becomes an argument in the form of another tool, for who may read and call."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind, PayloadKind
from servers.models import Payload
from servers.secret import MASK
from sessions.calls import passing_on
from sessions.calls.passing_on import NoValue, arguments_with, fields_of, parts_of, suggested, value_of
from sessions.enums import CallState
from sessions.mcp.core.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from sessions.models import Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer"},
        "text": {"type": "string", "title": "The text"},
        "where": {"type": "object", "properties": {"id": {"type": "integer"}, "a/b": {"type": "string"}}},
        "names": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "null"]},
    },
    "required": ["text", "where"],
}
EVIL = "<img src=x onerror=alert(1)>"
RESULT = {
    "content": [
        {"type": "text", "text": f"plain {EVIL}"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "text", "text": '[{"id": 7}]'},
    ],
    "structuredContent": {"rows": [{"a/b": "deep"}], "n": 7},
}


# --- values and fields ---------------------------------------------------------------------------------------------
def test_each_text_the_structured_part_and_all_messages_can_be_passed_on() -> None:
    assert [part.name for part in parts_of(TOOLS_CALL, RESULT)] == ["structured", "0", "2"]
    prompt = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
    assert [part.name for part in parts_of(PROMPTS_GET, prompt)] == ["0", "messages"]
    assert value_of(PROMPTS_GET, prompt, "messages", None) == prompt["messages"]
    resource = {"contents": [{"uri": "a:b", "text": "words"}]}
    assert value_of(RESOURCES_READ, resource, "messages", "/0/content/resource/text") == "words"
    assert value_of(TOOLS_CALL, RESULT, "structured", "/rows/0/a~1b") == "deep"
    assert value_of(TOOLS_CALL, RESULT, "2", None) == '[{"id": 7}]'
    assert value_of(TOOLS_CALL, RESULT, "2", "/0/id") == 7


@pytest.mark.parametrize(
    ("part", "pointer"),
    [("1", None), ("9", None), ("x", None), ("0", ""), ("2", "/5"), ("structured", "/no"), ("messages", None)],
)
def test_what_is_not_there_has_no_value(part: str, pointer: str | None) -> None:
    with pytest.raises(NoValue):
        value_of(TOOLS_CALL, RESULT, part, pointer)


def test_a_value_beyond_what_a_form_takes_says_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_on, "VALUE_CHARS", 20)
    with pytest.raises(NoValue, match="A form accepts at most 20"):
        value_of(TOOLS_CALL, RESULT, "structured", None)


def test_a_value_that_nests_deeper_than_a_form_takes_is_refused_in_words() -> None:
    deep = {"content": [{"type": "text", "text": f'{"[" * 600}"{MASK}"{"]" * 600}'}]}
    with pytest.raises(NoValue, match="nested more than 64 levels"):
        value_of(TOOLS_CALL, deep, "0", "")
    text = value_of(TOOLS_CALL, deep, "0", None)
    assert arguments_with({"type": "object", "properties": {"names": {"type": "array"}}}, "/names", text) == {
        "names": [text]
    }, "what it stands for would be too deep"


def test_the_fields_are_those_of_the_form_with_nested_ones_and_the_one_that_fits_is_suggested() -> None:
    fields = fields_of(SCHEMA)
    assert [field.pointer for field in fields] == [
        *("/limit", "/text", "/where", "/where/id", "/where/a~1b", "/names", "/either", ""),
    ]
    assert fields[1].label.startswith("The text")
    assert suggested(SCHEMA, fields, "words") == "/text"
    assert suggested(SCHEMA, fields, {"id": 1}) == "/where"
    assert suggested(SCHEMA, fields, ["a"]) == "/names"
    assert suggested(SCHEMA, fields, 7) == "/limit"


@pytest.mark.parametrize(
    ("pointer", "value", "expected"),
    [
        ("/text", "words", {"text": "words"}),
        ("/text", {"a": 1}, {"text": '{\n  "a": 1\n}'}),
        ("/limit", "12", {"limit": 12}),
        ("/limit", "many", {"limit": "many"}),
        ("/where/a~1b", "deep", {"where": {"a/b": "deep"}}),
        ("/where", '{"id": 1}', {"where": {"id": 1}}),
        ("/names", "one", {"names": ["one"]}),
        ("/either", None, {"either": None}),
        ("", {"text": "a", "where": {}}, {"text": "a", "where": {}}),
        ("", '{"text": "a"}', {"text": "a"}),
        ("/no/such", 1, {"no": {"such": 1}}),
    ],
)
def test_a_value_takes_the_form_of_its_field(pointer: str, value: Any, expected: Any) -> None:
    assert arguments_with(SCHEMA, pointer, value) == expected


@pytest.mark.parametrize(("levels", "value"), [(64, [[1]]), (65, 1), (4_000, 1)])
def test_an_argument_deeper_than_a_form_goes_is_refused_in_words(levels: int, value: Any) -> None:
    with pytest.raises(NoValue, match="64 levels deep"):
        arguments_with(SCHEMA, "/a" * levels, value)


# --- pages ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def call(transactional_db: None, own_writer: None) -> Call:
    session = make_session("orders")
    for slug in ("orders", "search"):
        server = session.server if slug == "orders" else make_session(slug).server
        listing = [{"name": f"{slug}_{verb}", "inputSchema": SCHEMA} for verb in ("find", "count")]
        store_listing(server, DefinitionKind.TOOL, listing, timezone.now())
    found = make_call(session, "echo", text="a")
    stored = payloads.store(PayloadKind.RESULT, json.dumps(RESULT))
    Call.objects.filter(pk=found.pk).update(state=CallState.SUCCEEDED, result=stored, finished_at=timezone.now())
    return Call.objects.get(pk=found.pk)


def client_of(name: str, *permissions: str) -> Client:
    found = Client()
    found.force_login(person(name, *permissions))
    return found


def test_server_tool_and_field_are_chosen_and_the_form_opens_filled(call: Call) -> None:
    carla = client_of("carla", "view_server", "call_tool", "view_payload")
    card = carla.get(f"/calls/{call.uid}/").content.decode()
    address = f"/calls/{call.uid}/use/"
    assert f'href="{address}"' in card
    assert f"{address}?part=2" in card
    page = carla.get(address, {"part": "0"}).content.decode()
    assert EVIL not in page
    assert '<option value="orders" selected>' in page
    page = carla.get(address, {"part": "structured", "at": "/rows/0/a~1b", "server": "search"}).content.decode()
    assert "search_count" in page
    assert "orders_find" not in page
    asked = {"part": "structured", "at": "/rows/0/a~1b", "server": "search", "tool": "search_find"}
    page = carla.get(address, asked).content.decode()
    assert '<option value="/text" selected>' in page
    opened = carla.get(address, asked | {"into": "/where/a~1b", "into_of": "search search_find", "open": "1"})
    assert opened.status_code == 302
    parts = urlsplit(opened["Location"])
    assert (parts.path, parts.fragment) == ("/servers/search/tools/", "arg-where-a_7e_1b")
    assert parse_qs(parts.query)["into"] == ["/where/a~1b"]
    form = carla.get(opened["Location"]).content.decode()
    assert f"the result of call #{call.pk}</a>. Nothing was sent." in form
    assert 'value="deep"' in form
    assert 'id="arg-where-a_7e_1b"' in form


def test_each_message_of_a_prompt_and_all_of_them_can_be_passed_on(call: Call) -> None:
    carla = client_of("carla", "view_server", "call_tool", "view_payload")
    said = [{"role": role, "content": {"type": "text", "text": f"said by {role}"}} for role in ("user", "assistant")]
    stored = payloads.store(PayloadKind.RESULT, json.dumps({"messages": said}))
    Call.objects.filter(pk=call.pk).update(method=PROMPTS_GET, result=stored)
    card = carla.get(f"/calls/{call.uid}/card/").content.decode()
    assert f"/calls/{call.uid}/use/?part=1" in card
    page = carla.get(f"/calls/{call.uid}/use/", {"part": "1"}).content.decode()
    assert "said by assistant</pre>" in page
    assert "All of it, as messages" in page


def test_a_field_of_another_tool_is_not_taken_over_when_the_tool_changes(call: Call) -> None:
    carla = client_of("carla", "view_server", "call_tool", "view_payload")
    asked = {"part": "0", "server": "search", "tool": "search_count", "into": "/names", "into_of": "search search_find"}
    answer = carla.get(f"/calls/{call.uid}/use/", asked | {"open": "1"})
    assert answer.status_code == 200
    assert '<option value="/text" selected>' in answer.content.decode()


def test_a_field_thousands_of_levels_deep_opens_the_form_without_it(call: Call) -> None:
    carla = client_of("carla", "view_server", "call_tool", "view_payload")
    address = f"/servers/search/tools/?tool=search_find&use={call.uid}&part=0&into="
    assert "more than 64 levels deep" in carla.get(address + "/a" * 3_000).content.decode()


def test_masked_values_are_left_out_and_counted(call: Call) -> None:
    carla = client_of("carla", "view_server", "call_tool", "view_payload")
    masked = {"content": [{"type": "text", "text": MASK}], "structuredContent": {"text": MASK, "where": {"id": 3}}}
    stored = payloads.store(PayloadKind.RESULT, json.dumps(masked))
    Payload.objects.filter(pk=stored.pk).update(redacted=2)
    Call.objects.filter(pk=call.pk).update(result=stored)
    address = f"/servers/search/tools/?tool=search_find&use={call.uid}&"
    form = carla.get(f"{address}part=structured&into=").content.decode()
    assert "1 masked value left out" in form
    assert MASK not in form
    assert "The value is masked." in carla.get(f"{address}part=0&into=/text").content.decode()


def test_who_may_not_read_or_not_call_passes_nothing_on(call: Call) -> None:
    address, form = f"/calls/{call.uid}/use/", f"/servers/search/tools/?tool=search_find&use={call.uid}&part=structured"
    reader = client_of("vera", "view_server", "view_payload")
    assert reader.get(address).status_code == 403
    assert "data-may-call-tool" not in reader.get(f"/calls/{call.uid}/").content.decode()
    caller = client_of("carl", "view_server", "call_tool")
    assert caller.get(address).status_code == 403
    shown = caller.get(form).content.decode()
    assert "You don&#x27;t have permission to view it." in shown
    assert "deep" not in shown
    assert "It does not exist" in caller.get(form.replace(str(call.uid), "x")).content.decode()
