"""Valid service accounts are accepted, and invalid ones are refused at the right field."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from servers.audit.record import Actor
from servers.credentials import board, kinds, service_account, vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.models import Credential, Server
from servers.secret import Secret

ISSUER = "https://login.example.com"
SECRET = "canary-account-77aa"


def pem(key: Any) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def parts(client: str = "robot", issuer: str = ISSUER, secret: str = "", key: str = "", scopes: str = "") -> Parts:
    details = {"client": client, "issuer": issuer, "scopes": scopes}
    return Parts(CredentialKind.SERVICE_ACCOUNT, details, {"secret": Secret(secret), "key": Secret(key)})


@pytest.mark.parametrize(
    ("given", "part"),
    [
        pytest.param(parts(client="", secret=SECRET), "client", id="no-client"),
        pytest.param(parts(), "secret", id="neither-secret-nor-key"),
        pytest.param(parts(secret=SECRET, key="x"), "secret", id="both"),
        pytest.param(parts(key="no pem"), "key", id="no-key"),
        pytest.param(parts(key=pem(ed25519.Ed25519PrivateKey.generate())), "key", id="a-key-of-another-kind"),
        pytest.param(parts(issuer="login", secret=SECRET), "issuer", id="no-address"),
        pytest.param(parts(secret=SECRET, scopes='read "all"'), "scopes", id="no-scope"),
        pytest.param(parts(issuer="http://login.example.com", secret=SECRET), "issuer", id="in-clear"),
    ],
)
def test_what_could_not_be_used_is_refused_at_its_box(given: Parts, part: str) -> None:
    with pytest.raises(ValidationError) as refused:
        kinds.check(given)
    assert list(refused.value.message_dict) == [part]
    assert SECRET not in str(refused.value)


def test_a_key_signs_with_what_it_is_made_for() -> None:
    curve, large = ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)
    assert [service_account.algorithm(pem(key)) for key in (curve, large)] == ["ES384", "RS256"]
    kinds.check(parts(key=pem(curve)))


@pytest.mark.django_db
def test_the_form_seals_an_account_and_its_page_never_shows_the_secret(admin: Any) -> None:
    client = Client()
    client.force_login(admin)
    form = {
        "name": "Robot",
        "url": "https://mcp.example.com/mcp",
        "client": "robot",
        "issuer": ISSUER,
        "scopes": "  orders.read   orders.write ",
        "secret": SECRET,
        "key": "",
    }
    answer = client.post("/credentials/add/?kind=service_account", form)
    assert answer.status_code == 302, answer.content.decode()
    row = Credential.objects.get()
    assert vault.opened(row).secret("secret") == SECRET
    assert row.details == {"client": "robot", "issuer": ISSUER, "scopes": "orders.read orders.write"}
    page = client.get(answer.url).content.decode()
    assert (ISSUER in page, "robot" in page, SECRET in page) == (True, True, False)
    again = client.post(
        f"/credentials/{row.uid}/replace/", {"client": "robot", "issuer": ISSUER, "secret": "", "key": ""}
    )
    assert "Enter either a client secret or a private key." in again.content.decode()
    refused = client.post(f"/credentials/{row.uid}/replace/", form | {"key": "canary-private-key-77"})
    assert refused.status_code == 422
    assert "canary" not in refused.content.decode()


@pytest.mark.django_db
def test_what_is_said_of_a_value_that_was_replaced_does_not_count(admin: Any, actor: Actor) -> None:
    made = vault.create(actor, admin, "Robot", parts(secret=SECRET), "https://mcp.example.com")
    now = timezone.now()
    vault.token_had(made.pk, made.version, now, "It says: invalid_client.")
    row = board.row_of(Credential.objects.get(), Server.objects.all())
    assert (row.health.word, row.health.title, row.refreshed_at) == ("No token", "It says: invalid_client.", now)
    replaced = vault.replace(actor, admin, made, parts(secret="canary-account-88bb"))
    vault.token_had(made.pk, made.version, now, "of the one before")
    row = board.row_of(Credential.objects.get(), Server.objects.all())
    assert (row.health.word, row.refreshed_at) == ("Not used", None)
    vault.token_had(made.pk, replaced.version, now)
    assert Credential.objects.get().refreshed_at == now
