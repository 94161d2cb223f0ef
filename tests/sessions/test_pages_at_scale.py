"""Every page with 1,000 servers, of which one has 600 tools: its statements and its size. The time is measured by
bench_audit, which has a million calls too."""

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.models import AgentToken, Server
from sessions.approvals import reading as approvals
from tests.benchmarks import audit_rows
from tests.tools.url_routes import written_routes

pytestmark = pytest.mark.django_db
STATEMENTS, BYTES = 30, 200_000


@pytest.fixture
def admin() -> Any:
    return get_user_model()._default_manager.create_superuser("ada", password="x")


@pytest.fixture
def client(admin: Any) -> Client:
    audit_rows.make_servers(1_000)
    found = Client()
    found.force_login(admin)
    return found


def test_with_1000_servers_and_600_tools_each_page_has_at_most_30_statements_and_200_kb(client: Client) -> None:
    slug, tool = audit_rows.many_tools()
    addresses = [route.written.replace("<slug:slug>", slug) for route in written_routes()]
    pages, over = 0, []
    for address in [*addresses, f"/servers/{slug}/tools/?tool={tool}"]:
        if "<" in address:
            continue
        with CaptureQueriesContext(connection) as statements:
            answer = client.get(address)
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/html"):
            continue
        pages += 1
        if len(statements) > STATEMENTS or len(answer.content) > BYTES:
            over.append(f"{address}: {len(statements)} statements, {len(answer.content)} bytes")
    assert over == []
    assert pages > 60


def test_the_last_of_1000_servers_can_be_chosen_for_a_token(client: Client) -> None:
    last = Server.objects.order_by("name", "pk").last()
    assert last is not None
    page = client.get("/agents/tokens/new/").content.decode()
    assert len(re.findall(r'<option value="[0-9a-f-]{36}"', page)) == 1_000
    posted = {"name": "Laptop", "days": "7", "scopes": ["mcp:list"], "servers": [str(last.uid)]}
    assert client.post("/agents/tokens/new/", posted).status_code == 200
    assert list(AgentToken.objects.get().servers.all()) == [last]


def test_a_token_for_a_server_that_is_not_offered_is_refused(client: Client) -> None:
    archived = Server.objects.get(slug="server-7")
    Server.objects.filter(pk=archived.pk).update(archived_at=timezone.now())
    for wrong in (str(archived.uid), "", "x", "00000000-0000-0000-0000-000000000000", "\0", "9" * 30):
        posted = {"name": "A", "days": "7", "scopes": ["mcp:list"], "servers": [wrong]}
        assert client.post("/agents/tokens/new/", posted).status_code == 422, wrong
    assert not AgentToken.objects.exists()


def test_names_of_servers_are_text_in_each_choice(client: Client) -> None:
    name = "</option><script>a</script>\u202e&"
    Server.objects.filter(slug="server-7").update(name=name)
    for address in ("/agents/tokens/new/", "/agents/bundles/add/", "/privacy/rules/add/", "/servers/export/"):
        page = client.get(address).content.decode()
        assert "&lt;/option&gt;&lt;script&gt;a&lt;/script&gt;" in page, address
        assert "<script>a" not in page, address
        assert "\u202e" not in page, address


def test_what_waits_for_approval_is_read_without_a_search_through_all_calls(admin: Any) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the plan is SQLite's")
    for rows in (approvals.seen(admin).order_by("-id"), approvals.seen(admin).filter(state="open").order_by("id")):
        steps = [step for step in rows.explain().splitlines() if "mcp_sessions_call " in step]
        assert steps
        assert all("USING INTEGER PRIMARY KEY" in step for step in steps), steps
