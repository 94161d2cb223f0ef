"""An export names grants, certificates and service accounts as needed, and its import lists them."""

import json
from typing import Any

import pytest

from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.models import Credential, CredentialUse, Server
from servers.registration import registering
from servers.registration.exporting import Form, export
from servers.registration.importing.applying import Choice, Decision, apply
from servers.registration.importing.document import read
from servers.registration.importing.entries import parse
from servers.registration.importing.planning import plan
from servers.registration.importing.preview import offer
from servers.registration.needed_credentials import Needed
from servers.secret import Secret, variants
from tests.servers.cast import CANARY, over_http
from tests.servers.credentials.test_vault import key_pair

pytestmark = pytest.mark.django_db
ISSUER = "https://login.example.com"
ACCOUNT = "Service account robot at https://login.example.com"


def with_account(actor: Actor, admin: Any) -> Server:
    server = registering.register(actor, admin, over_http(name="Account"))
    parts = Parts(
        CredentialKind.SERVICE_ACCOUNT,
        {"client": "robot", "issuer": ISSUER},
        {"secret": Secret(CANARY), "key": Secret("")},
    )
    vault.attach(actor, admin, server, vault.create(actor, admin, "Robot", parts, server.url))
    return server


def with_certificate(actor: Actor, admin: Any) -> Server:
    server = registering.register(actor, admin, over_http(name="Certificate"))
    certificate, key = key_pair()
    secrets = {"certificate": Secret(certificate), "key": Secret(key), "ca": Secret("")}
    made = vault.create(actor, admin, "mTLS", Parts(CredentialKind.CERTIFICATE, {}, secrets), server.url)
    vault.attach(actor, admin, server, made)
    return server


def with_sign_in(actor: Actor, admin: Any) -> Server:
    """A grant as a sign-in creates it."""
    server = registering.register(actor, admin, over_http(name="Grant"))
    place = {"scheme": "https", "host": "mcp.example.com", "port": 443, "sealed_at": server.created_at}
    details = {"scopes": "read write", "client": "registered-here-only"}
    grant: Any = Credential.objects.create(
        name="Grant sign-in", kind=CredentialKind.OAUTH, issuer=ISSUER, details=details, **place
    )
    CredentialUse.objects.create(credential=grant, identity=server.identities.get())
    return server


def everything(actor: Actor, admin: Any) -> list[Server]:
    return [make(actor, admin) for make in (with_account, with_certificate, with_sign_in)]


@pytest.mark.parametrize("form", list(Form), ids=str)
def test_an_export_names_what_is_needed_and_its_import_lists_it(form: Form, actor: Actor, admin: Any) -> None:
    everything(actor, admin)
    text = export(Server.objects.all(), form)
    assert [variant for variant in variants(CANARY) if variant in text] == []
    assert "registered-here-only" not in text
    Server.objects.all().delete()
    document = read(text)
    proposals = plan(admin, document)
    shown = [[(line.name, line.text) for line in offer(proposal, []).lines] for proposal in proposals]
    signed = f"OAuth sign-in at {ISSUER}, scopes read write"
    assert shown == [[(words, "required")] for words in (ACCOUNT, "Client certificate or private CA", signed)]
    outcomes = apply(actor, admin, document, proposals, dict.fromkeys(range(3), Decision(Choice.CREATE)))
    assert [outcome.needed for outcome in outcomes] == [[ACCOUNT], ["Client certificate or private CA"], [signed]]
    assert [server.enabled for server in Server.objects.order_by("name")] == [False, False, True]


def test_a_server_that_has_the_credential_already_needs_none(actor: Actor, admin: Any) -> None:
    server = with_account(actor, admin)
    text = export([server]).replace('"https://mcp.example.com/mcp"', '"https://mcp.example.com/mcp/v2"')
    document = read(text)
    proposals = plan(admin, document)
    (outcome,) = apply(actor, admin, document, proposals, {0: Decision(Choice.OVERWRITE, version=1)})
    assert (outcome.result, outcome.needed) == ("changed", [])


def test_an_export_for_others_does_not_speak_of_them(actor: Actor, admin: Any) -> None:
    assert ISSUER not in export(everything(actor, admin), own=False)


@pytest.mark.parametrize(
    "given",
    [
        "all",
        [{"kind": "bearer"}],
        [{"kind": "oauth", "token": "x"}],
        [{"kind": "oauth", "issuer": 7}],
        [{"kind": "oauth", "issuer": "x" * 301}],
        [[]],
        [{"kind": "oauth"}] * 21,
    ],
    ids=["text", "kind", "member", "number", "long", "list", "many"],
)
def test_what_mcpadmin_would_not_write_is_refused(given: Any) -> None:
    document = read(json.dumps({"mcpServers": {"x": {"url": "https://x.example", "mcpadmin": {"credentials": given}}}}))
    entry = parse(document, *document.servers[0])
    assert entry.problems == ("mcpadmin.credentials has an unexpected value.",)
    assert entry.credentials == ()


def test_words_name_what_is_known() -> None:
    assert Needed(CredentialKind.CERTIFICATE).plain() == {"kind": "certificate"}
    assert Needed(CredentialKind.OAUTH, ISSUER).words == f"OAuth sign-in at {ISSUER}"
