"""A registration becomes a specification: transport, limits, roots, credentials and remembered detection."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.conf import settings

import mcpadmin
from servers.audit.record import SYSTEM
from servers.credentials import issuers, vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, TransportKind
from servers.secret import Secret
from sessions.connections.diagnosis import explain
from sessions.host.answer_redaction import Redactor
from sessions.host.authorization.stored_grants import authorized
from sessions.host.db import Database
from sessions.host.launch import NEEDS_CREDENTIAL, Launch, client_info, limits_of, load
from sessions.host.launch_problem import LaunchProblem
from sessions.mcp.client.authorization import Authorization
from sessions.mcp.core.limits import Limits
from sessions.mcp.transports.registry import HttpSpec, StdioSpec, WebSocketSpec
from sessions.models import McpSession
from tests.sessions.host.make import make_greeting, make_session
from tests.tools.stack import ROOT

pytestmark = pytest.mark.django_db


def launch(**server: Any) -> Launch:
    return load(make_session(**server).pk)


def test_the_settings_repeat_the_defaults_of_the_protocol() -> None:
    assert {name: getattr(Limits(), name) for name in settings.LIMITS} == settings.LIMITS
    assert limits_of({}) == Limits()


def test_a_servers_own_limits_go_before_the_instances() -> None:
    found = limits_of({"depth": 12, "events_per_second": 10})
    assert (found.depth, found.events_per_second, found.events_burst) == (12, 10, 50)
    assert found.message_bytes == settings.LIMITS["message_bytes"]


def test_what_carries_a_message_is_never_smaller_than_the_message() -> None:
    size = 200 * 1024 * 1024
    found = limits_of({"message_bytes": size})
    assert min(found.inflated_bytes, found.line_bytes, found.sse_event_bytes) >= size


def test_no_limit_of_the_protocol_is_forgotten() -> None:
    derived = {"sse_event_bytes", "events_burst"}
    of_the_machine = {"noise_lines", "stderr_bytes", "line_chars", "http_connections"}
    assert {item.name for item in fields(Limits)} == settings.LIMITS.keys() | derived | of_the_machine


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        (TransportKind.AUTO_HTTP, "auto"),
        (TransportKind.STREAMABLE_HTTP, "streamable_http"),
        (TransportKind.HTTP_SSE, "http_sse"),
    ],
)
def test_each_transport_over_http_is_asked_for_by_its_kind(transport: TransportKind, kind: str) -> None:
    spec = launch(transport=transport, command="", url="https://x.example/").spec
    assert isinstance(spec, HttpSpec)
    assert (spec.kind, spec.url, spec.limits) == (kind, "https://x.example/", Limits())


def test_a_websocket_and_a_command_have_specifications_of_their_own() -> None:
    assert isinstance(
        launch(slug="a", transport=TransportKind.WEBSOCKET, command="", url="wss://x/").spec, WebSocketSpec
    )
    assert isinstance(launch(slug="b").spec, StdioSpec)


def test_limits_and_roots_of_the_server_reach_the_connection() -> None:
    found = launch(roots=[{"uri": "file:///srv", "name": "Srv"}], limits={"rounds": 2})
    assert (found.roots, found.limits.rounds) == ((("file:///srv", "Srv"),), 2)


def test_what_is_remembered_is_given_and_what_no_one_wrote_is_not() -> None:
    session = make_session()
    McpSession.objects.update(remembered=make_greeting().remembered)
    found = load(session.pk).remembered
    assert found is not None
    assert (found.revision, found.kind) == ("2025-11-25", "stdio")
    McpSession.objects.update(remembered={"era": "modern", "revision": "2025-11-25"})
    assert load(session.pk).remembered is None


def test_a_credential_of_the_vault_reaches_the_connection_and_the_redaction(
    admin_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url="https://x.example/mcp")
    parts = Parts(CredentialKind.BASIC, {"user": "ada"}, {"password": Secret("canary-password-7")})
    credential = vault.create(SYSTEM, admin_user, "Pair", parts, "https://x.example/")
    vault.attach(SYSTEM, admin_user, session.server, credential)
    stamped: list[Any] = []
    monkeypatch.setattr("sessions.host.launch.writer", lambda: SimpleNamespace(submit=stamped.append))
    found = load(session.pk)
    assert stamped == [], "nothing was sent yet"
    assert isinstance(found.spec, HttpSpec)
    found.spec.sent(False)
    found.spec.sent(False)
    assert len(stamped) == 1, "one note is enough for requests that follow each other"
    stamped[0]()
    credential.refresh_from_db()
    assert credential.last_used_at is not None
    assert isinstance(found.spec, HttpSpec)
    assert found.spec.headers() == {"Authorization": "Basic YWRhOmNhbmFyeS1wYXNzd29yZC03"}
    assert Redactor(found.secrets).text("user ada, canary-password-7") == "user ada, [redacted]"
    assert "canary-password-7" not in repr(found)


def test_a_server_that_moved_is_not_opened_but_waits_for_a_person(admin_user: Any) -> None:
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url="https://x.example/mcp")
    parts = Parts(CredentialKind.BEARER, {}, {"token": Secret("canary-token-88")})
    credential = vault.create(SYSTEM, admin_user, "Token", parts, "https://x.example/")
    vault.attach(SYSTEM, admin_user, session.server, credential)
    type(session.server).objects.update(url="https://evil.example/mcp")
    with pytest.raises(LaunchProblem) as refused:
        load(session.pk)
    assert refused.value.failure.fault in NEEDS_CREDENTIAL
    assert "canary-token-88" not in refused.value.failure.detail


def test_servers_are_told_the_version_of_the_product() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert client_info().wire()["version"] == mcpadmin.__version__
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "mcpadmin/__init__.py"


def test_every_fault_of_a_launch_is_explained() -> None:
    for fault in (*NEEDS_CREDENTIAL, "reference_missing", "secret_unreadable"):
        assert explain(fault, "").title != explain("something unknown", "").title


def test_a_service_account_asks_for_the_scopes_that_were_typed(admin_user: Any) -> None:
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, url="https://mcp.example.com/mcp")
    issuer = "https://login.example.com"
    details = {"client": "robot", "issuer": issuer, "scopes": "orders.read orders.write"}
    parts = Parts(CredentialKind.SERVICE_ACCOUNT, details, {"secret": Secret("canary-robot"), "key": Secret("")})
    made = vault.create(SYSTEM, admin_user, "Robot", parts, session.server.url)
    vault.attach(SYSTEM, admin_user, session.server, made)
    opened = authorized(load(session.pk), cast(Database, None), Redactor())
    assert isinstance(opened.spec, HttpSpec)
    authorization = opened.spec.authorization
    assert isinstance(authorization, Authorization)
    settings = authorization.settings
    assert (settings.scopes, settings.client_issuer) == (("orders.read", "orders.write"), issuer)


def test_a_service_account_is_bound_to_the_issuer_that_an_admin_expects(admin_user: Any) -> None:
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, url="https://mcp.example.com/mcp")
    issuers.expect(SYSTEM, admin_user, session.server, "https://login.example.com/", "https://login.example.com")
    found = load(session.pk)
    assert found.expected == issuers.Expected("https://login.example.com/", "https://login.example.com")
    details = {"client": "robot", "issuer": "https://login.example.com/"}
    parts = Parts(CredentialKind.SERVICE_ACCOUNT, details, {"secret": Secret("canary-robot"), "key": Secret("")})
    opened = authorized(replace(found, account=parts), cast(Database, None), Redactor())
    assert isinstance(opened.spec, HttpSpec)
    assert isinstance(opened.spec.authorization, Authorization)
    settings = opened.spec.authorization.settings
    assert (settings.issuer, settings.client_issuer) == ("https://login.example.com/", "https://login.example.com")


@pytest.mark.parametrize("place", ["header", "url"])
def test_a_launch_shows_whether_a_file_that_it_refers_to_has_another_content(
    place: str, settings: Any, tmp_path: Path, admin_user: Any
) -> None:
    (tmp_path / "token").write_text("canary-first")
    settings.REFERENCE_FOLDERS = [str(tmp_path)]
    reference = f"${{file:{tmp_path}/token}}"
    url = f"https://mcp.example.com/{reference if place == 'url' else 'mcp'}"
    session = make_session(transport=TransportKind.STREAMABLE_HTTP, url=url, references_by=admin_user)
    if place == "header":
        session.server.values.create(kind="header", name="Authorization", plain=f"Bearer {reference}")
    first, again = load(session.pk), load(session.pk)
    (tmp_path / "token").write_text("canary-second")
    second = load(session.pk)
    assert first.files == again.files != second.files
    assert "canary" not in repr([first, second])


def test_a_launch_without_references_to_files_shows_none(monkeypatch: pytest.MonkeyPatch, admin_user: Any) -> None:
    monkeypatch.setenv("MCP_PART", "canary-part-4d")
    url = {"transport": TransportKind.STREAMABLE_HTTP, "url": "https://mcp.example.com/${MCP_PART}"}
    assert launch(references_by=admin_user, **url).files == ""


def test_what_a_reference_stands_for_is_in_no_repr(monkeypatch: pytest.MonkeyPatch, admin_user: Any) -> None:
    monkeypatch.setenv("MCP_PART", "canary-part-4d")
    local = launch(command="x", arguments=["--key=${MCP_PART}"], working_directory="/srv", references_by=admin_user)
    url = {"transport": TransportKind.STREAMABLE_HTTP, "url": "https://mcp.example.com/${MCP_PART}"}
    behind = launch(slug="behind", references_by=admin_user, **url)
    assert isinstance(local.spec, StdioSpec)
    assert isinstance(behind.spec, HttpSpec)
    assert (local.spec.args, behind.spec.url) == (("--key=canary-part-4d",), "https://mcp.example.com/canary-part-4d")
    assert "canary" not in repr([local, local.spec, behind, behind.spec])
    assert Redactor(behind.secrets).text(behind.spec.url) == "https://mcp.example.com/[redacted]"
