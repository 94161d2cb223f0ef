"""The page of *Add server*: what it shows of the box, which secrets it keeps to itself, what *Register server* stores."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from servers.enums import SignsInAs
from servers.models import Credential, Server, ServerAuthorization
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
TOKEN = "sk-canary000000000000000001"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PASTED = json.dumps({"mcpServers": {"Notes": {"url": "https://notes.example/mcp", "headers": HEADERS}}})


class Fields(HTMLParser):
    """What a browser would send of the page's form."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._select = self._area = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if "__prefix__" in name:
            return
        if tag == "input" and name and (given.get("type") not in ("checkbox", "radio") or "checked" in given):
            self.found[name] = given.get("value", "on" if given.get("type") == "checkbox" else "")
        elif tag == "select":
            self._select = name
        elif tag == "textarea":
            self._area = name
            self.found[name] = ""
        elif tag == "option" and self._select and (self._select not in self.found or "selected" in given):
            self.found[self._select] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._area:
            self.found[self._area] += data.removeprefix("\n").replace("\n", "\r\n")  # as forms post each line's end

    def handle_endtag(self, tag: str) -> None:
        self._area = "" if tag == "textarea" else self._area
        self._select = "" if tag == "select" else self._select


@pytest.fixture
def ada() -> Client:
    made = Client()
    made.force_login(get_user_model().objects.create_superuser("ada"))
    return made


def understood(client: Client, source: str, **more: str) -> dict[str, str]:
    """The fields after the box was read, as the page then holds them."""
    answer = client.post("/servers/add/read/", {"source": source} | more)
    assert answer.status_code == 200
    return Fields(answer.content.decode()).found | {"source": source} | more


def registered(client: Client, fields: dict[str, Any]) -> Server:
    answer = client.post("/servers/add/", fields)
    assert answer.status_code == 302, Fields(answer.content.decode()).found
    return Server.objects.get()


def test_what_is_pasted_is_registered_with_its_secret_which_the_page_never_had(ada: Client) -> None:
    answer = ada.post("/servers/add/read/", {"source": PASTED}).content.decode()
    assert "Format: mcpServers" in answer
    assert "https://notes.example/mcp" in answer
    assert "From your input" in answer
    assert TOKEN not in answer
    server = registered(ada, understood(ada, PASTED))
    assert (server.name, server.url, server.transport) == ("Notes", "https://notes.example/mcp", "auto_http")
    assert [(row.name, row.secret, row.sealed is not None) for row in server.values.all()] == [
        ("Authorization", True, True)
    ]


def test_a_correction_counts_and_a_secret_that_is_typed_replaces_the_pasted_one(ada: Client) -> None:
    fields = understood(ada, PASTED) | {"name": "My notes", "url": "https://notes.example/v2/mcp"}
    server = registered(ada, fields)
    assert (server.name, server.url) == ("My notes", "https://notes.example/v2/mcp")


def test_a_secret_of_the_box_does_not_become_an_empty_plain_value(ada: Client) -> None:
    fields = understood(ada, PASTED)
    del fields["values-0-secret"]
    answer = ada.post("/servers/add/", fields)
    assert answer.status_code == 422
    assert "Enter the value again" in answer.content.decode()
    assert registered(ada, fields | {"values-0-value": "Bearer plain"}).values.get().plain == "Bearer plain"


def test_a_huge_number_of_rows_is_not_counted_up_to(ada: Client) -> None:
    fields = understood(ada, PASTED) | {"values-TOTAL_FORMS": "9" * 18}
    assert ada.post("/servers/add/", fields).status_code == 422


def test_a_secret_is_kept_as_a_credential_where_that_is_ticked(ada: Client) -> None:
    server = registered(ada, understood(ada, PASTED) | {"values-0-vaulted": "on"})
    credential = Credential.objects.get()
    assert (credential.name, credential.kind, credential.host) == ("Notes Authorization", "bearer", "notes.example")
    assert list(server.values.all()) == []
    assert credential.uses.get().identity.server == server


def test_no_credential_is_left_behind_when_the_server_is_refused(ada: Client) -> None:
    registered(ada, understood(ada, "https://other.example/mcp") | {"slug": "taken"})
    fields = understood(ada, PASTED) | {
        "values-0-vaulted": "on",
        "environment": "development",
        "worker_label": "no label!",
    }
    assert ada.post("/servers/add/", fields).status_code == 422
    assert Credential.objects.count() == 0
    assert Server.objects.count() == 1


