"""What pages take from a server's own words, and how old they take themselves to be."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.domain.catalog import store_listing
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from servers.templatetags.kit import transport_name
from sessions.domain import listed, server_pages
from sessions.domain.listed import Listed
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_session


def test_a_description_of_megabytes_is_cut_and_says_so() -> None:
    shown = server_pages.shown("x" * 1_000_000)
    assert len(shown) < 20_000
    assert shown.endswith("(1,000,000 characters in all)")


def test_a_tool_that_destroys_is_not_called_read_only() -> None:
    assert server_pages.hints({"annotations": {"destructiveHint": True}}) == ["destructive"]
    assert server_pages.hints({"annotations": {"readOnlyHint": True, "destructiveHint": True}}) == ["read-only"]
    assert server_pages.hints({"annotations": ["nonsense"]}) == []


def test_the_transport_that_was_found_is_shown_only_where_the_registration_leaves_it_open() -> None:
    found = McpSession(transport="http_sse")
    assert transport_name(Server(transport="auto_http"), found) == "HTTP+SSE"
    assert transport_name(Server(transport="auto_http"), None) == "Automatic HTTP"
    assert transport_name(Server(transport="websocket"), found) == "WebSocket"


def test_a_list_that_was_cut_says_which_limit_did_it_and_where_to_raise_it() -> None:
    session = McpSession(catalog_cuts={"resource_template": ["page_limit", "Only the first 500 pages were read."]})
    (cut,) = server_pages.cuts(session)
    assert (cut.kind, cut.what) == ("resource_template", "resource templates")
    assert "page limit" in cut.explanation.title
    assert cut.explanation.cause == "Only the first 500 pages were read."
    assert "Settings, Limits" in cut.explanation.remedy
    assert server_pages.cuts(None) == []


@pytest.mark.django_db
@pytest.mark.parametrize("tab", ["tools", "resources", "prompts"])
def test_a_list_that_arrives_while_its_page_is_made_leaves_the_page_looking_older(
    tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round nothing would tell the page that its list is empty no more."""
    server = make_session("orders").server
    read = listed.offered

    def read_then_store(*asked: Any) -> Listed[Definition]:
        found = read(*asked)
        store_listing(server, DefinitionKind.TOOL, [{"name": "find", "inputSchema": {}}], timezone.now())
        return found

    monkeypatch.setattr(listed, "offered", read_then_store)
    client = Client()
    client.force_login(person("vera", "view_server"))
    text = client.get(f"/servers/orders/{tab}/").content.decode()
    assert "data-reload-on-catalog" in text
    assert 'data-catalog=""' in text
