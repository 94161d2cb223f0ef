"""A worker records the wire of its sessions on every transport, and no secret is in it."""

import base64
import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from servers.audit.record import Actor
from servers.enums import Recording, TransportKind, ValueKind
from servers.models import Server
from servers.registration import registering
from servers.registration.registering import Registration, ValueInput
from servers.secret import Secret
from sessions.enums import WireDirection, WireKind
from sessions.models import Call, McpSession, WireMessage
from tests.canary.encodings import Searcher
from tests.peers.peers import peer_command, start_peer
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually, wake
from tests.sessions.host.make import make_call, named_folders
from tests.sessions.host.test_worker_service_account import SECRET as ACCOUNT
from tests.sessions.host.test_worker_service_account import account, protected, registered_with  # noqa: F401  a fixture
from tests.sessions.host.test_worker_sign_in import Protected, called, session_in

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]
SECRET = "canary/wire+7c1e=secret"


@pytest.fixture(scope="module")
def faces() -> Iterator[str]:
    peer = start_peer("sdk1", "all")
    yield peer.url.removesuffix("/mcp")
    peer.stop()


@pytest.fixture
def admin(shared_worker: WorkerProcess) -> Any:
    return get_user_model().objects.create_superuser("ada", password="x")


def registered(admin: Any, transport: TransportKind, faces: str, **fields: Any) -> McpSession:
    """A server that has a secret, ready for calls."""
    if transport == TransportKind.STDIO:
        command, arguments = peer_command("sdk1")
        reached = {"command": command, "arguments": arguments, "readable_paths": named_folders(arguments)}
        values = [ValueInput(ValueKind.ENVIRONMENT, "API_TOKEN", True, Secret(SECRET))]
    else:
        path = {TransportKind.HTTP_SSE: "/sse", TransportKind.WEBSOCKET: "/ws"}.get(transport, "/mcp")
        base = faces.replace("http://", "ws://") if transport == TransportKind.WEBSOCKET else faces
        reached = {"url": f"{base}{path}"}
        values = [ValueInput(ValueKind.HEADER, "X-Api-Key", True, Secret(SECRET))]
    data = Registration(name="Recorded", transport=transport, values=values, **reached, **fields)  # type: ignore[arg-type]  # the fields by name
    server = registering.register(Actor.of_user(admin), admin, data)
    return await_ready(eventually(McpSession.objects.filter(server=server).select_related("server").first))


def recording(admin: Any, server: Server, chosen: Recording) -> None:
    stored = Server.objects.get(pk=server.pk)
    data = Registration.of({**vars(Registration.of_server(stored)), "recording": chosen})
    registering.change(Actor.of_user(admin), admin, stored, data, stored.version)


def echoed(session: McpSession) -> Call:
    """A call whose arguments and result hold the secret in every encoding, and a word that is none."""
    raw = SECRET.encode()
    shifted = [base64.b64encode(b"x" * shift + raw + b"more").decode() for shift in range(3)]
    forms = [SECRET, quote(SECRET, safe=""), html.escape(SECRET), raw.hex(), *shifted]
    text = " ".join(["seen-on-the-wire", *forms])
    call = make_call(session, "echo", text=text)
    wake(call)
    return ended(call)


def rows_of(call: Call, count: int) -> list[WireMessage]:
    rows = WireMessage.objects.filter(call_uid=call.uid).order_by("seq")
    eventually(lambda: rows.count() >= count)
    return list(rows)


def everything() -> bytes:
    return "\n".join(str(value) for row in WireMessage.objects.values_list() for value in row).encode()


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        (TransportKind.STDIO, "stdio"),
        (TransportKind.STREAMABLE_HTTP, "streamable_http"),
        (TransportKind.HTTP_SSE, "http_sse"),
        (TransportKind.WEBSOCKET, "websocket"),
    ],
)
def test_both_directions_of_every_transport_are_recorded_and_hold_no_secret(
    transport: TransportKind, kind: str, admin: Any, faces: str
) -> None:
    session = registered(admin, transport, faces)
    call = echoed(session)
    asked, answered = (row for row in rows_of(call, 2) if WireKind(row.kind).is_message)
    assert (asked.direction, asked.kind, asked.method) == (WireDirection.SENT, WireKind.REQUEST, "tools/call")
    assert (answered.direction, answered.kind, answered.target) == (WireDirection.RECEIVED, WireKind.RESULT, "echo")
    assert "seen-on-the-wire" in asked.body
    assert "seen-on-the-wire" in answered.body
    assert answered.duration_ms is not None
    assert {row.transport for row in WireMessage.objects.all()} == {kind}
    methods = set(WireMessage.objects.values_list("method", flat=True))
    assert {"initialize", "notifications/initialized", "tools/list"} <= methods
    assert Searcher({"secret": SECRET}).hits(everything()) == []
    numbers = list(WireMessage.objects.order_by("seq").values_list("seq", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))

    exchanges = WireMessage.objects.filter(kind=WireKind.EXCHANGE)
    assert bool(exchanges) == (transport != TransportKind.STDIO)
    assert {asked.exchange is None, answered.exchange is None} == {transport == TransportKind.STDIO}
    for row in exchanges:
        assert row.status in (101, 200, 202, 400), "400 is the refusal of the probe"
        assert '["X-Api-Key","[redacted]"]' in row.headers


