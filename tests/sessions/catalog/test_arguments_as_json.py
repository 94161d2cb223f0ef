"""Arguments written as JSON: what is wrong with them is said with its place, and nothing typed is lost between the two modes."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.definitions import versions
from servers.enums import DefinitionKind
from sessions.calls.arguments import SubmittedArguments, read_arguments
from sessions.models import Call
from tests.servers.conftest import person
from tests.servers.schemas.browser_form import posted
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"day": {"type": "integer"}}}},
    },
    "required": ["text"],
}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def client(client: Client) -> Client:
    """Of a person on the page of a server with two tools."""
    server = make_session("tools").server
    free = {"type": "object", "properties": {"note": {"type": "string"}, "limit": {"type": "integer"}, "filter": {}}}
    tools = [{"name": "plan", "inputSchema": SCHEMA}, {"name": "find", "inputSchema": free}]
    versions.store_listing(server, DefinitionKind.TOOL, tools, timezone.now())
    client.force_login(person("carla", "view_server", "call_tool"))
    return client


def form_of(page: str) -> dict[str, Any]:
    """The fields of the tool's form as a browser posts them."""
    form = page[page.index('<form id="tool-form"') :]
    return posted(form[: form.index("</form>")])


def switched(client: Client, tool: str, fields: dict[str, Any], mode: str) -> str:
    answer = client.post(f"/servers/tools/tools/form/?tool={tool}", fields | {"_switch": mode})
    assert answer.status_code == 200
    return answer.content.decode()


def test_json_that_is_not_finished_is_kept_on_the_way_to_the_form_and_back(client: Client) -> None:
    text = '{"text": "a", "stops": ['
    in_form = switched(client, "plan", {"_mode": "json", "_json": text}, "form")
    assert "Invalid JSON: correct it here or switch back." in in_form
    back = form_of(switched(client, "plan", form_of(in_form), "json"))
    assert (back["_mode"], back["_json"]) == (["json"], [text])


@pytest.mark.parametrize(
    ("field", "text", "error"),
    [
        ("arg:/limit", "12a", "Enter a whole number."),
        ("arg.json:/filter", '{"x": [1, 2, }', "a value is missing or not quoted."),
    ],
)
def test_what_json_cannot_contain_stays_in_the_form_beside_its_error(
    client: Client, field: str, text: str, error: str
) -> None:
    fields = form_of(client.get("/servers/tools/tools/?tool=find").content.decode())
    send = f"arg.send:{field.partition(':')[2]}"
    shown = switched(client, "find", fields | {field: text, send: "on"}, "json")
    assert "Correct these values before you switch to JSON" in shown
    assert error in shown
    again = form_of(shown)
    assert (again["_mode"], again[field]) == (["form"], [text])
    assert form_of(switched(client, "find", again | {field: "7"}, "json"))["_json"] == [
        f'{{\r\n  "{field.partition("/")[2]}": 7\r\n}}'
    ]


def test_a_form_with_an_empty_required_field_becomes_json_without_an_error(client: Client) -> None:
    fields = form_of(client.get("/servers/tools/tools/?tool=plan").content.decode())
    shown = switched(client, "plan", fields, "json")
    assert form_of(shown)["_json"] == ["{}"]
    assert "Required" not in shown


def test_half_of_a_surrogate_pair_is_shown_as_its_escape(client: Client) -> None:
    text = '{"note": "\\ud83d"}'
    in_form = switched(client, "find", {"_mode": "json", "_json": text}, "form")
    assert "\\ud83d" in form_of(switched(client, "find", form_of(in_form), "json"))["_json"][0]
    args = urlsafe_b64encode(text.encode()).decode()
    page = client.get(f"/servers/tools/tools/?tool=find&mode=json&args={args}")
    assert (page.status_code, "\\ud83d" in form_of(page.content.decode())["_json"][0]) == (200, True)


def test_an_empty_text_is_no_arguments(client: Client) -> None:
    client.post("/servers/tools/call/?tool=find", {"_mode": "json", "_json": ""})
    assert payloads.read(Call.objects.get().arguments) == "{}"
    assert read_arguments({"type": "object"}, SubmittedArguments(text=""))[0] == {}


def test_each_error_names_the_argument_or_the_part_of_it(client: Client) -> None:
    fields = {"_mode": "json", "_json": '{"stops": [{"day": 1}, {"day": "two"}]}'}
    page = client.post("/servers/tools/call/?tool=plan", fields)
    assert page.status_code == 422
    shown = page.content.decode()
    assert "/text: Required." in shown
    assert "/stops/1/day: " in shown
