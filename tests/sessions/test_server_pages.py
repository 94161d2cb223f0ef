"""How pages show a server's own texts, and that a page never looks newer than its data."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from servers.kit.tags import transport_name
from servers.models import Definition, Server
from sessions.catalog import search
from sessions.connections import process_page
from sessions.enums import CallState
from sessions.models import Call, LogLine, McpSession
from sessions.overview import server_page
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session
from tests.sessions.subscriptions.rows import make_subscription
from tests.sessions.test_adding_pages import Fields


def test_a_description_of_megabytes_is_cut_and_says_so() -> None:
    shown = server_page.beginning("x" * 1_000_000)
    assert len(shown) < 20_000
    assert shown.endswith("(1,000,000 characters in all)")


def test_a_tool_that_destroys_is_not_called_read_only() -> None:
    assert server_page.hints({"annotations": {"destructiveHint": True}}) == ["destructive"]
    assert server_page.hints({"annotations": {"readOnlyHint": True, "destructiveHint": True}}) == ["read-only"]
    assert server_page.hints({"annotations": ["nonsense"]}) == []


def test_the_transport_that_was_found_is_shown_only_where_the_registration_leaves_it_open() -> None:
    found = McpSession(transport="http_sse")
    assert transport_name(Server(transport="auto_http"), found) == "HTTP+SSE"
    assert transport_name(Server(transport="auto_http"), None) == "Automatic HTTP"
    assert transport_name(Server(transport="websocket"), found) == "WebSocket"


def test_a_list_that_was_cut_says_which_limit_did_it_and_where_to_raise_it() -> None:
    session = McpSession(catalog_cuts={"resource_template": ["page_limit", "Only the first 500 pages were read."]})
    (cut,) = server_page.cuts(session)
    assert (cut.kind, cut.what) == ("resource_template", "resource templates")
    assert "page limit" in cut.explanation.title
    assert cut.explanation.cause == "Only the first 500 pages were read."
    assert "Settings, Limits" in cut.explanation.remedy
    assert server_page.cuts(None) == []


@pytest.mark.django_db
@pytest.mark.parametrize("tab", ["tools", "resources", "prompts"])
def test_a_list_that_arrives_while_its_page_is_made_leaves_the_page_looking_older(
    tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the page would show an empty list and never learn that it is outdated."""
    server = make_session("orders").server
    read = search.matching

    def read_then_store(*asked: Any) -> QuerySet[Definition]:
        found = read(*asked)
        len(found)
        store_listing(server, DefinitionKind.TOOL, [{"name": "find", "inputSchema": {}}], timezone.now())
        return found

    monkeypatch.setattr(search, "matching", read_then_store)
    client = Client()
    client.force_login(person("vera", "view_server"))
    text = client.get(f"/servers/orders/{tab}/").content.decode()
    assert "data-reload-on-catalog" in text
    assert 'data-catalog=""' in text


@pytest.mark.django_db
def test_history_and_the_page_of_a_call_name_the_same_duration() -> None:
    session, now = make_session("orders"), timezone.now()
    call = make_call(session)
    Call.objects.filter(pk=call.pk).update(
        state=CallState.SUCCEEDED,
        created_at=now,
        sent_at=now + timedelta(milliseconds=200),
        finished_at=now + timedelta(milliseconds=207),
        duration_ms=7,
    )
    client = Client()
    client.force_login(person("ada", "view_server", "view_payload", "call_tool"))
    for address in ("/servers/orders/history/", f"/calls/{call.uid}/"):
        page = client.get(address).content.decode()
        assert "7 ms" in page
        assert "207 ms" not in page


@pytest.mark.django_db
def test_who_deletes_a_server_reads_how_many_active_subscriptions_end_with_it() -> None:
    session = make_session("orders")
    make_subscription(session)
    make_subscription(session, "demo://other")
    make_subscription(session, "demo://ended", active=False)
    client = Client()
    client.force_login(person("ada", "view_server", "delete_server", "change_server"))
    page = client.get("/servers/orders/delete/").content.decode()
    assert re.search(r"<dt>Subscriptions</dt>\s*<dd>\s*2\s*</dd>", page)


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["delete", "archive", "disable", "legacy"])
def test_what_was_asked_for_a_deleted_server_is_not_done_to_the_one_that_has_its_short_name(verb: str) -> None:
    found = {"transport": "streamable_http", "command": "", "url": "https://mcp.example.com/mcp"}
    asked = make_session("orders", **found).server
    client = Client()
    client.force_login(person("ada", "view_server", "delete_server", "change_server"))
    address = f"/servers/orders/{verb}/"
    fields = Fields(client.get(address).content.decode()).found | {"name": "Orders"}
    asked.delete()
    other = make_session("orders", **found).server
    answer = client.post(address, fields)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "another server now has its short name. Nothing was changed." in page
    kept = Server.objects.get()
    assert (kept.uid, kept.enabled, kept.archived_at, kept.version) == (other.uid, True, None, other.version)
    assert client.post(address, Fields(page).found | {"name": "Orders"}).status_code == 302


@pytest.mark.django_db
def test_a_server_that_was_renamed_meanwhile_is_the_one_that_is_deleted() -> None:
    asked = make_session("orders").server
    client = Client()
    client.force_login(person("ada", "view_server", "delete_server"))
    fields = Fields(client.get("/servers/orders/delete/").content.decode()).found | {"name": "Orders"}
    Server.objects.filter(pk=asked.pk).update(slug="orders-old")
    other = make_session("orders").server
    assert client.post("/servers/orders/delete/", fields).status_code == 302
    assert Server.objects.get().uid == other.uid


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["My  Server", "My\nServer"])
def test_a_server_is_deleted_by_its_name_as_the_page_shows_it(name: str) -> None:
    server = make_session("orders").server
    type(server).objects.filter(pk=server.pk).update(name=name)
    client = Client()
    client.force_login(person("ada", "view_server", "delete_server"))
    assert client.post("/servers/orders/delete/", {"name": "MyServer"}).status_code == 422
    assert client.post("/servers/orders/delete/", {"name": "My Server"}).status_code == 302
    assert not type(server).objects.filter(pk=server.pk).exists()


@pytest.mark.django_db
def test_the_overview_without_servers_offers_the_demo_server_and_names_no_danger() -> None:
    client = Client()
    client.force_login(person("ada", "view_server", "add_server", "manage_stdio"))
    page = client.get("/").content.decode()
    assert "Add demo server" in page
    assert "check the server before running it again" not in page


@pytest.mark.django_db
def test_a_line_of_stderr_names_its_source_once() -> None:
    session = make_session("orders")
    LogLine.objects.create(
        server=session.server, seq=1, at=timezone.now(), level="info", source="stderr", logger="stderr", text="ready"
    )
    client = Client()
    client.force_login(person("ada", "view_server"))
    page = client.get("/servers/orders/logs/").content.decode()
    assert "ready" in page
    assert "stderr · stderr" not in page


def test_two_limits_that_a_process_exceeds_are_two_warnings() -> None:
    found = process_page.warnings(2 * process_page.WARN_BYTES, process_page.WARN_PROCESSES)
    assert found.keys() == {"memory", "processes"}
