"""A form whose tool changes while it is filled in: its options and branches are posted as places in the schema."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.definitions import versions
from servers.enums import DefinitionKind
from servers.models import Server
from sessions.models import Call, SavedCall
from tests.servers.conftest import person
from tests.servers.schemas.browser_form import posted
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
CHANGED = "The tool changed while you filled in the form."


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def server() -> Server:
    made = make_session("tools").server
    offer(made, "keep", "delete")
    return made


@pytest.fixture
def carla(client: Client) -> Client:
    client.force_login(person("carla", "view_server", "call_tool"))
    return client


def offer(server: Server, *options: str) -> None:
    schema = {"type": "object", "properties": {"then": {"enum": list(options)}}, "required": ["then"]}
    versions.store_listing(server, DefinitionKind.TOOL, [{"name": "finish", "inputSchema": schema}], timezone.now())


def filled(client: Client) -> dict[str, Any]:
    """The form of the tool with its first option, as a browser posts it."""
    shown = client.get("/servers/tools/tools/?tool=finish").content.decode()
    form = shown[shown.index('<form id="tool-form"') :]
    return posted(form[: form.index("</form>")]) | {"arg:/then": ["0"]}


def test_a_form_of_the_tool_as_it_is_runs(server: Server, carla: Client) -> None:
    carla.post("/servers/tools/call/?tool=finish", filled(carla))
    assert payloads.read(Call.objects.get().arguments) == '{"then": "keep"}'


def test_an_option_chosen_before_the_tool_changed_is_not_sent_as_another_one(server: Server, carla: Client) -> None:
    form = filled(carla)
    offer(server, "delete", "keep")
    refused = carla.post("/servers/tools/call/?tool=finish", form)
    assert refused.status_code == 422
    assert CHANGED in refused.content.decode()
    saved = {"_name": "First", "_filled": "1"}
    address = "/servers/tools/saved/add/?method=tools/call&target=finish"
    assert CHANGED in carla.post(address, form | saved, headers={"Accept": "application/json"}).json()["message"]
    assert (Call.objects.count(), SavedCall.objects.count()) == (0, 0)


def test_the_form_that_is_shown_again_says_that_the_tool_changed_and_is_of_the_new_one(
    server: Server, carla: Client
) -> None:
    form = filled(carla)
    offer(server, "delete", "keep")
    again = carla.post("/servers/tools/tools/form/?tool=finish", form).content.decode()
    assert f"{CHANGED} Check the fields." in again
    assert CHANGED not in carla.post("/servers/tools/tools/form/?tool=finish", posted(again)).content.decode()


def test_arguments_as_json_and_forms_that_name_no_schema_are_of_the_tool_as_it_is(
    server: Server, carla: Client
) -> None:
    form = filled(carla)
    offer(server, "delete", "keep")
    in_json = form | {"_mode": ["json"], "_json": ['{"then": "keep"}']}
    for given in (in_json, {"_mode": ["form"], "arg:/then": ["1"]}):
        carla.post("/servers/tools/call/?tool=finish", given)
    assert [payloads.read(call.arguments) for call in Call.objects.all()] == ['{"then": "keep"}'] * 2
