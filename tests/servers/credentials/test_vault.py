"""A credential in the vault is bound to its place and never appears on a page or works in another row."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from django.core.exceptions import ValidationError

from servers.access import Denied
from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.crypto import SealBroken
from servers.enums import AuditAction, CredentialKind, TransportKind
from servers.models import AuditEvent, Credential, CredentialUse, Server
from servers.registration import registering
from servers.registration.resolved_values import NotLaunchable, certificate_of, launch_values
from servers.secret import Secret
from tests.servers.cast import header, over_http, over_stdio

pytestmark = pytest.mark.django_db
TOKEN = "canary-token-0c4f"
URL = "https://mcp.example.com/mcp"


def bearer(token: str = TOKEN) -> Parts:
    return Parts(CredentialKind.BEARER, {}, {"token": Secret(token)})


def of(kind: CredentialKind, details: dict[str, str], **secrets: str) -> Parts:
    return Parts(kind, details, {name: Secret(value) for name, value in secrets.items()})


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    return registering.register(actor, admin, over_http(url=URL))


@pytest.fixture
def add(admin: Any, actor: Actor) -> Callable[..., Credential]:
    def create(name: str, parts: Parts, url: str = URL) -> Credential:
        return vault.create(actor, admin, name, parts, url)

    return create


def key_pair(name: str = "client", *, days: int = 30) -> tuple[str, str]:
    """A self-signed certificate and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=60))
        .not_valid_after(now + dt.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return built.public_bytes(Encoding.PEM).decode(), pem.decode()


# --- adding, replacing, deleting -----------------------------------------------------------------------------------------
def test_a_token_is_sealed_bound_and_audited_without_its_value(add: Callable[..., Credential]) -> None:
    row = add("Orders key", bearer(), "https://MCP.example.com/other/path")
    assert (row.scheme, row.host, row.port) == ("https", "mcp.example.com", 443)
    assert TOKEN.encode() not in bytes(row.sealed or b"")
    assert row.fingerprint
    assert TOKEN not in row.fingerprint
    assert vault.opened(row).secret("token") == TOKEN
    event = AuditEvent.objects.get(action=AuditAction.CREDENTIAL_CREATE)
    assert TOKEN not in event.body
    assert "https://mcp.example.com:443" in event.body


def test_a_sealed_credential_does_not_open_in_another_row(add: Callable[..., Credential]) -> None:
    one, other = add("One", bearer()), add("Other", bearer("another-token-11"))
    Credential.objects.filter(pk=other.pk).update(sealed=one.sealed, key_id=one.key_id)
    other.refresh_from_db()
    with pytest.raises(SealBroken):
        vault.opened(other)


@pytest.mark.parametrize(
    ("parts", "part"),
    [
        (of(CredentialKind.BEARER, {}, token="a\r\nHost: b"), "token"),
        (of(CredentialKind.BEARER, {}, token="Bearer abc"), "token"),
        (of(CredentialKind.HEADER, {"header": "Host"}, value="x"), "header"),
        (of(CredentialKind.HEADER, {"header": "X: a"}, value="x"), "header"),
        (of(CredentialKind.BASIC, {"user": "a:b"}, password="x"), "user"),
        (of(CredentialKind.BASIC, {"user": "ada"}, password=""), "password"),
        (of(CredentialKind.ENVIRONMENT, {"variable": "A-B"}, value="x"), "variable"),
        (of(CredentialKind.CERTIFICATE, {}, certificate="none", key="none"), "certificate"),
        (of(CredentialKind.CERTIFICATE, {}, certificate=key_pair()[0], key=key_pair()[1]), "key"),
        (
            of(CredentialKind.CERTIFICATE, {}, **dict(zip(("certificate", "key"), key_pair(days=-1), strict=False))),
            "certificate",
        ),
        (of(CredentialKind.CERTIFICATE, {}, certificate=key_pair()[0], key="", ca=""), "key"),
        (of(CredentialKind.CERTIFICATE, {}, certificate="", key="", ca=""), "certificate"),
        (of(CredentialKind.CERTIFICATE, {}, certificate="", key="", ca="none"), "ca"),
        (of(CredentialKind.CERTIFICATE, {}, certificate="", key="", ca=key_pair(days=-1)[0]), "ca"),
    ],
    ids=[
        "crlf",
        "scheme word",
        "own header",
        "name",
        "colon",
        "no password",
        "variable",
        "pem",
        "other key",
        "expired",
        "no key",
        "nothing",
        "ca pem",
        "expired ca",
    ],
)
def test_what_cannot_be_a_credential_is_refused_at_its_part(
    add: Callable[..., Credential], parts: Parts, part: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        add("X", parts, "" if parts.kind == CredentialKind.ENVIRONMENT else URL)
    assert part in refused.value.message_dict
    assert not Credential.objects.exists()


def test_a_new_value_replaces_the_old_one_and_is_never_shown(
    add: Callable[..., Credential], admin: Any, actor: Actor
) -> None:
    row = add("Orders key", bearer())
    before = (bytes(row.sealed or b""), row.fingerprint)
    after = vault.replace(actor, admin, row, bearer("a-new-token-22aa"))
    assert after.fingerprint != before[1]
    assert vault.opened(after).secret("token") == "a-new-token-22aa"
    assert after.version == 2


def test_who_lacks_the_permission_changes_nothing_and_is_in_the_audit_log(
    add: Callable[..., Credential], operator: Any, server: Server
) -> None:
    row, actor = add("Orders key", bearer()), Actor.of_user(operator)
    for verb in (
        lambda: vault.create(actor, operator, "Y", bearer(), URL),
        lambda: vault.replace(actor, operator, row, bearer()),
        lambda: vault.delete(actor, operator, row),
        lambda: vault.attach(actor, operator, server, row),
    ):
        with pytest.raises(Denied):
            verb()
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY).count() == 4
    assert Credential.objects.count() == 1
    assert not CredentialUse.objects.exists()


# --- binding -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("url", ["http://mcp.example.com/", "https://mcp.example.com:444/", "https://evil.example/"])
def test_a_credential_is_not_used_for_another_place(
    url: str, add: Callable[..., Credential], admin: Any, actor: Actor
) -> None:
    server = registering.register(actor, admin, over_http(url=url))
    with pytest.raises(ValidationError, match=r"bound to https://mcp\.example\.com:443"):
        vault.attach(actor, admin, server, add("Orders key", bearer()))


def test_a_server_that_moves_loses_its_credential_and_waits_for_another(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    vault.attach(actor, admin, server, add("Orders key", bearer()))
    server = registering.change(actor, admin, server, over_http(url="https://evil.example/mcp"), server.version)
    assert CredentialUse.objects.get().blanked_at is not None
    assert AuditEvent.objects.filter(action=AuditAction.CREDENTIAL_BLANK).count() == 1
    with pytest.raises(NotLaunchable) as refused:
        launch_values(server)
    assert refused.value.fault == "credential_needed"
    back = registering.change(actor, admin, server, over_http(url=URL), server.version)
    with pytest.raises(NotLaunchable):  # moving back is not consent either
        launch_values(back)
    vault.attach(actor, admin, back, Credential.objects.get())
    assert launch_values(back).headers.keys() == {"Authorization"}


def test_a_row_changed_behind_our_back_sends_nothing(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    vault.attach(actor, admin, server, add("Orders key", bearer()))
    Server.objects.filter(pk=server.pk).update(url="https://evil.example/mcp")
    server.refresh_from_db()
    with pytest.raises(NotLaunchable):
        launch_values(server)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/mcp", "http://[::1]:9/mcp", "http://localhost:9/", "http://lan.example:81/"]
)
def test_plain_http_is_for_this_machine_and_what_the_operator_allowed(
    url: str, add: Callable[..., Credential], admin: Any, actor: Actor, settings: Any
) -> None:
    settings.PLAIN_HTTP_HOSTS = ["lan.example:81"]
    server = registering.register(actor, admin, over_http(url=url, values=[header("X-Key")]))
    vault.attach(actor, admin, server, add("Key", bearer(), url))
    assert server.unencrypted
    assert launch_values(server).headers.keys() == {"X-Key", "Authorization"}


@pytest.mark.parametrize("url", ["http://lan.example/", "http://lan.example:82/", "http://127.0.0.1.evil.example/"])
def test_no_credential_is_taken_for_plain_http_elsewhere(
    url: str, add: Callable[..., Credential], admin: Any, actor: Actor, settings: Any
) -> None:
    settings.PLAIN_HTTP_HOSTS = ["lan.example:81"]
    with pytest.raises(ValidationError, match="plain http"):
        registering.register(actor, admin, over_http(url=url, values=[header("X-Key")]))
    with pytest.raises(ValidationError, match="plain http"):
        add("Key", bearer(), url)


def test_an_allowance_that_was_taken_back_stops_the_credential(
    add: Callable[..., Credential], admin: Any, actor: Actor, settings: Any
) -> None:
    settings.PLAIN_HTTP_HOSTS = ["lan.example:81"]
    server = registering.register(actor, admin, over_http(url="http://lan.example:81/"))
    vault.attach(actor, admin, server, add("Key", bearer(), server.url))
    settings.PLAIN_HTTP_HOSTS = []
    with pytest.raises(NotLaunchable) as refused:
        launch_values(server)
    assert refused.value.fault == "not_encrypted"


# --- use -----------------------------------------------------------------------------------------------------------------
def test_each_kind_becomes_what_its_server_needs(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    certificate, key = key_pair()
    pair = of(CredentialKind.BASIC, {"user": "ada"}, password="päss:word-77")
    for row in (
        add("Key", of(CredentialKind.HEADER, {"header": "X-API-Key"}, value="key-value-33")),
        add("Pair", pair),
        add("Certificate", of(CredentialKind.CERTIFICATE, {}, certificate=certificate, key=key, ca=certificate)),
    ):
        vault.attach(actor, admin, server, row)
    values = launch_values(server)
    sent = {name: value.reveal() for name, value in values.headers.items() if isinstance(value, Secret)}
    assert sent == {"X-API-Key": "key-value-33", "Authorization": "Basic YWRhOnDDpHNzOndvcmQtNzc="}
    assert values.certificate is not None
    assert values.certificate.key.reveal() == key
    assert "päss:word-77" in {secret.reveal() for secret in values.secrets}, "the password alone is redacted too"
    assert len(values.used) == 3
    assert "key-value-33" not in repr(values)


def test_a_private_authority_can_be_given_alone_and_is_no_secret(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    authority = key_pair("authority")[0]
    row = add("CA", of(CredentialKind.CERTIFICATE, {}, certificate="", key="", ca=authority))
    assert row.expires_at is not None
    vault.attach(actor, admin, server, row)
    values = launch_values(server)
    assert values.certificate is not None
    assert (bool(values.certificate.certificate), values.certificate.ca) == (False, authority)
    assert not values.carries_secret
    for_a_sign_in = certificate_of(server, server.identities.get())
    assert for_a_sign_in is not None
    assert for_a_sign_in.ca == authority


def test_a_variable_goes_to_a_local_process_only(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    row = add("Token", of(CredentialKind.ENVIRONMENT, {"variable": "API_TOKEN"}, value="value-44-abc"), "")
    local = registering.register(actor, admin, over_stdio())
    vault.attach(actor, admin, local, row)
    found = launch_values(local).environment["API_TOKEN"]
    assert isinstance(found, Secret)
    assert found.reveal() == "value-44-abc"
    with pytest.raises(ValidationError):
        vault.attach(actor, admin, server, row)
    local.refresh_from_db()
    moved = registering.change(actor, admin, local, over_http(name="Moved"), local.version)
    assert moved.transport == TransportKind.STREAMABLE_HTTP
    with pytest.raises(NotLaunchable):
        launch_values(moved)


def test_one_header_never_has_two_sources(add: Callable[..., Credential], admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header("authorization")]))
    with pytest.raises(ValidationError, match="already sends the authorization header"):
        vault.attach(actor, admin, server, add("Key", bearer()))


def test_only_what_fits_is_offered_and_a_deleted_one_is_gone(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    here = add("Here", bearer())
    add("There", bearer(), "https://elsewhere.example/")
    add("Variable", of(CredentialKind.ENVIRONMENT, {"variable": "A"}, value="value-55-abc"), "")
    assert vault.attachable(server) == [here]
    vault.attach(actor, admin, server, here)
    assert vault.attachable(server) == []
    assert here.uses.get().identity.server == server
    vault.delete(actor, admin, here)
    assert launch_values(server).headers == {}


def test_another_variable_of_a_credential_is_said(add: Callable[..., Credential], admin: Any, actor: Actor) -> None:
    row = add("Token", of(CredentialKind.ENVIRONMENT, {"variable": "API_TOKEN"}, value="value-44-abc"), "")
    vault.replace(actor, admin, row, of(CredentialKind.ENVIRONMENT, {"variable": "API_KEY"}, value="value-44-abc"))
    details = json.loads(AuditEvent.objects.get(action=AuditAction.CREDENTIAL_REPLACE).body)["details"]
    assert details["changes"] == {"variable": {"before": "API_TOKEN", "after": "API_KEY"}}


def test_what_is_attached_or_deleted_already_is_no_second_event(
    add: Callable[..., Credential], admin: Any, actor: Actor, server: Server
) -> None:
    row = add("Key", bearer())
    for _ in range(2):
        vault.attach(actor, admin, server, row)
    for _ in range(2):
        vault.delete(actor, admin, row)
    assert AuditEvent.objects.filter(action=AuditAction.CREDENTIAL_ATTACH).count() == 1
    assert AuditEvent.objects.filter(action=AuditAction.CREDENTIAL_DELETE).count() == 1