def test_streams_and_the_end_of_a_session_are_recorded_without_the_ids_of_sessions(admin: Any, faces: str) -> None:
    session = registered(admin, TransportKind.STREAMABLE_HTTP, faces)
    registering.disable(Actor.of_user(admin), admin, session.server)
    exchanges = WireMessage.objects.filter(kind=WireKind.EXCHANGE)
    eventually(exchanges.filter(method="DELETE").first)
    stream = exchanges.get(method="GET")
    assert "text/event-stream" in stream.headers
    ended_at = WireMessage.objects.filter(exchange=stream.exchange).order_by("-seq").first()
    assert ended_at is not None
    heads = "".join(exchanges.values_list("headers", flat=True))
    assert '["Mcp-Session-Id","[redacted]"]' in heads
    assert not re.search(r"[0-9a-f]{32}", everything().decode())


def test_the_session_of_http_sse_is_not_in_the_addresses_of_its_posts(admin: Any, faces: str) -> None:
    registered(admin, TransportKind.HTTP_SSE, faces)
    posts = WireMessage.objects.filter(kind=WireKind.EXCHANGE, method="POST")
    first = eventually(posts.first)
    assert "[redacted]" in first.target
    assert not re.search(r"[0-9a-f]{32}", everything().decode())


def test_requests_of_authorization_are_recorded_without_bodies_tokens_and_secrets(
    transactional_db: None,
    shared_worker: WorkerProcess,
    protected: Protected,  # noqa: F811  the fixture
) -> None:
    issuer = protected.url.removesuffix("/mcp")
    registered_with(protected.url, account(issuer, ACCOUNT))
    session = session_in("none", "ready")
    call = called(session, "Ada")

    def sent_again() -> QuerySet[WireMessage] | None:
        """Another request of the session may be the one that is refused."""
        protected.control("expire")
        later = WireMessage.objects.filter(call_uid=called(session, "Bob").uid)
        eventually(lambda: later.filter(kind=WireKind.RESULT).exists())
        sent = later.filter(kind=WireKind.REQUEST)
        return sent if sent.count() > 1 else None

    sent = eventually(sent_again)
    rows_of(call, 2)
    sign_in = WireMessage.objects.filter(kind=WireKind.AUTHORIZATION)
    tokens = sign_in.filter(method="POST", status=200)
    assert tokens.count() >= 2, "the first token, and one after it expired"
    assert {row.body for row in sign_in} == {""}
    assert sign_in.filter(method="GET", target__contains="/.well-known/").exists()
    refused = WireMessage.objects.filter(kind=WireKind.EXCHANGE, status=401)
    assert refused.exists()
    assert sent.count() == 2, "each sending of a message is a row"
    text = everything()
    assert ACCOUNT.encode() not in text
    assert not re.search(rb"canary-(access|refresh)-", text)
    assert '["Authorization","[redacted]"]' in "".join(WireMessage.objects.values_list("headers", flat=True))


def test_a_change_of_the_setting_counts_without_a_reconnect(admin: Any, faces: str) -> None:
    session = registered(admin, TransportKind.STDIO, faces, recording=Recording.HEADERS)
    rows = rows_of(echoed(session), 2)
    assert [row.body for row in rows] == ["", ""]
    assert [row.size > 100 for row in rows] == [True, True]
    opened = McpSession.objects.get(pk=session.pk).connected_at
    server = Server.objects.get(pk=session.server_id)

    def quiet_then_loud() -> bool:
        """The log is in order: when the later call is in it, the earlier one would be."""
        recording(admin, server, Recording.OFF)
        quiet = echoed(session)
        recording(admin, server, Recording.FULL)
        loud = eventually(lambda: WireMessage.objects.filter(call_uid=echoed(session).uid).exclude(body="").first())
        return bool(loud) and not WireMessage.objects.filter(call_uid=quiet.uid).exists()

    eventually(quiet_then_loud)
    assert McpSession.objects.get(pk=session.pk).connected_at == opened
