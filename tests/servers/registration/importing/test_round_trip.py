"""Exporting and importing into an empty instance gives the same registrations and needed credentials, and no secret."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import ConnectionPolicy, CredentialKind, Environment, EraChoice, TransportKind
from servers.models import Server
from servers.registration import registering
from servers.registration.exporting import Form, export
from servers.registration.importing.applying import Choice, Decision, apply
from servers.registration.importing.document import read
from servers.registration.importing.planning import plan
from servers.secret import Secret, variants
from tests.servers.cast import CANARY, header, over_http, over_stdio, variable

pytestmark = pytest.mark.django_db


def everything(admin: Any) -> list[Registration]:
    """A server of each transport, one of them with no field at its default."""
    full = over_stdio(
        name="Full «é» \u202e",
        slug="full-one",
        description="All of it",
        notes="Line one\nline two",
        owner_id=admin.pk,
        environment=Environment.PRODUCTION,
        tags=["a", "b, c"],
        era=EraChoice.LEGACY,
        arguments=["-y", "@acme/files", "two words", ""],
        working_directory="/srv/files",
        roots=[{"uri": "file:///srv/data", "name": "Data"}, {"uri": "file:///srv/more", "name": ""}],
        worker_label="gpu",
        answers_sampling=False,
        answers_elicitation=False,
        connection_policy=ConnectionPolicy.IDLE_TIMEOUT,
        idle_timeout_seconds=60,
        connect_timeout_seconds=5,
        request_timeout_seconds=7,
        total_timeout_seconds=9,
        limits={"depth": 32},
        values=[variable(), variable("LEVEL", "debug", secret=False), variable("REF", "${HOME_DIR}/x", secret=False)],
    )
    behind = [
        over_http(name=str(kind), transport=kind, url="https://mcp.example.com/mcp?mode=fast", values=[header()])
        for kind in (TransportKind.AUTO_HTTP, TransportKind.STREAMABLE_HTTP, TransportKind.HTTP_SSE)
    ]
    socket = over_http(name="socket", transport=TransportKind.WEBSOCKET, url="wss://mcp.example.com/ws")
    odd = header("X-Plain", CANARY)  # sealed although neither its name nor its value looks like a secret
    twin = over_http(name="socket", values=[odd, header("X-Region", "eu", secret=False)])
    spaced = over_stdio(name="spaced", command="/opt/my srv/run", arguments=[])
    return [full, *behind, socket, twin, spaced]


def as_stored() -> dict[str, dict[str, Any]]:
    found = {}
    for server in Server.objects.all():
        data = Registration.of_server(server)
        plain = {item.name: getattr(data, item.name) for item in fields(data) if item.name != "values"}
        found[server.slug] = plain | {"values": [(v.kind, v.name, v.secret, v.value) for v in data.values]}
    return found


@pytest.mark.parametrize("form", list(Form), ids=str)
def test_an_export_imported_into_an_empty_instance_gives_equal_registrations(
    form: Form, admin: Any, actor: Actor
) -> None:
    for data in everything(admin):
        registering.register(actor, admin, data)
    before = as_stored()
    text = export(Server.objects.all(), form)
    Server.objects.all().delete()

    document = read(text)
    proposals = plan(admin, document)
    decisions = {proposal.index: Decision(Choice.CREATE) for proposal in proposals}
    outcomes = apply(actor, admin, document, proposals, decisions)

    assert [(outcome.name, outcome.result, outcome.words) for outcome in outcomes if outcome.result != "created"] == []
    assert as_stored() == before
    needed = {outcome.slug: outcome.needed for outcome in outcomes if outcome.needed}
    assert needed == {
        "full-one": ["API_TOKEN"],
        "auto_http": ["Authorization"],
        "streamable_http": ["Authorization"],
        "http_sse": ["Authorization"],
        "socket-2": ["X-Plain"],
    }
    assert all(server.enabled == (server.slug not in needed) for server in Server.objects.all())


#: with references, escapes, and text that resembles either
DOLLARS = [
    *("${A}", "$${A}", "$$${A}", "$${A}${B}", "$", "$$", "$A", "$(A)", "${", "${}", "${a-b}", "$${a-b}"),
    *("${A:-x}", "$${A:-x}", "$${env:A}", "{env:A}", "$${input:x}", "$${workspaceFolder}", "${{ A }}", "$${{ A }}"),
    *("${file:/run/x}", "$${file:/run/x}"),
]


@pytest.mark.parametrize("form", list(Form), ids=str)
@pytest.mark.parametrize("text", DOLLARS)
def test_a_text_with_dollar_signs_comes_back_from_an_export_as_it_was(
    text: str, form: Form, admin: Any, actor: Actor
) -> None:
    values = [variable("PLAIN", text, secret=False)]
    for data in (
        over_stdio(name="a", arguments=["-y", text], working_directory=f"/srv/{text}", values=values),
        over_stdio(name="script", command="sh", arguments=["-c", f"exec acme {text}"]),
    ):
        registering.register(actor, admin, data)
    before = as_stored()
    document = read(export(Server.objects.all(), form))
    Server.objects.all().delete()
    proposals = plan(admin, document)
    assert [proposal.entry.needs for proposal in proposals] == [(), ()]
    apply(actor, admin, document, proposals, {proposal.index: Decision(Choice.CREATE) for proposal in proposals})
    assert as_stored() == before


@pytest.mark.parametrize("form", list(Form), ids=str)
@pytest.mark.parametrize("own", [True, False], ids=["own", "plain"])
def test_no_secret_is_in_an_export(form: Form, own: bool, admin: Any, actor: Actor) -> None:
    """No secrets, whether encrypted or entered as plain text."""
    secret = "ghp_canaryABCDEFGHIJKLMNOPQRSTUVWXYZ01"
    for data in everything(admin):
        registering.register(actor, admin, data)
    in_clear = [
        over_http(name="query", url=f"https://mcp.example.com/mcp?api_key={secret}&mode=1"),
        over_http(name="clear", values=[header("X-Api-Key", secret, secret=False)]),
        over_stdio(name="arguments", arguments=["--token", secret, f"--key={secret}", "-e", f"TOKEN={secret}"]),
    ]
    for data in in_clear:
        registering.register(actor, admin, data)
    text = export(Server.objects.all(), form, own=own)
    for canary in (CANARY, secret):
        assert [variant for variant in variants(canary) if variant in text] == []
    entries = json.loads(text)["servers" if form == Form.VS_CODE else "mcpServers"]
    assert len(entries) == 10


def test_what_was_in_clear_is_needed_when_the_export_comes_back(admin: Any, actor: Actor) -> None:
    data = over_stdio(arguments=["--token", "t-1", "--level", "debug"])
    registering.register(actor, admin, data)
    document = read(export(Server.objects.all(), Form.VS_CODE))
    Server.objects.all().delete()
    (proposal,) = plan(admin, document)
    (need,) = proposal.entry.needs
    assert (need.required, need.secret, need.label) == (True, True, "Files: argument 2")
    (refused,) = apply(actor, admin, document, [proposal], {0: Decision(Choice.CREATE)})
    assert (refused.result, Server.objects.count()) == ("refused", 0)
    (created,) = apply(actor, admin, document, [proposal], {0: Decision(Choice.CREATE, typed={need.key: "t-1"})})
    assert created.result == "created"
    assert Registration.of_server(Server.objects.get()).arguments == data.arguments


def test_a_secret_of_an_export_that_is_here_already_stays(admin: Any, actor: Actor) -> None:
    """Importing an export into its own instance changes nothing."""
    registering.register(actor, admin, over_http(values=[header()]))
    document = read(export(Server.objects.all()))
    (proposal,) = plan(admin, document)
    assert (proposal.verdict, proposal.differences) == ("same", [])


def test_an_export_for_another_client_has_no_member_of_ours(admin: Any, actor: Actor) -> None:
    registering.register(actor, admin, replace(everything(admin)[0], values=[variable()]))
    entries = json.loads(export(Server.objects.all(), own=False))["mcpServers"]
    ((name, entry),) = entries.items()
    assert (name, sorted(entry)) == ("Full «é» \u202e", ["args", "command", "cwd", "env", "type"])
    assert entry["env"] == {"API_TOKEN": "${FULL_ONE_API_TOKEN}"}


def test_a_credential_of_the_vault_is_named_and_needed(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http())
    parts = Parts(CredentialKind.BEARER, {}, {"token": Secret(CANARY)})
    credential = vault.create(actor, admin, "Token of orders", parts, server.url)
    vault.attach(actor, admin, server, credential)
    text = export([server])
    assert json.loads(text)["mcpServers"]["Orders"]["headers"] == {"Authorization": "${ORDERS_AUTHORIZATION}"}
    assert [variant for variant in variants(CANARY) if variant in text] == []
    Server.objects.all().delete()
    (proposal,) = plan(admin, read(text))
    assert [need.key for need in proposal.entry.needs] == ["value:Authorization"]


def test_servers_whose_names_are_one_in_a_file_all_come_back(admin: Any, actor: Actor) -> None:
    """Names that differ only in case, and a short name that is the name of another one."""
    for name, slug in (("git-2", "a"), ("Git", "git"), ("GIT", "git-2"), ("git", "git-3")):
        registering.register(actor, admin, over_http(name=name, slug=slug))
    before = {(server.slug, server.name) for server in Server.objects.all()}
    document = read(export(Server.objects.order_by("pk")))
    Server.objects.all().delete()
    proposals = plan(admin, document)
    apply(actor, admin, document, proposals, {proposal.index: Decision(Choice.CREATE) for proposal in proposals})
    assert {(server.slug, server.name) for server in Server.objects.all()} == before


@pytest.mark.parametrize("form", list(Form), ids=str)
def test_two_secrets_never_share_one_reference(form: Form, admin: Any, actor: Actor) -> None:
    """A client sends the value of a reference to every server that has it."""
    given = [("github", variable("ENTERPRISE_TOKEN")), ("github-enterprise", variable("TOKEN"))]
    for slug, value in given:
        registering.register(actor, admin, over_stdio(name=slug, slug=slug, values=[value]))
    twins = [header("X-Key"), header("X_Key")]
    registering.register(actor, admin, over_http(name="twins", slug="twins", values=twins))
    entries = json.loads(export(Server.objects.order_by("pk"), form))[
        "servers" if form == Form.VS_CODE else "mcpServers"
    ]
    values = [
        value for entry in entries.values() for value in {**entry.get("env", {}), **entry.get("headers", {})}.values()
    ]
    assert len(set(values)) == 4
