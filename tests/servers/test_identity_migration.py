"""Data of an older release migrates to the shared identity."""

from typing import Any

import pytest
from django.utils import timezone

from servers.enums import IdentityKind, SignsInAs
from servers.models import Credential, Definition, Server
from sessions.models import Call, LogLine
from tests.tools.releases import migrate_to, upgrade

pytestmark = pytest.mark.long  # no later migration changes what they prove
BEFORE = [("servers", "0004_vault"), ("mcp_sessions", "0003_live_sessions")]


def store(apps: Any) -> None:
    """A server with a shared identity and one without any. Each lists a tool of the same name and has a log line."""
    now = timezone.now()
    for slug in ("with", "without"):
        server = apps.get_model("servers", "Server").objects.create(slug=slug, name=slug, transport="stdio")
        if slug == "with":
            apps.get_model("servers", "Identity").objects.create(server=server)
        moments = {"first_seen_at": now, "changed_at": now}
        apps.get_model("servers", "Definition").objects.create(
            server=server, kind="tool", key="add", position=0, body="{}", digest="", **moments
        )
        apps.get_model("servers", "Definition").objects.create(
            server=server, kind="resource", key="a://b", position=1, body='{"name": "B\\u0000"}', digest="", **moments
        )
        apps.get_model("mcp_sessions", "LogLine").objects.create(server=server, seq=1, at=now, source="host", text="x")
    apps.get_model("servers", "Credential").objects.create(name="Token", kind="bearer", sealed_at=now)


def moved() -> None:
    store(migrate_to(BEFORE))
    upgrade()
    assert list(Definition.objects.filter(kind="resource").values_list("title", flat=True)) == ["B\ufffd"] * 2
    rows = Definition.objects.filter(kind="tool").select_related("identity")
    assert sorted((row.server.slug, row.identity.kind, row.identity.server_id) for row in rows) == [
        (server.slug, IdentityKind.SHARED, server.pk) for server in Server.objects.order_by("slug")
    ]
    assert set(Server.objects.values_list("signs_in_as", flat=True)) == {SignsInAs.SHARED}
    assert list(LogLine.objects.values_list("identity", "seq")) == [(None, 1)] * 2
    assert Credential.objects.get().owner is None
    assert not Call.objects.filter(personal=True).exists()


@pytest.mark.django_db(transaction=True)
def test_definitions_of_an_older_release_are_the_shared_identitys() -> None:
    moved()


@pytest.mark.long
def test_so_they_are_on_postgresql(on_postgres: None, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        moved()
