"""A server behind OAuth whose tokens are obtained with a signed assertion: a platform's token or a person's ID
token."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from joserfc.jwk import ECKey

from servers.audit import payloads
from servers.credentials import vault
from servers.credentials.board import board
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.models import Server
from servers.secret import Secret
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import ConnectionEvent, LogLine, McpSession
from tests.peers import token_issuer
from tests.peers.peers import free_port, start_peer
from tests.sessions.host.conftest import ShareWorker
from tests.sessions.host.harness import WorkerProcess, eventually
from tests.sessions.host.make import make_call
from tests.sessions.host.test_worker_service_account import registered_with
from tests.sessions.host.test_worker_sign_in import Protected, called, ended, session_in

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
SECRET = "canary-provider-90c3"


@pytest.fixture(scope="module")
def key() -> ECKey:
    return ECKey.generate_key("P-256")


@pytest.fixture
def protected(tmp_path: Path, key: ECKey) -> Iterator[Protected]:
    log = tmp_path / "protected.log"
    peer = start_peer("protected", port=free_port(), env=token_issuer.environment(key, log, SECRET))
    yield Protected(peer.url, log)
    peer.kill()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference folder that the operator allows; each test writes its own files there."""
    return tmp_path_factory.mktemp("tokens")


Signed = Callable[..., str]


@pytest.fixture
def signed(tokens: Path, key: ECKey) -> Signed:
    """`signed(name, aud=…, seconds=…)` writes a new token into the file of this name and returns its text."""

    def sign(name: str, aud: str, seconds: int = 600, **more: str) -> str:
        text = token_issuer.signed(key, aud, seconds, **more)
        (tokens / name).write_text(f"{text}\n")
        return text

    return sign


def workload(issuer: str, token: str) -> Parts:
    return Parts(CredentialKind.WORKLOAD, {"client": "robot", "issuer": issuer, "token": token})


def enterprise(issuer: str, token: str, secret: str = SECRET) -> Parts:
    provider = {"provider": f"{issuer}/provider/token", "provider_client": "robot-there"}
    details = {"client": "robot", "issuer": issuer, "token": token, **provider}
    return Parts(CredentialKind.ENTERPRISE, details, {"provider_secret": Secret(secret), "secret": Secret("")})


def everything_kept(worker: WorkerProcess) -> str:
    """Everything that pages and operators can read about the session."""
    rows = [LogLine.objects.values_list("text", flat=True), ConnectionEvent.objects.values_list("detail", flat=True)]
    faults = McpSession.objects.values_list("fault_detail", flat=True)
    return "".join(line for row in rows for line in row) + "".join(faults) + worker.output


def test_a_workload_speaks_with_the_token_that_its_platform_renews(
    share_worker: ShareWorker, protected: Protected, tokens: Path, signed: Signed
) -> None:
    worker = share_worker(MCPADMIN_REFERENCE_FOLDERS=str(tokens))
    issuer = protected.url.removesuffix("/mcp")
    late = signed("token", issuer, seconds=-60)
    actor, made = registered_with(protected.url, workload(issuer, f"${{file:{tokens}/token}}"))
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "an expired token was taken")
    refused = eventually(lambda: next((row for row in board(Server.objects.all()) if row.refresh_fault), None), 10)
    assert (refused.health.word, "invalid_grant" in refused.refresh_fault) == ("No token", True)

    first = signed("token", issuer)
    vault.replace(actor, get_user_model().objects.get(), made, workload(issuer, f"${{file:{tokens}/token}}"))
    session = session_in(SessionCondition.NONE, SessionState.READY)
    assert called(session, "Ada").state == CallState.SUCCEEDED
    second = signed("token", issuer, sub="orders-after")
    protected.control("expire")
    assert called(session, "Bea").state == CallState.SUCCEEDED
    assert protected.details("assertion", "whom") == ["", "orders", "orders-after"]
    assert board(Server.objects.all())[0].health.word == "In use"
    kept = everything_kept(worker)
    assert not [token for token in (late, first, second, "canary-access") if token in kept]


def test_a_token_that_is_not_there_is_said_with_its_file(
    share_worker: ShareWorker, protected: Protected, tokens: Path
) -> None:
    share_worker(MCPADMIN_REFERENCE_FOLDERS=str(tokens))
    registered_with(protected.url, workload(protected.url.removesuffix("/mcp"), f"${{file:{tokens}/none}}"))
    row = eventually(McpSession.objects.filter(fault="reference_missing").first, 30)
    assert f"The worker cannot read the file {tokens}/none" in row.fault_detail
    assert protected.events("assertion") == 0


def test_an_id_token_is_exchanged_at_its_provider_for_each_token_of_the_server(
    share_worker: ShareWorker, protected: Protected, tokens: Path, signed: Signed
) -> None:
    worker = share_worker(MCPADMIN_REFERENCE_FOLDERS=str(tokens))
    issuer = protected.url.removesuffix("/mcp")
    token = signed("id", "robot-there", sub="ada@example.com")
    reference = f"${{file:{tokens}/id}}"
    actor, made = registered_with(protected.url, enterprise(issuer, reference, "canary-provider-wrong"))
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "a wrong secret was taken")
    assert (protected.events("exchange"), protected.events("assertion")) == (1, 0)
    vault.replace(actor, get_user_model().objects.get(), made, enterprise(issuer, reference))
    session = session_in(SessionCondition.NONE, SessionState.READY)
    protected.control("expire")
    assert called(session, "Ada").state == CallState.SUCCEEDED
    assert (protected.events("exchange"), protected.details("assertion", "whom")) == (3, ["ada@example.com"] * 2)
    told = payloads.read(ended(make_call(session, "echo_token")).result)
    assert "seen: [redacted], [redacted], [redacted]" in told, "a token, and each assertion that it was given for"
    kept = everything_kept(worker)
    assert not [word for word in (token, "canary-provider", "canary-access") if word in kept]
