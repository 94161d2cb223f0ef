"""A person signs in at a real authorization server (the official SDK's), through our pages and a real worker."""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from servers.audit.record import Actor
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, AuthorizationState, CredentialKind, TransportKind
from servers.models import AuditEvent, Credential, Server, ServerAuthorization
from servers.registration import registering
from servers.registration.registering import Registration
from servers.secret import Secret
from sessions.enums import CallState, SessionCondition, SessionState
from sessions.models import Call, LogLine, McpSession
from tests.peers.peers import free_port, start_peer
from tests.sessions.host.harness import WorkerProcess, eventually, wake
from tests.sessions.host.make import make_call
from tests.sessions.mcp.transports.test_client_certificates import AUTHORITY, made

pytestmark = [pytest.mark.integration, pytest.mark.deadline(400)]


class Protected:
    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log

    def events(self, name: str) -> int:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return sum(json.loads(line)["event"] == name for line in lines)

    def details(self, name: str, detail: str) -> list[str]:
        return [line[detail] for line in map(json.loads, self._log.read_text().splitlines()) if line["event"] == name]

    def control(self, what: str) -> None:
        assert httpx.post(self.url.replace("/mcp", f"/control/{what}"), trust_env=False).status_code == 200


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Protected]:
    log = tmp_path / "protected.log"
    peer = start_peer("protected", port=free_port(), env={"PROTECTED_LOG": str(log)})
    yield Protected(peer.url, log)
    peer.kill()


@pytest.fixture
def ada(transactional_db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="correct horse battery"))
    return client


def registered(url: str) -> Server:
    user = get_user_model().objects.get(username="ada")
    data = Registration(name="Protected", transport=TransportKind.STREAMABLE_HTTP, url=url)
    return registering.register(Actor.of_user(user), user, data)


def session_in(condition: str, state: str, words: str = "") -> McpSession:
    rows = McpSession.objects.filter(condition=condition, state=state)
    try:
        return eventually(rows.first, 30)
    except AssertionError:
        raise AssertionError(f"{words} {McpSession.objects.values('state', 'condition', 'fault_detail')}") from None


def begun(ada: Client, server: Server, **client: str) -> str:
    """Start a sign-in; return the address of its page once the redirect is ready."""
    answer = ada.post(f"/servers/{server.slug}/sign-in/", client)
    assert answer.status_code == 302
    rows = ServerAuthorization.objects.filter(uid=answer.url.split("/")[-2]).exclude(
        state__in=["requested", "preparing"]
    )
    eventually(rows.first, 30, "nobody prepared it")
    return str(answer.url)


def brought_back(ada: Client, page: str) -> dict[str, str]:
    """The parameters with which the authorization server redirects the browser back to us."""
    there = ada.get(f"{page}go/")
    assert there.headers["Referrer-Policy"] == "no-referrer"
    asked = dict(parse_qsl(urlsplit(there.url).query))
    assert asked["code_challenge_method"] == "S256"
    back = httpx.get(there.url, trust_env=False)
    assert back.status_code == 302, back.text
    return dict(parse_qsl(urlsplit(back.headers["location"]).query))


def signed_in(ada: Client, server: Server, **client: str) -> dict[str, str]:
    page = begun(ada, server, **client)
    parameters = brought_back(ada, page)
    answer = ada.get("/sign-in/callback/", parameters)
    assert (answer.status_code, answer.url) == (302, page), "the code leaves the address bar"
    ended = ServerAuthorization.objects.filter(state__in=[AuthorizationState.DONE, AuthorizationState.FAILED])
    assert eventually(lambda: ended.filter(uid=page.split("/")[-2]).first(), 30).detail == ""
    return parameters


def called(session: McpSession, name: str) -> Call:
    return ended(make_call(session, "greet", name=name))


def ended(call: Call) -> Call:
    wake(call)
    return eventually(
        lambda: Call.objects.filter(pk=call.pk).exclude(state__in=[CallState.REQUESTED, CallState.SENT]).first(), 30
    )