def test_without_script_the_first_press_shows_what_was_understood_and_the_second_registers(ada: Client) -> None:
    first = ada.post("/servers/add/", {"source": "npx -y @modelcontextprotocol/server-filesystem /srv/data"})
    assert first.status_code == 200
    assert Server.objects.count() == 0
    html = first.content.decode()
    assert "can read and change /srv/data" in html
    server = registered(ada, Fields(html).found)
    assert (server.command, server.arguments[-1], server.writable_paths) == ("npx", "/srv/data", ["/srv/data"])


def test_a_page_that_comes_back_with_an_error_has_no_secret_of_the_box(ada: Client) -> None:
    answer = ada.post("/servers/add/", understood(ada, PASTED) | {"name": ""})
    assert answer.status_code == 422
    assert TOKEN not in answer.content.decode()
    assert "Enter new secrets again" in answer.content.decode()
    again = ada.post("/servers/add/", understood(ada, "https://notes.example/mcp") | {"name": ""}).content.decode()
    assert Fields(again).found["source"] == "https://notes.example/mcp"


def test_a_template_fills_the_box_and_asks_for_its_fields(ada: Client) -> None:
    html = ada.get("/servers/add/?template=git").content.decode()
    assert "Repository on the worker" in html
    assert "modelcontextprotocol/servers/tree/main/src/git" in html
    fields = understood(ada, Fields(html).found["source"], **{"need-0": "/srv/repository"})
    server = registered(ada, fields)
    assert (server.name, server.arguments) == ("Git", ["mcp-server-git", "--repository", "/srv/repository"])
    assert server.writable_paths == ["/srv/repository"]
    assert ada.get("/servers/add/?template=unknown").status_code == 200


def test_a_template_that_asks_for_nothing_is_registered_by_one_press(ada: Client) -> None:
    page = ada.get("/servers/add/?template=everything").content.decode()
    server = registered(ada, Fields(page).found)
    assert (server.name, server.arguments) == ("Everything", ["-y", "@modelcontextprotocol/server-everything"])


def test_a_token_that_a_template_asks_for_is_stored_sealed(ada: Client) -> None:
    source = Fields(ada.get("/servers/add/?template=github").content.decode()).found["source"]
    fields = understood(ada, source, **{"need-0": TOKEN})
    assert TOKEN not in str({name: value for name, value in fields.items() if name != "need-0"})
    server = registered(ada, fields)
    assert server.values.get().sealed is not None


def test_a_server_that_is_registered_already_is_named(ada: Client) -> None:
    registered(ada, understood(ada, "https://notes.example/mcp"))
    answer = ada.post("/servers/add/read/", {"source": "https://notes.example/mcp"}).content.decode()
    assert "Already registered as" in answer
    assert 'href="/servers/notes/tools/"' in answer


def test_save_and_sign_in_registers_and_begins_the_sign_in(ada: Client) -> None:
    answer = ada.post("/servers/add/", understood(ada, "https://notes.example/mcp") | {"_sign_in": "1"})
    row = ServerAuthorization.objects.get()
    assert row.identity.server == Server.objects.get()
    assert answer.url == f"/servers/notes/sign-in/{row.uid}/"


def test_save_and_sign_in_begins_the_own_sign_in_where_everybody_needs_a_credential_of_their_own(ada: Client) -> None:
    fields = understood(ada, "https://notes.example/mcp") | {"_sign_in": "1", "signs_in_as": SignsInAs.PERSONAL}
    answer = ada.post("/servers/add/", fields)
    row = ServerAuthorization.objects.get()
    assert row.identity.user == row.user
    assert answer.url == f"/servers/notes/sign-in/{row.uid}/"
    page = ada.get("/servers/notes/settings/")
    saved = ada.post("/servers/notes/settings/", Fields(page.content.decode()).found | {"_sign_in": "1"})
    assert saved.url == "/servers/notes/identity/sign-in/"


@pytest.mark.parametrize("signs_in_as", [SignsInAs.SHARED, SignsInAs.PERSONAL])
def test_save_and_sign_in_leads_to_the_registered_server_where_the_person_may_not_sign_in(signs_in_as: str) -> None:
    client = Client()
    client.force_login(person("rita", "view_server", "add_server", "change_server"))
    fields = understood(client, "https://notes.example/mcp") | {"_sign_in": "1", "signs_in_as": signs_in_as}
    answer: Any = client.post("/servers/add/", fields, follow=True)
    assert answer.redirect_chain == [("/servers/notes/tools/", 302)]
    assert "Notes is registered." in answer.content.decode()
    assert not ServerAuthorization.objects.exists()
    page = client.get("/servers/notes/settings/")
    saved = client.post("/servers/notes/settings/", Fields(page.content.decode()).found | {"_sign_in": "1"})
    assert saved.url == "/servers/notes/settings/"
