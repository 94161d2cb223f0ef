"""A service account of the vault gets the tokens for a server behind OAuth, without a sign-in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.board import board
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, TransportKind
from servers.models import Credential, Server
from servers.registration import registering
from servers.registration.registering import Registration
from servers.secret import Secret
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import LogLine
from tests.peers.peers import free_port, start_peer
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.test_worker_sign_in import Protected, called, session_in

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
SECRET = "canary-account-5d1e"


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Protected]:
    log = tmp_path / "protected.log"
    env = {"PROTECTED_LOG": str(log), "PROTECTED_ACCOUNT": f"robot:{SECRET}"}
    peer = start_peer("protected", port=free_port(), env=env)
    yield Protected(peer.url, log)
    peer.kill()


def account(issuer: str, secret: str) -> Parts:
    details = {"client": "robot", "issuer": issuer}
    return Parts(CredentialKind.SERVICE_ACCOUNT, details, {"secret": Secret(secret), "key": Secret("")})


def registered_with(url: str, parts: Parts) -> tuple[Actor, Credential]:
    user = get_user_model().objects.create_superuser("ada", password="correct horse battery")
    actor = Actor.of_user(user)
    server: Server = registering.register(
        actor, user, Registration(name="Protected", transport=TransportKind.STREAMABLE_HTTP, url=url), enabled=False
    )
    made = vault.create(actor, user, "Robot", parts, url)
    vault.attach(actor, user, server, made)
    registering.enable(actor, user, server)
    return actor, made


def test_a_refused_account_waits_and_its_replacement_gets_tokens_and_new_ones_by_itself(
    transactional_db: None, shared_worker: WorkerProcess, protected: Protected
) -> None:
    issuer = protected.url.removesuffix("/mcp")
    actor, made = registered_with(protected.url, account(issuer, "canary-account-wrong"))
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "it did not wait for a person")
    assert protected.events("account_refused") == 1
    eventually(Credential.objects.exclude(refresh_fault="").first, 10, "the board does not know")
    refused = board(Server.objects.all())[0]
    assert (refused.health.word, "invalid_client" in refused.refresh_fault) == ("No token", True)
    vault.replace(actor, get_user_model().objects.get(), made, account(issuer, SECRET))
    session = session_in(SessionCondition.NONE, SessionState.READY)
    assert called(session, "Ada").state == CallState.SUCCEEDED
    protected.control("expire")
    assert called(session, "Bea").state == CallState.SUCCEEDED
    fine = eventually(Credential.objects.filter(refresh_fault="", refreshed_at__gt=refused.refreshed_at).first, 10)
    assert (fine.expires_at, board(Server.objects.all())[0].health.word) == (None, "In use")
    assert (protected.events("account"), protected.events("call"), protected.events("register")) == (3, 2, 0)
    text = "".join(LogLine.objects.values_list("text", flat=True)) + shared_worker.output
    assert "canary-account" not in text
    assert "canary-access" not in text


def test_an_account_is_given_to_no_other_authorization_server_than_its_own(
    transactional_db: None, shared_worker: WorkerProcess, protected: Protected
) -> None:
    registered_with(protected.url, account("https://login.example.com", SECRET))
    row = session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "it did not wait for a person")
    assert "https://login.example.com" in row.fault_detail
    assert protected.events("account") == 0
