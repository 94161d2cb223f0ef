"""What the palette finds: only what this person may see, and only actions that they may do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.definitions import versions
from servers.enums import DefinitionKind
from sessions.models import McpSession, SavedCall
from tests.servers.conftest import admin, person  # noqa: F401  fixtures
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def session() -> McpSession:
    made = make_session("orders")
    versions.store_listing(made.server, DefinitionKind.TOOL, TOOLS, timezone.now())
    versions.store_listing(made.server, DefinitionKind.RESOURCE, [{"uri": "demo://stock", "name": "s"}], timezone.now())
    versions.store_listing(made.server, DefinitionKind.PROMPT, [{"name": "restock"}], timezone.now())
    return made


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:  # noqa: F811  the fixture
    client.force_login(admin)
    return client


def found(client: Client, words: str, **more: str) -> list[tuple[str, str, str]]:
    results = json.loads(client.get("/palette/", {"q": words, **more}).content)["results"]
    return [(one["kind"], one["label"], one["url"]) for one in results]


def kinds(client: Client, words: str) -> set[str]:
    return {kind for kind, _, _ in found(client, words)}


def test_tools_resources_and_prompts_lead_to_their_page(ada: Client, session: McpSession) -> None:
    assert ("Tool", "echo", "/servers/orders/tools/?tool=echo") in found(ada, "echo")
    assert found(ada, "stock") == [
        ("Resource", "demo://stock", "/servers/orders/resources/?uri=demo%3A%2F%2Fstock"),
        ("Prompt", "restock", "/servers/orders/prompts/?prompt=restock"),
    ]


def test_words_of_any_script_are_found_in_any_case(ada: Client, session: McpSession) -> None:
    tools = [*TOOLS, {"name": "Ändern", "inputSchema": {"type": "object"}}]
    versions.store_listing(session.server, DefinitionKind.TOOL, tools, timezone.now())
    type(session.server).objects.update(name="Заказы")
    assert {label for _, label, _ in found(ada, "änd")} == {"Ändern"}
    assert "Server" in kinds(ada, "заказы")


def test_a_call_is_found_by_its_number_by_those_who_may_see_it(ada: Client, session: McpSession) -> None:
    call = make_call(session, "echo", text="hello")
    for words in (str(call.pk), f"#{call.pk}"):
        assert ("Call", f"#{call.pk} echo", f"/calls/{call.uid}/") in found(ada, words)
    blind = Client()
    blind.force_login(person("stan", "call_tool"))
    assert found(blind, f"#{call.pk}") == []
    assert found(ada, "#99999999999999999999999") == []


def test_actions_are_those_that_this_person_may_do(ada: Client, session: McpSession) -> None:
    assert ("Action", "Add server", "/servers/add/") in found(ada, "add")
    assert ("Action", "Reconnect Orders", "/servers/orders/reconnect/") in found(ada, "reconnect ord")
    other = make_session("stock")
    labels = [label for kind, label, _ in found(ada, "reconn", server=other.server.slug) if kind == "Action"]
    assert labels == ["Reconnect Stock", "Reconnect Orders"]
    vera = Client()
    vera.force_login(person("vera", "view_server"))
    assert "Action" not in kinds(vera, "reconnect") | kinds(vera, "add")


def test_a_server_that_got_the_short_name_is_not_reconnected_in_place_of_the_one_that_was_found(
    ada: Client, session: McpSession
) -> None:
    results = ada.get("/palette/", {"q": "reconnect ord"}).json()["results"]
    action = next(one for one in results if one["kind"] == "Action")
    session.server.delete()
    make_session("orders")
    refused = ada.post(action["url"], {"uid": action["uid"]})
    assert refused.status_code == 409


def test_saved_calls_run_and_private_ones_are_their_owners_alone(ada: Client, session: McpSession) -> None:
    given = {"_name": "Daily check", "_mode": "json", "_json": "{}", "_filled": "1"}
    ada.post("/servers/orders/saved/add/?method=tools/call&target=echo", given)
    saved = SavedCall.objects.get()
    url = f"/saved-calls/{saved.uid}/run/"
    assert ("Action", "Run Daily check", url) in found(ada, "run daily")
    assert ("Action", "Run Daily check", url) in found(ada, "check")
    carla = Client()
    carla.force_login(person("carla", "view_server", "call_tool"))
    assert "Action" not in kinds(carla, "check")


def test_only_those_who_manage_people_find_them(ada: Client) -> None:
    olga = person("olga", "view_server")
    assert ("Person", "olga", f"/users/{olga.pk}/") in found(ada, "olg")
    other = Client()
    other.force_login(olga)
    assert found(other, "olg") == []


def test_characters_that_hide_text_are_marked_in_what_is_found(ada: Client) -> None:
    person("olga", first_name="Ol\u202ega")
    (found,) = ada.get("/palette/?q=olga").json()["results"]
    assert found["hint"] == "Ol[U+202E]ga"
