"""Credentials based on a token signed by a third party: what is accepted, what the pages show, who may have one."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from servers.audit.record import Actor
from servers.credentials import kinds, vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, SignsInAs
from servers.models import Credential
from servers.registration import needed_credentials, registering, resolved_values
from servers.secret import Secret
from tests.servers.cast import over_http

ISSUER = "https://login.example.com"
WORKLOAD = {"client": "robot", "issuer": ISSUER, "token": "${MCP_WORKLOAD_TOKEN}"}
ENTERPRISE = WORKLOAD | {"provider": "https://id.example.com/token", "provider_client": "mcpadmin"}
CANARY = "canary-id-token-5e07"


def workload(**details: str) -> Parts:
    return Parts(CredentialKind.WORKLOAD, WORKLOAD | details)


def enterprise(**details: str) -> Parts:
    secrets = {"provider_secret": Secret("canary-there-31"), "secret": Secret("")}
    return Parts(CredentialKind.ENTERPRISE, ENTERPRISE | details, secrets)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        pytest.param(workload(client=""), "client", id="no-client"),
        pytest.param(workload(issuer="http://login.example.com"), "issuer", id="in-clear"),
        pytest.param(workload(scopes='read "all"'), "scopes", id="no-scope"),
        pytest.param(workload(token=""), "token", id="no-token"),
        pytest.param(workload(token="eyJhbGciOi"), "token", id="the-token-itself"),
        pytest.param(workload(token="Bearer ${MCP_TOKEN}"), "token", id="more-than-a-reference"),
        pytest.param(workload(token="$${MCP_TOKEN}"), "token", id="an-escaped-reference"),
        pytest.param(enterprise(provider="id.example.com"), "provider", id="no-address"),
        pytest.param(enterprise(provider="http://id.example.com/token"), "provider", id="provider-in-clear"),
        pytest.param(enterprise(provider_client=""), "provider_client", id="nobody-there"),
    ],
)
def test_what_could_not_be_used_is_refused_at_its_box(given: Parts, part: str) -> None:
    with pytest.raises(ValidationError) as refused:
        kinds.check(given)
    assert list(refused.value.message_dict) == [part]


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "details"), [("workload", WORKLOAD), ("enterprise", ENTERPRISE)])
def test_the_form_keeps_the_reference_and_its_page_names_each_part(
    kind: str, details: dict[str, str], admin: Any
) -> None:
    client = Client()
    client.force_login(admin)
    form = details | {"name": "Platform", "url": "https://mcp.example.com/mcp", "scopes": " read  write "}
    secrets = {"provider_secret": "canary-there-31", "secret": ""}
    answer = client.post(f"/credentials/add/?kind={kind}", form | secrets)
    assert answer.status_code == 302, answer.content.decode()
    row = Credential.objects.get()
    assert row.details == details | {"scopes": "read write"}
    page = client.get(answer.url).content.decode()
    assert "${MCP_WORKLOAD_TOKEN}" in page
    assert "<dt>Authorization server</dt>" in page
    assert "canary" not in page
    refused = client.post(f"/credentials/{row.uid}/replace/", form | secrets | {"token": "eyJhbGciOi"})
    assert refused.status_code == 422
    assert "Enter a single reference" in refused.content.decode()


@pytest.mark.django_db
def test_the_token_is_read_when_a_session_opens_and_a_missing_one_is_named(
    actor: Actor, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = registering.register(actor, admin, over_http())
    vault.attach(actor, admin, server, vault.create(actor, admin, "Platform", workload(), server.url))
    with pytest.raises(resolved_values.NotLaunchable) as missing:
        resolved_values.launch_values(server)
    assert missing.value.fault == "reference_missing"
    assert str(missing.value).startswith("Platform: The worker has no variable MCP_WORKLOAD_TOKEN")
    monkeypatch.setenv("MCP_WORKLOAD_TOKEN", CANARY)
    values = resolved_values.launch_values(server)
    assert values.account == workload()
    assert [secret.reveal() for secret in values.secrets] == [CANARY]


@pytest.mark.django_db
def test_no_ones_own_identity_speaks_with_what_the_operator_offers(actor: Actor, admin: Any) -> None:
    server = registering.register(actor, admin, over_http(signs_in_as=SignsInAs.EITHER))
    client = Client()
    client.force_login(admin)
    offered = client.get(f"/servers/{server.slug}/identity/credential/").content.decode()
    assert ("Service account" in offered, "Workload identity" in offered) == (True, False)
    with pytest.raises(ValidationError, match="shared identity only"):
        vault.create_own(actor, admin, server, workload())


@pytest.mark.django_db
def test_a_second_one_that_would_send_the_same_header_is_refused(actor: Actor, admin: Any) -> None:
    server = registering.register(actor, admin, over_http())
    vault.attach(actor, admin, server, vault.create(actor, admin, "One", workload(), server.url))
    other = vault.create(actor, admin, "Two", enterprise(), server.url)
    with pytest.raises(ValidationError, match="already sends the authorization header"):
        vault.attach(actor, admin, server, other)


@pytest.mark.django_db
def test_an_export_names_it_without_its_reference(actor: Actor, admin: Any) -> None:
    server = registering.register(actor, admin, over_http())
    vault.attach(actor, admin, server, vault.create(actor, admin, "One", workload(), server.url))
    assert [one.words for one in needed_credentials.others(needed_credentials.used_by(server))] == [
        f"Workload identity robot at {ISSUER}"
    ]
