"""*Test connection* uses credentials of the vault: only the worker unseals them, and neither page nor draft contains
one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from servers.audit.record import Actor
from servers.credentials import vault
from servers.enums import AuditAction, AuditOutcome, DraftState
from servers.models import AuditEvent, Credential, Server, ServerDraft
from sessions.enums import SessionCondition, SessionState
from tests.peers.peers import free_port, start_peer
from tests.sessions.host.harness import WorkerProcess
from tests.sessions.host.test_worker_probe import over
from tests.sessions.host.test_worker_service_account import SECRET, account
from tests.sessions.host.test_worker_sign_in import Protected, ada, protected, registered, session_in, signed_in

__all__ = ["ada", "protected"]
pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]


@pytest.fixture
def with_accounts(tmp_path: Path) -> Iterator[Protected]:
    log = tmp_path / "protected.log"
    env = {"PROTECTED_LOG": str(log), "PROTECTED_ACCOUNT": f"robot:{SECRET}"}
    peer = start_peer("protected", port=free_port(), env=env)
    yield Protected(peer.url, log)
    peer.kill()


def robot(url: str) -> Credential:
    user = get_user_model().objects.get()
    return vault.create(Actor.of_user(user), user, "Robot", account(url.removesuffix("/mcp"), SECRET), url)


def form_of(url: str, **more: Any) -> dict[str, Any]:
    times = {
        "idle_timeout_seconds": 900,
        "connect_timeout_seconds": 30,
        "request_timeout_seconds": 60,
        "total_timeout_seconds": 600,
    }
    rows = {f"{part}-{name}": 0 for part in ("values", "roots") for name in ("TOTAL_FORMS", "INITIAL_FORMS")}
    base = {"name": "Tried", "transport": "streamable_http", "url": url, "era": "auto"}
    return base | times | rows | {"connection_policy": "always_on", "environment": "development"} | more


def outcome_of(client: Client, url: str, query: str = "", **more: Any) -> ServerDraft:
    answer = client.post(f"/servers/test/{query}", form_of(url, **more))
    assert answer.status_code == 302, answer.content.decode()
    return over(ServerDraft.objects.get(uid=answer.url.rstrip("/").split("/")[-1]))


def test_a_new_server_is_tried_with_a_service_account_that_was_chosen_and_registered_with_it(
    ada: Client, shared_worker: WorkerProcess, with_accounts: Protected
) -> None:
    made = robot(with_accounts.url)
    assert outcome_of(ada, with_accounts.url).fault == "unauthorized"
    done = outcome_of(ada, with_accounts.url, credentials=[str(made.uid)])
    assert (done.state, done.report["tools"]) == (DraftState.SUCCEEDED, 2), done.detail
    asked = AuditEvent.objects.filter(action=AuditAction.CONNECTION_TEST, outcome=AuditOutcome.PENDING).order_by("-seq")
    assert '"credentials":["Robot"]' in asked[0].body
    assert SECRET not in str(ServerDraft.objects.values_list("steps", "report", "detail"))
    page = ada.post("/servers/add/", form_of(with_accounts.url, credentials=[str(made.uid)]), follow=True)
    assert page.status_code == 200
    session_in(SessionCondition.NONE, SessionState.READY, "registered without it")


def test_an_edit_is_tried_with_the_sign_in_of_its_server(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server: Server = registered(protected.url)
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "it did not wait for a person")
    signed_in(ada, server)
    session_in(SessionCondition.NONE, SessionState.READY)
    done = outcome_of(ada, protected.url, f"?server={server.slug}")
    assert (done.state, done.report["tools"]) == (DraftState.SUCCEEDED, 2), done.detail
    assert protected.events("code") == 1, "the test signed in anew"


def test_a_credential_of_another_port_is_not_sent(
    ada: Client, shared_worker: WorkerProcess, with_accounts: Protected
) -> None:
    made = robot(with_accounts.url)
    answer = ada.post("/servers/test/", form_of("http://127.0.0.1:9/mcp", credentials=[str(made.uid)]))
    assert answer.status_code == 422
    assert "never sent anywhere else" in answer.content.decode()