def test_a_server_that_asks_for_a_token_waits_is_signed_in_to_and_stays_connected(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server = registered(protected.url)
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "it did not wait for a person")
    assert "Sign in" in ada.get(f"/servers/{server.slug}/tools/").content.decode()
    assert protected.events("register") == 0, "nobody asked for it yet"
    parameters = signed_in(ada, server)
    session = session_in(SessionCondition.NONE, SessionState.READY)
    assert called(session, "Ada").state == CallState.SUCCEEDED
    assert (protected.events("register"), protected.events("code"), protected.events("refresh")) == (1, 1, 0)
    again = ada.get("/sign-in/callback/", parameters)
    assert again.status_code == 400, "an answer counts once"
    row = Credential.objects.get()
    assert (row.kind, row.issuer, row.host) == ("oauth", protected.url.removesuffix("/mcp"), "127.0.0.1")
    assert not ServerAuthorization.objects.exclude(sealed_pending=None).exists(), "what is of no more use is not kept"

    protected.control("expire")
    calls = [make_call(session, "greet", name=f"n{number}") for number in range(20)]
    for call in calls:
        wake(call)
    done = Call.objects.filter(pk__in=[call.pk for call in calls], state=CallState.SUCCEEDED)
    eventually(lambda: done.count() == 20, 30, str(list(Call.objects.values_list("state", "fault"))))
    assert protected.events("refresh") == 1
    assert protected.events("call") == 21, "a refused request was not executed, and each was sent once more"

    protected.control("revoke")
    called(session, "refused")
    session_in(SessionCondition.NEEDS_AUTH, SessionState.DISCONNECTED, "a revoked grant was not noticed")
    board = ada.get("/credentials/").content.decode()
    assert "Sign in again" in board
    signed_in(ada, server)
    assert called(session_in(SessionCondition.NONE, SessionState.READY), "again").state == CallState.SUCCEEDED
    assert protected.events("register") == 1, "the client that was registered is used again"
    no_token_stands_anywhere(ada, server, shared_worker)


class WellKnown(BaseHTTPRequestHandler):
    """A server that is its own authorization server: what a sign-in reads before a person is sent there."""

    def do_GET(self) -> None:
        base = f"https://127.0.0.1:{self.server.server_address[1]}"
        ends = {f"{name}_endpoint": f"{base}/{name}" for name in ("authorization", "token", "registration")}
        documents = {
            "oauth-protected-resource": {"resource": f"{base}/mcp", "authorization_servers": [base]},
            "oauth-authorization-server": {"issuer": base, "code_challenge_methods_supported": ["S256"], **ends},
        }
        found = next((value for name, value in documents.items() if name in self.path), None)
        self._say(404 if found is None else 200, found)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(401 if self.path == "/mcp" else 201, {"client_id": "dyn"})

    def _say(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_with_a_private_authority_can_be_signed_in_to(
    ada: Client, shared_worker: WorkerProcess, tmp_path: Path
) -> None:
    own = made("server", AUTHORITY)
    (tmp_path / "server.pem").write_text(own.pem + own.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), WellKnown) as served:
        served.socket = context.wrap_socket(served.socket, server_side=True)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{served.server_address[1]}/mcp"
        server, user = registered(url), get_user_model().objects.get(username="ada")
        parts = Parts(
            CredentialKind.CERTIFICATE, {}, {"certificate": Secret(""), "key": Secret(""), "ca": Secret(AUTHORITY.pem)}
        )
        actor = Actor.of_user(user)
        vault.attach(actor, user, server, vault.create(actor, user, "CA", parts, url))
        begun(ada, server)
        row = ServerAuthorization.objects.get()
        served.shutdown()
    assert (row.state, row.detail) == (AuthorizationState.READY, "")


def no_token_stands_anywhere(ada: Client, server: Server, worker: WorkerProcess) -> None:
    pages = [
        "/credentials/",
        f"/credentials/{Credential.objects.get().uid}/",
        f"/servers/{server.slug}/info/",
        "/explorer/",
    ]
    text = "".join(ada.get(path).content.decode() for path in pages)
    text += "".join(AuditEvent.objects.values_list("body", flat=True))
    text += "".join(LogLine.objects.values_list("text", flat=True))
    text += worker.output() if callable(worker.output) else worker.output
    assert not re.search("canary-(access|refresh)-", text)


