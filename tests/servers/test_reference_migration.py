"""After an upgrade, servers keep the credentials that they used, and no user gains access to more."""

from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from servers import crypto
from servers.audit.record import Actor
from servers.enums import CredentialKind
from servers.models import CredentialUse, ReferenceGrant, Server
from servers.registration import registering
from servers.registration.resolved_values import NotLaunchable, launch_values
from servers.secret import Secret
from tests.servers.cast import header, over_http
from tests.servers.conftest import person
from tests.tools.releases import migrate_to, upgrade

pytestmark = pytest.mark.long  # no later migration changes what they prove
BEFORE = [("servers", "0013_background_job")]
VALUE = "canary-of-an-older-release"


def server(apps: Any, slug: str, **fields: Any) -> Any:
    made = apps.get_model("servers", "Server").objects.create(slug=slug, name=slug, **fields)
    made.identities.create(kind="shared")
    return made


def used(apps: Any, made: Any, variable: str) -> None:
    rows = apps.get_model("servers", "Credential").objects
    credential = rows.create(
        name=variable, kind="environment", details={"variable": variable}, sealed_at=timezone.now()
    )
    text = '{"value": "stored"}'
    place = {"table": "servers_credential", "uid": credential.uid, "field": "sealed"}
    credential.sealed, credential.key_id = crypto.seal(text, **place)
    credential.save()
    apps.get_model("servers", "CredentialUse").objects.create(credential=credential, identity=made.identities.get())


@pytest.mark.django_db(transaction=True)
def test_references_in_use_are_granted_to_their_server_alone_and_variables_in_use_are_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_TOKEN", VALUE)
    monkeypatch.setenv("MCP_OTHER", "another")
    apps = migrate_to(BEFORE)
    http = server(apps, "http", transport="streamable_http", url="https://mcp.example.com/mcp?a=${MCP_TOKEN}")
    row = http.values.create(kind="header", name="A", secret=True)
    place = {"table": "servers_servervalue", "uid": row.uid, "field": "sealed"}
    row.sealed, row.key_id = crypto.seal("Bearer ${MCP_OTHER}", **place)
    row.save()
    http.values.create(kind="environment", name="UNUSED", plain="${MCP_UNUSED}")
    stdio = server(apps, "stdio", transport="stdio", command="x", arguments=["${OWN}", "${MCP_TOKEN}", "$${MCP_NO}"])
    stdio.values.create(kind="environment", name="OWN", plain="mine")
    used(apps, stdio, "API_TOKEN")
    evil = server(apps, "evil", transport="stdio", command="x")
    used(apps, evil, "BASH_ENV")
    upgrade()
    grants = {(grant.name, grant.server.slug) for grant in ReferenceGrant.objects.select_related("server")}
    assert grants == {("MCP_TOKEN", "http"), ("MCP_OTHER", "http"), ("MCP_TOKEN", "stdio")}
    header = launch_values(Server.objects.get(slug="http")).headers["A"]
    assert isinstance(header, Secret)
    assert header.reveal() == "Bearer another"
    found = launch_values(Server.objects.get(slug="stdio"))
    assert (found.reached.arguments[:2], sorted(found.environment)) == (("mine", VALUE), ["API_TOKEN", "OWN"])
    with pytest.raises(NotLaunchable, match="cannot set BASH_ENV"):
        launch_values(Server.objects.get(slug="evil"))
    assert CredentialUse.objects.filter(credential__kind=CredentialKind.ENVIRONMENT).count() == 2

    Server.objects.filter(slug="http").update(url="https://mcp.example.com/${MCP_UNUSED}")
    with pytest.raises(NotLaunchable, match="not granted"):
        launch_values(Server.objects.get(slug="http"))


@pytest.mark.django_db
def test_what_an_upgrade_granted_ends_when_its_connection_changes(
    admin: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TOKEN", VALUE)
    data = over_http(values=[header("A", "${MCP_TOKEN}", secret=False)])
    made = registering.register(actor, admin, data)
    Server.objects.update(references_by=None)
    ReferenceGrant.objects.create(name="MCP_TOKEN", server=made)
    eve = person("eve", "view_server", "change_server")
    kept = replace(data, description="Described")
    made = registering.change(Actor.of_user(eve), eve, made, kept, made.version)
    assert launch_values(Server.objects.get()).headers
    with pytest.raises(ValidationError, match="granted by name"):
        registering.change(Actor.of_user(eve), eve, made, replace(kept, url="https://mcp.example.com/b"), made.version)
    without = replace(kept, values=[])
    registering.change(Actor.of_user(eve), eve, made, without, made.version)
    assert not ReferenceGrant.objects.exists()
