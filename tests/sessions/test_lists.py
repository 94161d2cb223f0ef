"""The lists of tools, prompts and resources say when they are cut, and a search by name finds the rest."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from servers.models import Server
from sessions.catalog import search as listed
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
KEYS = {"tool": "name", "prompt": "name", "resource": "uri"}
NOUNS = [*KEYS]
LINK = re.compile(r'<a href="[^"?]*\?(?:tool|prompt|uri)=([^"&]*)')


@pytest.fixture
def server() -> Server:
    return make_session("many").server


@pytest.fixture
def client() -> Client:
    found = Client()
    found.force_login(person("vera", "view_server"))
    return found


@pytest.fixture(autouse=True)
def five_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "ENTRIES", 5)


def offer(server: Server, noun: str, *keys: str, **fields: Any) -> None:
    items = [{KEYS[noun]: key, "inputSchema": {"type": "object"}, **fields} for key in keys]
    store_listing(server, DefinitionKind(noun), items, timezone.now())


def page(client: Client, noun: str, **query: str) -> str:
    answer = client.get(f"/servers/many/{noun}s/", query)
    assert answer.status_code == 200
    return answer.content.decode()


def names(text: str) -> list[str]:
    """The names in the list pane."""
    return LINK.findall(text[text.index('-list">') : text.index("data-filter-empty")])


@pytest.mark.parametrize("noun", NOUNS)
def test_a_list_that_is_too_long_says_so_and_finds_the_rest_by_name(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, *(f"one-{number}" for number in range(8)))
    whole = page(client, noun)
    assert names(whole)[:5] == [f"one-{number}" for number in range(5)]
    assert "The first 5 of 8 are listed" in whole
    found = page(client, noun, find="ONE-7")
    assert names(found)[0] == "one-7"
    assert "The first" not in found
    assert 'value="ONE-7"' in found


@pytest.mark.parametrize("noun", NOUNS)
def test_what_is_listed_whole_says_nothing_of_a_cut(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, "a", "b")
    assert "are listed</b>" not in page(client, noun)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_search_without_a_hit_offers_the_way_back_and_keeps_the_page(
    client: Client, server: Server, noun: str
) -> None:
    offer(server, noun, "a", "b")
    text = page(client, noun, find="<nothing>")
    assert "<nothing>" not in text
    assert "data-reload-on-catalog" not in text
    assert re.search(r"0</b> of 2 match", text)
    assert "Show all" in text


def test_a_search_lives_on_in_the_addresses_of_the_list_and_chooses_its_first_hit(
    client: Client, server: Server
) -> None:
    offer(server, "tool", "alpha", "beta & co", "gamma", title="Of the tools")
    text = page(client, "tool", find="beta &")
    assert "?tool=beta%20%26%20co&amp;find=beta%20%26" in text
    assert 'data-tool="beta &amp; co"' in text


@pytest.mark.parametrize("noun", NOUNS)
def test_what_was_removed_is_reached_from_the_list_and_from_a_phone(client: Client, server: Server, noun: str) -> None:
    offer(server, noun, "stays", "goes")
    offer(server, noun, "stays")
    text = page(client, noun)
    phone = text[text.index("only-mb") :]
    address = f"/servers/many/definitions/{noun}/?key=goes"
    assert address in text[: text.index("only-mb")]
    assert address in phone
    offer(server, noun)
    assert address in page(client, noun), "nothing is offered any more"


@pytest.mark.parametrize("noun", ["tool", "prompt"])
def test_an_address_with_a_name_that_is_not_listed_shows_the_list_and_says_so(
    client: Client, server: Server, noun: str
) -> None:
    address = f"/servers/many/{noun}s/?{noun}=gone"
    before = client.get(address)
    assert (before.status_code, "data-reload-on-catalog" in before.content.decode()) == (200, True)
    offer(server, noun, "stays")
    response = client.get(address)
    text = response.content.decode()
    assert response.status_code == 404
    assert f"No {noun} with this name" in text
    assert "does not list “gone” now" in text
    assert f"?{noun}=stays" in text
    assert "Run tool" not in text