def test_an_answer_that_was_not_asked_for_is_refused_and_no_token_is_fetched(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server = registered(protected.url)
    page = begun(ada, server)
    parameters = brought_back(ada, page)
    eve = Client()
    eve.force_login(get_user_model().objects.create_superuser("eve", password="correct horse battery"))
    other_browser = Client()
    other_browser.force_login(get_user_model().objects.get(username="ada"))
    for client, given in (
        (ada, {"code": parameters["code"]}),
        (ada, parameters | {"state": "forged"}),
        (eve, parameters),
        (other_browser, parameters),
    ):
        answer = client.get("/sign-in/callback/", given)
        assert answer.status_code == 400
        assert (f'href="/servers/{server.slug}/sign-in/"' in answer.content.decode()) is (client is not eve)
    assert other_browser.get(page).status_code == 404
    assert ServerAuthorization.objects.get().state == AuthorizationState.READY
    ServerAuthorization.objects.update(expires_at="2020-01-01T00:00Z")
    assert ada.get("/sign-in/callback/", parameters).status_code == 400
    assert "has expired" in ada.get(page).content.decode()
    assert protected.events("code") == 0


def test_an_answer_from_another_issuer_is_not_used(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server = registered(protected.url)
    page = begun(ada, server)
    ada.get("/sign-in/callback/", brought_back(ada, page) | {"iss": "https://evil.example"})
    row = eventually(lambda: ServerAuthorization.objects.filter(state=AuthorizationState.FAILED).first(), 30)
    assert "does not come from the expected authorization server" in row.detail
    assert "Start again" in ada.get(page).content.decode()
    assert protected.events("code") == 0
    assert AuditEvent.objects.filter(action=AuditAction.SIGN_IN_END, outcome="failed").count() == 1


def test_what_an_authorization_server_says_of_a_refusal_is_shown_without_secrets_and_recorded_nowhere(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server = registered(protected.url)
    page = begun(ada, server, client_id="known", client_secret="canary-s3cret")
    state = dict(parse_qsl(urlsplit(ada.get(f"{page}go/").url).query))["state"]
    iss = protected.url.removesuffix("/mcp")
    words = "Ask Bea, not canary-s3cret."
    answer = {"state": state, "iss": iss, "error": "access_denied", "error_description": words}
    ada.get("/sign-in/callback/", answer)
    row = eventually(lambda: ServerAuthorization.objects.filter(state=AuthorizationState.FAILED).first(), 30)
    assert row.detail.endswith("It says: access_denied (Ask Bea, not [redacted].)")
    body = json.loads(AuditEvent.objects.get(action=AuditAction.SIGN_IN_END, outcome="failed").body)
    assert body["details"]["detail"] == "The authorization server did not grant access."


def test_a_server_that_moved_while_a_person_was_asked_gets_no_token_of_its_old_address(
    ada: Client, shared_worker: WorkerProcess, protected: Protected
) -> None:
    server = registered(protected.url)
    page = begun(ada, server)
    parameters = brought_back(ada, page)
    user = get_user_model().objects.get(username="ada")
    elsewhere = replace(Registration.of_server(server), url=f"http://127.0.0.1:{free_port()}/mcp")
    registering.change(Actor.of_user(user), user, server, elsewhere, server.version)
    ada.get("/sign-in/callback/", parameters)
    row = eventually(lambda: ServerAuthorization.objects.filter(state=AuthorizationState.FAILED).first(), 30)
    assert "address has changed since this sign-in began" in row.detail
    assert protected.events("code") == 0


def test_a_server_that_knows_no_authorization_server_says_so(ada: Client, shared_worker: WorkerProcess) -> None:
    server = registered(f"http://127.0.0.1:{free_port()}/mcp")
    page = ada.post(f"/servers/{server.slug}/sign-in/").url
    eventually(lambda: ServerAuthorization.objects.filter(state=AuthorizationState.FAILED).first(), 30)
    assert "Sign-in failed" in ada.get(page).content.decode()
