"""The settings of a registered server: what the page says when two people save them, or one of them replaces the server."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind
from servers.models import AuditEvent, Server, ServerDraft
from servers.registration import registering
from sessions.host.tick import waiting_drafts
from sessions.models import Call, McpSession
from tests.servers.cast import CANARY, header, over_http
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db
ADDRESS = "/servers/orders/settings/"


@pytest.fixture
def admin() -> Any:
    return person("ada", "view_server", "add_server", "change_server")


@pytest.fixture
def client(admin: Any) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.mark.parametrize("typed", [CANARY, ""])
def test_after_a_conflict_the_page_says_whether_a_new_secret_is_gone(client: Client, admin: Any, typed: str) -> None:
    server = registering.register(Actor.of_user(admin), admin, over_http(name="orders", values=[header()]))
    fields = Fields(client.get(ADDRESS).content.decode()).found
    type(server).objects.filter(pk=server.pk).update(version=server.version + 1, description="Theirs")
    answer = client.post(ADDRESS, fields | {"description": "Mine", "values-0-value": typed})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert CANARY not in page
    assert Fields(page).found["description"] == "Mine"
    assert ("still in the form below, except for new secrets." in page) is bool(typed)
    assert ("Enter new secrets again." in page) is bool(typed)


# --- another server has the short name ---------------------------------------------------------------------------------
def registered(admin: Any, **fields: Any) -> Server:
    return registering.register(Actor.of_user(admin), admin, over_http(name="orders", **fields))


def replaced(server: Server, admin: Any, **fields: Any) -> Server:
    """Deleted and registered again, by another person: its version is 1 again."""
    server.delete()
    return registered(admin, url="https://other.example/mcp", values=[header(value="theirs")], **fields)


def renamed(server: Server) -> None:
    Server.objects.filter(pk=server.pk).update(slug="orders-old", version=server.version + 1)


def test_settings_of_a_deleted_server_are_not_written_over_the_one_that_has_its_short_name(
    client: Client, admin: Any
) -> None:
    server = registered(admin, values=[header()])
    fields = Fields(client.get(ADDRESS).content.decode()).found | {"description": "Mine"}
    other = replaced(server, admin)
    for _ in range(2):
        answer = client.post(ADDRESS, fields | {"values-0-value": CANARY})
        page = answer.content.decode()
        assert answer.status_code == 409
        assert "was deleted, and another server now has its short name. Nothing was changed." in page
        assert "Enter new secrets again." in page
        assert CANARY not in page
        fields = Fields(page).found
        assert (fields["description"], fields["url"]) == ("Mine", server.url)
    stored = Server.objects.get()
    assert (stored.uid, stored.version, stored.url, stored.description) == (other.uid, 1, other.url, "")


def test_another_row_of_the_form_of_a_deleted_server_says_that_it_is_gone(client: Client, admin: Any) -> None:
    server = registered(admin)
    fields = Fields(client.get(ADDRESS).content.decode()).found
    replaced(server, admin)
    answer = client.post(ADDRESS, fields | {"_add_row": "1"})
    assert answer.status_code == 409
    assert "another server now has its short name" in answer.content.decode()


def test_what_was_typed_for_a_server_survives_its_new_short_name(client: Client, admin: Any) -> None:
    server = registered(admin)
    fields = Fields(client.get(ADDRESS).content.decode()).found | {"description": "Mine"}
    renamed(server)
    answer = client.post(ADDRESS, fields)
    assert answer.status_code == 409
    shown = Fields(answer.content.decode()).found
    assert shown["description"] == "Mine"
    assert client.post(ADDRESS, shown | {"slug": "orders-old"}).url == "/servers/orders-old/settings/"
    server.refresh_from_db()
    assert (server.slug, server.description) == ("orders-old", "Mine")


def test_a_renamed_server_whose_short_name_another_one_got_keeps_its_own_form(client: Client, admin: Any) -> None:
    server = registered(admin)
    fields = Fields(client.get(ADDRESS).content.decode()).found | {"description": "Mine"}
    renamed(server)
    other = registered(admin, slug="orders")
    taken = client.post(ADDRESS, fields)
    assert (taken.status_code, "This short name is already in use." in taken.content.decode()) == (422, True)
    conflict = client.post(ADDRESS, Fields(taken.content.decode()).found | {"slug": "orders-old"})
    assert conflict.status_code == 409
    assert client.post(ADDRESS, Fields(conflict.content.decode()).found).status_code == 302
    server.refresh_from_db()
    other.refresh_from_db()
    assert [(one.description, one.version) for one in (server, other)] == [("Mine", 3), ("", 1)]


def test_the_secrets_of_another_server_are_not_tried_with_what_was_typed_for_a_deleted_one(
    client: Client, admin: Any
) -> None:
    server = registered(admin, values=[header()])
    fields = Fields(client.get(ADDRESS).content.decode()).found
    other = replaced(server, admin)
    Server.objects.filter(pk=other.pk).update(url=server.url)
    answer = client.post("/servers/test/?server=orders", fields)
    assert (answer.status_code, answer.headers["X-Fragment"]) == (409, "true")
    assert "another server now has its short name" in answer.content.decode()
    assert not ServerDraft.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_connection_of_a_renamed_server_is_tested_from_a_page_that_was_open(client: Client, admin: Any) -> None:
    server = registered(admin)
    fields = Fields(client.get(ADDRESS).content.decode()).found
    renamed(server)
    try:
        assert client.post("/servers/test/?server=orders", fields).status_code == 302
    finally:
        writing.reset()
    assert ServerDraft.objects.count() == 1


@pytest.mark.parametrize("connected", [True, False])
def test_roots_of_a_deleted_server_are_not_set_at_the_one_that_has_its_short_name(
    client: Client, connected: bool
) -> None:
    found = {"transport": "streamable_http", "command": "", "url": "https://mcp.example.com/mcp"}
    session = make_session("orders", **found)
    type(session).objects.update(server_info={"name": "orders"})
    fields = Fields(client.get("/servers/orders/info/").content.decode()).found
    session.server.delete()
    other = make_session("orders", **found)
    if connected:
        type(other).objects.update(server_info={"name": "orders"})
    answer = client.post("/servers/orders/roots/", fields | {"roots": "/srv/mine"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "another server now has its short name. Nothing was changed." in page
    assert Fields(page).found["roots"] == "/srv/mine"
    assert Server.objects.get().roots == []


def test_roots_are_set_at_a_server_that_was_renamed_meanwhile(client: Client) -> None:
    session = make_session("orders", transport="streamable_http", command="", url="https://mcp.example.com/mcp")
    type(session).objects.update(server_info={"name": "orders"})
    fields = Fields(client.get("/servers/orders/info/").content.decode()).found
    Server.objects.update(slug="orders-old")
    answer = client.post("/servers/orders/roots/", fields | {"roots": "/srv/mine"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/servers/orders-old/info/")
    assert Server.objects.get().roots == [{"uri": "file:///srv/mine", "name": ""}]


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_said_not_to_be_tested_is_found_by_no_worker(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"name": "x", "url": "https://mcp.example.com/mcp", "values-TOTAL_FORMS": "0", "roots-TOTAL_FORMS": "0"}
    fields |= {"values-INITIAL_FORMS": "0", "roots-INITIAL_FORMS": "0"}
    fields |= Fields(client.get("/servers/add/").content.decode()).found | fields
    with monkeypatch.context() as full:
        full.setattr(writing, "QUEUE_LIMIT", 0)
        answer = client.post("/servers/test/", fields)
    assert (answer.status_code, "Too many changes are waiting" in answer.content.decode()) == (503, True)
    assert waiting_drafts([]) == []
    assert client.post("/servers/test/", fields).status_code == 302
    assert len(waiting_drafts([])) == 1
    assert AuditEvent.objects.filter(action=AuditAction.CONNECTION_TEST).count() == 1


# --- everything else that a page does by the short name --------------------------------------------------------------------
def test_a_definition_is_approved_only_at_the_server_whose_page_was_open(client: Client) -> None:
    server, address = _with_changed_tool("orders"), "/servers/orders/definitions/tool/"
    page = client.get(f"{address}?key=find").content.decode().partition("/definitions/tool/approve/")[2]
    fields = Fields("<form>" + page.partition("</form>")[0]).found
    assert fields["uid"] == str(server.uid)
    renamed(server)
    other = _with_changed_tool("orders")
    assert client.post(f"{address}approve/", fields).url == "/servers/orders-old/definitions/tool/?key=find"
    assert [_waits(one) for one in (server, other)] == [False, True]
    server.delete()
    assert client.post(f"{address}approve/", fields).status_code == 409
    assert _waits(other)


def _with_changed_tool(slug: str) -> Server:
    server: Server = make_session(slug).server
    for schema in ({"type": "object"}, {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}):
        store_listing(server, DefinitionKind.TOOL, [{"name": "find", "inputSchema": schema}], timezone.now())
    definition = server.definitions.get()
    first = definition.versions.order_by("pk")[0]
    server.definitions.update(approved_digest=first.digest)
    return server


def _waits(server: Server) -> bool:
    return bool(server.definitions.get().approved_digest)


#: address below the server's, fields
ACTS = {
    "disconnect/": {},
    "reconnect/": {},
    "refresh/": {},
    "pause/": {},
    "logs/level/": {"level": "info"},
    "enable/": {},
    "restore/": {},
    "clone/": {"name": "Copy"},
    "subscribe/": {"uri": "note://one"},
    "agents/rules/": {"effect": "deny", "kind": "tool", "pattern": "echo"},
    "agents/change/": {"otherwise": "ask", "own_approval": "never"},
    "package/check/": {},
    "prompts/get/?prompt=greet": {},
    "resources/read/": {"uri": "note://one"},
}


@pytest.mark.parametrize(("path", "given"), ACTS.items())
def test_no_button_acts_on_another_server_that_got_the_short_name(path: str, given: dict[str, str]) -> None:
    client, session = Client(), make_session("orders")
    client.force_login(get_user_model().objects.create_superuser("root"))
    gone = str(session.server.uid)
    session.server.delete()
    other = make_session("orders")
    type(other).objects.update(desired="open")
    before = _state()
    answer = client.post(_with_uid(path, gone), given | {"uid": gone})
    assert (answer.status_code, "Nothing was changed." in answer.content.decode()) == (409, True)
    assert _state() == before
    quiet = client.post(_with_uid(path, gone), given | {"uid": gone}, headers={"HX-Request": "true"})
    assert (quiet.status_code, quiet.headers["Content-Type"]) == (409, "text/plain")


def _with_uid(path: str, uid: str) -> str:
    """Forms that become arguments of a call have it in their address."""
    return f"/servers/orders/{path}{'&' if '?' in path else '?'}uid={uid}"


def _state() -> Any:
    return list(Server.objects.values()), list(McpSession.objects.values()), AuditEvent.objects.count()


@pytest.mark.parametrize("path", ["call/", "tools/form/"])
def test_the_form_of_a_tool_is_never_of_another_server_that_got_the_short_name(client: Client, path: str) -> None:
    server = _with_changed_tool("orders")
    uid = server.uid
    assert f"/servers/orders/{path}?tool=find&amp;uid={uid}" in client.get("/servers/orders/tools/").content.decode()
    server.delete()
    _with_changed_tool("orders")
    answer = client.post(f"/servers/orders/{path}?tool=find&uid={uid}", {"arg:/q": "x", "_mode": "form"})
    assert (answer.status_code, "Nothing was changed." in answer.content.decode()) == (409, True)
    assert not Call.objects.exists()


@pytest.mark.parametrize("tab", ["tools/", "info/", "logs/", "agents/", "clone/", "package/", "resources/", "prompts/"])
def test_each_form_of_a_page_names_the_server_that_it_is_of(tab: str) -> None:
    client, server = Client(), _with_changed_tool("orders")
    client.force_login(get_user_model().objects.create_superuser("root"))
    written = client.get(f"/servers/orders/{tab}").content.decode().partition("<main")[2]
    unnamed = [
        one.partition(">")[0]
        for one in written.split("<form")[1:]
        if ('action="/servers/orders/' in one or "action" not in one.partition(">")[0])
        and 'method="post"' in one.partition(">")[0]
        and f'name="uid" value="{server.uid}"' not in one.partition("</form>")[0]
        and f"uid={server.uid}" not in one.partition(">")[0]
    ]
    assert unnamed == []
