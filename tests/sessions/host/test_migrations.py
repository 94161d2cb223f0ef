"""Rows of an older release survive the migrations."""

from typing import Any

import pytest
from django.utils import timezone

from servers.models import Server
from sessions.host.launch import load
from sessions.mcp.transports.registry import HttpSpec
from sessions.models import McpSession
from tests.tools.releases import migrate_to, upgrade

pytestmark = pytest.mark.long  # no later migration changes what they prove
BEFORE = [("servers", "0001_initial"), ("mcp_sessions", "0001_initial")]


@pytest.fixture
def old_row(transactional_db: None) -> Any:
    """The key of a session stored by the first release and migrated to the newest."""
    apps = migrate_to(BEFORE)
    url = "https://mcp.example.com/mcp"
    server = apps.get_model("servers", "Server").objects.create(
        slug="orders", name="Orders", transport="streamable_http", url=url, tags=["a"]
    )
    identity = apps.get_model("servers", "Identity").objects.create(server=server)
    session = apps.get_model("mcp_sessions", "McpSession").objects.create(
        server=server, identity=identity, desired="open", state_since=timezone.now(), revision="2025-11-25"
    )
    upgrade()
    return session.pk


def test_a_server_of_the_first_release_is_unchanged_and_opens_as_it_did(old_row: Any) -> None:
    server = Server.objects.get()
    assert (server.transport, server.url, server.tags) == ("streamable_http", "https://mcp.example.com/mcp", ["a"])
    assert (server.roots, server.limits) == ([], {})
    launch = load(old_row)
    assert isinstance(launch.spec, HttpSpec)
    assert (launch.spec.kind, launch.remembered, launch.roots) == ("streamable_http", None, ())
    assert McpSession.objects.get(pk=old_row).catalog_cuts == {}
