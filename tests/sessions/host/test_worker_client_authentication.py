"""Client authentication with credentials of the vault, each method against a server that accepts no other. The
official SDK's server checks the client of a sign-in, PyJWT's checks a service account."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.test import Client

from servers.enums import AuthorizationState, SignsInAs
from servers.models import Credential, Server, ServerAuthorization
from sessions.connections import client_document
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import LogLine, McpSession
from tests.peers.peers import free_port, start_peer
from tests.servers.conftest import person
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.test_worker_sign_in import (
    Protected,
    ada,
    brought_back,
    called,
    registered,
    session_in,
    signed_in,
)

__all__ = ["ada"]
pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
SECRET = "canary-account-5d1e/7+c"
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Gate(Protected):
    def ways(self) -> set[str]:
        lines = map(json.loads, self._log.read_text().splitlines())
        return {line["how"] for line in lines if line["event"] == "account"}


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[..., Gate]]:
    """`gate(**environment)`: a protected server whose authorization server runs with these variables."""
    log, started = tmp_path / "protected.log", []

    def make(**environment: str) -> Gate:
        started.append(start_peer("protected", port=free_port(), env={"PROTECTED_LOG": str(log), **environment}))
        return Gate(started[-1].url, log)

    yield make
    for peer in started:
        peer.kill()


def pem(key: Key) -> str:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def public(key: Key) -> str:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form).decode()


def given_an_account(ada: Client, server: Server, **proof: str) -> Credential:
    """Add a service account on the pages while the server is disabled."""
    ada.post(f"/servers/{server.slug}/disable/")
    issuer = server.url.removesuffix("/mcp")
    boxes = {"name": "Robot", "url": server.url, "client": "robot", "issuer": issuer, "secret": "", "key": ""}
    added = ada.post(f"/credentials/add/?kind=service_account&server={server.slug}", boxes | proof)
    assert added.status_code == 302, added.content.decode()[:3000]
    assert ada.post(f"/servers/{server.slug}/enable/").status_code in (302, 303)
    return Credential.objects.get(kind="service_account")


def works_twice(gate: Gate) -> McpSession:
    """Call with the first token, and again with the token that the worker fetches after the first has expired."""
    session = session_in(SessionCondition.NONE, SessionState.READY)
    assert called(session, "Ada").state == CallState.SUCCEEDED
    gate.control("expire")
    assert called(session, "Bea").state == CallState.SUCCEEDED
    return session


def test_an_account_given_while_the_worker_did_not_look_is_used_once_the_server_is_enabled_again(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate]
) -> None:
    protected = gate(PROTECTED_ACCOUNT=f"robot:{SECRET}", PROTECTED_METHOD="client_secret_post")
    server = registered(protected.url)
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED)
    shared_worker.freeze()
    try:
        given_an_account(ada, server, secret=SECRET)
    finally:
        shared_worker.process.send_signal(signal.SIGCONT)
    works_twice(protected)


@pytest.mark.parametrize("method", ["client_secret_basic", pytest.param("client_secret_post", marks=pytest.mark.long)])
def test_an_account_shows_its_secret_in_the_way_that_the_server_takes(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate], method: str
) -> None:
    protected = gate(PROTECTED_ACCOUNT=f"robot:{SECRET}", PROTECTED_METHOD=method)
    given_an_account(ada, registered(protected.url), secret=SECRET)
    works_twice(protected)
    assert protected.ways() == {method}
    assert (protected.events("account"), protected.events("account_refused")) == (2, 0)


@pytest.mark.parametrize(
    "kind", [pytest.param("rsa", marks=pytest.mark.long), "p256", pytest.param("p521", marks=pytest.mark.long)]
)
def test_an_account_with_a_private_key_signs_a_new_assertion_for_each_token_and_shows_the_key_to_no_one(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate], kind: str
) -> None:
    curve = {"p256": ec.SECP256R1, "p521": ec.SECP521R1}.get(kind)
    key = ec.generate_private_key(curve()) if curve else rsa.generate_private_key(65537, 2048)
    way = {"PROTECTED_ACCOUNT": "robot:", "PROTECTED_METHOD": "private_key_jwt"}
    protected = gate(PROTECTED_ACCOUNT_KEY=public(key), **way)
    made = given_an_account(ada, registered(protected.url), key=pem(key))
    works_twice(protected)
    assert protected.ways() == {"private_key_jwt"}
    assert (protected.events("account"), protected.events("account_refused")) == (2, 0)
    text = ada.get(f"/credentials/{made.uid}/").content.decode() + shared_worker.output
    text += "".join(LogLine.objects.values_list("text", flat=True))
    assert pem(key).splitlines()[1] not in text


def test_an_account_with_another_key_than_the_registered_one_is_refused_once_and_waits(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate]
) -> None:
    known, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    protected = gate(PROTECTED_ACCOUNT="robot:", PROTECTED_ACCOUNT_KEY=public(known))
    server = registered(protected.url)
    made = given_an_account(ada, server, key=pem(other))
    eventually(lambda: McpSession.objects.filter(fault_detail__contains="did not issue a token").exists(), 30)
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED)
    assert protected.events("account") == protected.events("account_refused") == 1
    boxes = {"client": "robot", "issuer": server.url.removesuffix("/mcp"), "secret": "", "key": pem(known)}
    assert ada.post(f"/credentials/{made.uid}/replace/", boxes).status_code == 302
    works_twice(protected)


@pytest.mark.parametrize("method", ["client_secret_basic", pytest.param("client_secret_post", marks=pytest.mark.long)])
def test_a_client_registered_by_hand_shows_its_secret_when_a_person_signs_in_and_when_the_token_is_renewed(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate], method: str
) -> None:
    protected = gate(PROTECTED_METHOD=method)
    server = registered(protected.url)
    known = {"client_id": "by-hand", "client_secret": SECRET, "scope": "tools", "token_endpoint_auth_method": method}
    known["redirect_uris"] = [client_document.callback()]
    httpx.post(server.url.replace("/mcp", "/control/client"), json=known, trust_env=False).raise_for_status()
    signed_in(ada, server, client_id="by-hand", client_secret=SECRET)
    works_twice(protected)
    assert (protected.events("code"), protected.events("refresh"), protected.events("register")) == (1, 1, 0)


def test_a_client_that_was_entered_once_is_shown_and_used_for_the_next_sign_in_and_for_people_of_their_own(
    ada: Client, shared_worker: WorkerProcess, gate: Callable[..., Gate]
) -> None:
    protected = gate()
    server = registered(protected.url)
    known = {"client_id": "by-hand", "client_secret": SECRET, "scope": "tools"}
    known |= {"redirect_uris": [client_document.callback()], "token_endpoint_auth_method": "client_secret_basic"}
    httpx.post(server.url.replace("/mcp", "/control/client"), json=known, trust_env=False).raise_for_status()
    path = f"/servers/{server.slug}/sign-in/"
    assert "Forget this client ID" not in ada.get(path).content.decode()
    signed_in(ada, server, client_id="by-hand", client_secret=SECRET)
    page = ada.get(path).content.decode()
    assert "by-hand" in page
    assert "Forget this client ID" in page
    assert SECRET not in page
    signed_in(ada, server)
    assert (protected.events("code"), protected.events("register")) == (2, 0)

    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    bea = Client()
    bea.force_login(person("bea", "view_server", "call_tool"))
    own = f"/servers/{server.slug}/identity/sign-in/"
    page = bea.get(own).content.decode()
    assert "by-hand" in page
    assert "Forget this client ID" not in page
    uid = bea.post(own).url.split("/")[-2]
    rows = ServerAuthorization.objects.filter(uid=uid)
    eventually(rows.filter(state=AuthorizationState.READY).first, 30, "nobody prepared it")
    assert bea.get("/sign-in/callback/", brought_back(bea, f"/servers/{server.slug}/sign-in/{uid}/")).status_code == 302
    eventually(rows.filter(state=AuthorizationState.DONE).first, 30, "it did not end")
    assert (protected.events("code"), protected.events("register")) == (3, 0)

    signed_in(ada, server, forget_client="on")
    assert (protected.events("code"), protected.events("register")) == (4, 1)
    assert "by-hand" not in ada.get(path).content.decode()
