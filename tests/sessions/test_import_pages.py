"""The pages of import and export: paste, preview, decide and result, none of which contains a secret."""

import json
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from servers import limits
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.models import AuditEvent, Server, ServerDraft
from servers.registration import registering
from servers.registration.importing import parsing
from tests.servers.cast import CANARY, header, over_http
from tests.servers.conftest import person
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db

FILE = {
    "mcpServers": {
        "orders": {"url": "https://mcp.example.com/v2", "headers": {"Authorization": f"Bearer {CANARY}"}},
        "files": {"command": "npx", "args": ["--token", CANARY], "env": {"API_TOKEN": CANARY, "LEVEL": "debug"}},
        "notes": {"url": "https://notes.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}},
        "query": {"url": f"https://query.example/mcp?api_key={CANARY}"},
        "broken": {"url": f"https://ada:{CANARY}@x.example/"},
        "worse": {"url": f"https://x.example:{CANARY}/"},
    }
}


@pytest.fixture
def admin() -> Any:
    return person("ada", "view_server", "add_server", "change_server", "manage_stdio")


@pytest.fixture
def client(admin: Any) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def stored(admin: Any) -> Server:
    return registering.register(Actor.of_user(admin), admin, over_http(name="orders", values=[header()]))


def posted(client: Client, document: Any = FILE) -> str:
    """Post a document; return the address of its preview."""
    response = client.post("/servers/import/", {"text": json.dumps(document)})
    assert response.status_code == 302, response.content.decode()
    return response.url


def test_a_pasted_file_is_previewed_before_anything_is_stored(client: Client, stored: Server) -> None:
    page = client.get(posted(client))
    text = page.content.decode()
    assert Server.objects.count() == 1
    for words in (
        "3 new, 1 with differences, 2 cannot be imported",
        "Exists with differences",
        "value required",
        "new secret",
        "encrypted",
    ):
        assert words in text
    assert CANARY not in text
    assert "?api_key=…" in text


def test_a_pin_in_the_file_is_in_the_preview(client: Client) -> None:
    package = {"ecosystem": "npm", "name": "files", "version": "1.2.3", "integrity": f"sha512-{'a' * 86}=="}
    entry = {"command": "npx", "args": ["-y", "files"], "mcpadmin": {"package": package}}
    text = client.get(posted(client, {"mcpServers": {"files": entry}})).content.decode()
    assert "The file pins its package to files 1.2.3 (hash" in text
    assert "sha512-aaaaaaaaaaaaaaaaaaa…</code>" in text


def test_an_uploaded_file_is_read_and_one_that_is_too_large_is_not(client: Client) -> None:
    good = BytesIO(json.dumps(FILE).encode())
    good.name = "mcp.json"
    assert client.post("/servers/import/", {"file": good}).status_code == 302
    for content, words in (
        (b"x" * (limits.number("import_bytes") + 1), "Limit: 1 MiB per configuration"),
        (b"\xff\xfe", "not UTF-8 text"),
    ):
        upload = BytesIO(content)
        upload.name = "mcp.json"
        response = client.post("/servers/import/", {"file": upload})
        assert (response.status_code, words in response.content.decode()) == (422, True)


def test_an_upload_is_kept_in_memory(client: Client) -> None:
    """A temporary file would contain the secrets in plain text."""
    upload = BytesIO(b"x" * 3_000_000)
    upload.name = "mcp.json"
    response = client.post("/servers/import/", {"file": upload})
    assert list(response.wsgi_request.FILES) == []
    assert "at most 1 MiB" in response.content.decode()


def test_a_text_with_a_mistake_is_not_sent_back(client: Client) -> None:
    response = client.post("/servers/import/", {"text": f'{{"mcpServers": {{"a": "{CANARY}"'})
    assert response.status_code == 422
    assert "line 1, column" in response.content.decode()
    assert CANARY not in response.content.decode()
    assert not ServerDraft.objects.exists()


def test_what_was_decided_is_done_and_told(client: Client, stored: Server) -> None:
    address = posted(client)
    decided = {
        "version": "1",
        **{"choice-0": "overwrite", "version-0": "1"},
        **{"choice-1": "rename", "name-1": "local files"},
        **{"choice-2": "create", "value-2-0": CANARY},
        **{"choice-3": "skip", "choice-4": "create"},
    }
    response = client.post(address, decided)
    assert response.status_code == 302
    text = client.get(address).content.decode()
    assert sorted(Server.objects.values_list("name", flat=True)) == ["local files", "notes", "orders"]
    for words in ("Created", "Changed", "Skipped", "Not imported", "Import result", "Not imported yet"):
        assert words in text
    assert CANARY not in text
    stored.refresh_from_db()
    assert stored.url == "https://mcp.example.com/v2"


def test_a_preview_overwrites_only_the_server_that_it_showed(client: Client, admin: Any, stored: Server) -> None:
    address = posted(client, {"mcpServers": {"orders": {"url": "https://mcp.example.com/v2"}}})
    fields = Fields(client.get(address).content.decode()).found | {"choice-0": "overwrite"}
    stored.delete()
    other = registering.register(Actor.of_user(admin), admin, over_http(name="orders"))
    page = client.post(address, fields, follow=True).content.decode()
    assert "Check the preview again." in page
    other.refresh_from_db()
    assert (other.version, other.url) == (1, "https://mcp.example.com/mcp")
    client.post(address, Fields(page).found | {"choice-0": "overwrite"})
    other.refresh_from_db()
    assert other.url == "https://mcp.example.com/v2"


def test_the_preview_says_that_a_server_stays_archived(client: Client, admin: Any, stored: Server) -> None:
    registering.archive(Actor.of_user(admin), admin, stored)
    text = client.get(posted(client)).content.decode()
    assert text.count("The stored server is archived. The import does not restore it.") == 1


def test_a_second_click_does_nothing(client: Client) -> None:
    address = posted(client, {"mcpServers": {"a": {"url": "https://a.example/"}}})
    for _ in range(2):
        client.post(address, {"version": "1", "choice-0": "create"})
    assert Server.objects.count() == 1
    assert "View servers" in client.get(address).content.decode()


@pytest.mark.parametrize("version", ["", "²", "9" * 5000, "9" * 25])
def test_a_version_that_is_no_number_applies_nothing(client: Client, version: str) -> None:
    address = posted(client, {"mcpServers": {"a": {"url": "https://a.example/"}}})
    assert client.post(address, {"version": version, "choice-0": "create"}).status_code == 302
    assert not Server.objects.exists()


def test_a_choice_that_was_not_offered_is_the_harmless_one(client: Client, stored: Server) -> None:
    address = posted(client)
    client.post(address, {"version": "1", "choice-0": "create", "choice-1": "overwrite", "choice-2": "<b>"})
    assert Server.objects.count() == 1


def test_a_server_that_someone_else_registered_meanwhile_is_asked_about_again(client: Client, admin: Any) -> None:
    address = posted(client, {"mcpServers": {name: {"url": f"https://{name}.example/"} for name in ("foo", "bar")}})
    assert client.get(address).status_code == 200
    theirs = registering.register(Actor.of_user(admin), admin, over_http(name="foo"))
    client.post(address, {"version": "1", "choice-0": "create", "choice-1": "create"})
    text = client.get(address).content.decode()
    assert "The stored servers have changed since the preview. Choose again." in text
    assert "Exists with differences" in text
    assert text.count("Created") == 1
    client.post(address, {"version": "2", "choice-0": "overwrite", "version-0": str(theirs.version)})
    text = client.get(address).content.decode()
    assert (text.count("Created"), text.count("Changed"), "View servers" in text) == (1, 1, True)
    theirs.refresh_from_db()
    assert theirs.url == "https://foo.example/"


def test_a_preview_is_its_authors_alone(client: Client) -> None:
    address = posted(client)
    other = Client()
    other.force_login(person("eve", "view_server", "add_server"))
    assert other.get(address).status_code == 404
    assert other.post(address, {"version": "1"}).status_code == 404
    assert client.get(reverse("servers:test_progress", args=[address.split("/")[-2]])).status_code == 404


@pytest.mark.parametrize("address", ["/servers/import/", "/servers/import/6f0e39c2-5c8e-4a52-9e6c-6d3a4d2d3a10/"])
def test_who_may_not_add_servers_may_not_import(address: str) -> None:
    guest = Client()
    guest.force_login(person("vera", "view_server"))
    assert guest.get(address).status_code == 403
    assert guest.post(address, {"text": "{}"}).status_code == 403


def test_a_hostile_name_is_shown_and_not_run(client: Client) -> None:
    name = "<script>x</script>\u202e"
    text = client.get(posted(client, {"mcpServers": {name: {"command": "<img src=x>"}}})).content.decode()
    assert "<script>x" not in text
    assert "<img src=x>" not in text


def test_an_export_is_a_file_without_secrets(client: Client, stored: Server) -> None:
    page = client.get("/servers/export/")
    assert page.status_code == 200
    response = client.post("/servers/export/", {"form": "vscode", "own": "on", "servers": ["orders"]})
    assert response["Content-Disposition"] == 'attachment; filename="mcp.json"'
    document = json.loads(response.content)
    assert document["servers"]["orders"]["headers"] == {"Authorization": "${input:orders-authorization}"}
    assert CANARY not in response.content.decode()
    empty = client.post("/servers/export/", {})
    assert empty.status_code == 422
    for field in ("form", "servers"):  # the links of the summary lead to the groups
        assert empty.content.decode().count(f'href="#id_{field}"') == 1
        assert empty.content.decode().count(f'id="id_{field}"') == 1
    assert AuditEvent.objects.get(action=AuditAction.SERVER_EXPORT).actor_name == "ada"


def test_a_value_that_is_needed_is_asked_for_in_the_settings(client: Client) -> None:
    raw = {"mcpServers": {"notes": FILE["mcpServers"]["notes"]}}
    client.post(posted(client, raw), {"version": "1", "choice-0": "create"})
    assert "Value needed" in client.get("/servers/notes/settings/").content.decode()


def test_the_result_leads_to_settings_only_who_may_open_them(client: Client) -> None:
    otto = Client()
    otto.force_login(person("otto", "view_server", "add_server"))
    raw = {"mcpServers": {"plain": {"url": "https://plain.example/mcp"}}}
    shown = otto.post(posted(otto, raw), {"version": "1", "choice-0": "create"}, follow=True).content.decode()
    assert "Created" in shown
    assert 'href="/servers/plain/tools/"' in shown
    assert "/settings/" not in shown
    more = client.post(posted(client, raw), {"version": "1", "choice-0": "rename", "name-0": "More"}, follow=True)
    assert 'href="/servers/more/settings/"' in more.content.decode()


def test_a_missing_value_stops_the_import_before_it_begins_and_keeps_what_was_entered(client: Client) -> None:
    asks = {"command": "npx", "args": ["${input:region}", "${input:zone}"], "env": {"API_TOKEN": "${input:token}"}}
    address = posted(client, {"mcpServers": {"asks": asks, "notes": {"url": "https://notes.example/mcp"}}})
    entered = {"version": "1", "choice-0": "rename", "name-0": "Asked", "value-0-0": "eu", "value-0-2": CANARY}
    answer = client.post(address, entered | {"choice-1": "skip"})
    page = answer.content.decode()
    assert (answer.status_code, Server.objects.count()) == (422, 0)
    assert (
        "The import has not started. Enter the values that are marked below, or skip their servers. Secrets are" in page
    )
    assert page.count("Enter the value.") == 1
    assert CANARY not in page
    fields = Fields(page).found
    assert [fields[f"value-0-{number}"] for number in range(3)] == ["eu", "", ""]
    assert (fields["choice-0"], fields["name-0"], fields["choice-1"]) == ("rename", "Asked", "skip")
    assert client.post(address, fields | {"value-0-1": "b", "value-0-2": CANARY}).status_code == 302
    assert Server.objects.get().arguments == ["eu", "b"]


@pytest.mark.usefixtures("tamperable")
def test_the_next_import_waits_when_many_addresses_were_just_tried(client: Client, settings: Any) -> None:
    settings.TRIES_PER_MINUTE = 3
    servers = {f"s{number}": {"url": f"https://mcp.example.com/{number}"} for number in range(5)}
    decided = {"version": "1", **{f"choice-{number}": "create" for number in range(5)}}
    client.post(posted(client, {"mcpServers": servers}), decided)
    assert Server.objects.count() == 5, "an import is not cut in the middle"
    more = posted(client, {"mcpServers": {"more": {"url": "https://mcp.example.com/more"}}})
    answer = client.post(more, {"version": "1", "choice-0": "rename", "name-0": "One more"})
    assert (answer.status_code, answer.headers["Retry-After"].isdigit()) == (429, True)
    page = answer.content.decode()
    assert "Too many addresses were tried in the last minute" in page
    fields = Fields(page).found
    assert (fields["choice-0"], fields["name-0"], fields["version"]) == ("rename", "One more", "1")
    assert Server.objects.count() == 5
    AuditEvent.objects.update(at=timezone.now() - timedelta(minutes=2))
    client.post(more, {"version": "1", "choice-0": "create"})
    assert Server.objects.count() == 6


def test_a_preview_that_cannot_be_read_at_this_moment_says_so_and_is_kept(client: Client, settings: Any) -> None:
    """While others are being read, as many as may be at once: it could be read before."""
    made = client.post("/servers/import/", {"text": "mcpServers:\n  notes:\n    url: https://notes.example/mcp\n"})
    limit, settings.IMPORT_SECONDS = settings.IMPORT_SECONDS, 0.01
    for _ in range(parsing.CHILDREN):
        assert parsing._room.acquire(timeout=10)
    try:
        for answer in (client.get(made.url, follow=True), client.post(made.url, {"version": "0"}, follow=True)):
            assert answer.status_code == 200
            assert f"The preview is kept for an hour: open {made.url} again." in answer.content.decode()
    finally:
        parsing._room.release(parsing.CHILDREN)
    settings.IMPORT_SECONDS = limit
    assert "https://notes.example/mcp" in client.get(made.url).content.decode()
