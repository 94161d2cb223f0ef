"""WebSocket (not standard) against scripted peers: handshake, frames, and what the end of a connection means."""

import asyncio
import json
import logging
import logging.config
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.server import ServerConnection

from sessions.mcp.core.errors import Fault, HttpError, McpError, NotReady, TransportError
from sessions.mcp.core.events import DiagnosticLine, ProtocolViolation
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Outgoing
from sessions.mcp.core.state import State
from sessions.mcp.transports import dialing
from sessions.mcp.transports.registry import WebSocketSpec, open_transport
from sessions.mcp.transports.websocket import WebSocketTransport, handshake
from sessions.mcp.transports.websocket.handshake import http_twin, websocket_url

from .http_answers import NO_ANSWERS_OF_A_STREAM
from .making import LOCAL, SMALL, FlowSecrets, connected, silent_address, unconnected
from .scripted_websocket import OK, OnMessage, WsPeer, as_usual, scripted_websocket

pytestmark = pytest.mark.integration


def ws(url: str, **more: Any) -> WebSocketSpec:
    return WebSocketSpec(url, **{"policy": LOCAL, "limits": SMALL, **more})


@asynccontextmanager
async def session(on_message: OnMessage = as_usual, **more: Any) -> AsyncIterator[tuple[FlowSecrets, WsPeer]]:
    async with scripted_websocket(on_message, **more) as peer, connected(ws(peer.url)) as made:
        yield made, peer


async def test_a_legacy_server_is_probed_and_initialized_on_one_connection() -> None:
    async with session() as (made, peer):
        assert (made.connected.transport, made.connected.revision) == ("websocket", "2025-11-25")
        assert made.connected.url == peer.url
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]
        assert len(peer.connections) == 1


async def test_a_modern_server_is_open_after_the_probe_and_never_initialized() -> None:
    async with session(modern=True) as (made, peer):
        assert made.connected.revision == "2026-07-28"
        assert (await made.client.call_tool("t", {})).raw == OK
        assert "initialize" not in peer.methods()
        assert peer.messages[-1]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


async def test_the_handshake_asks_for_the_subprotocol_and_carries_credentials_but_no_origin_or_compression() -> None:
    async with scripted_websocket() as peer, connected(ws(peer.url, headers=lambda: {"Authorization": "Bearer b"})):
        headers = peer.handshakes[0].headers
    assert headers["Sec-WebSocket-Protocol"] == "mcp"
    assert headers["Authorization"] == "Bearer b"
    assert headers["User-Agent"] == "mcpadmin"
    assert "Origin" not in headers
    assert "Sec-WebSocket-Extensions" not in headers


async def test_no_header_or_frame_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})  # as a worker does after its imports
    caplog.set_level(logging.DEBUG)
    secret = {"Authorization": "Bearer canary-7261"}
    async with scripted_websocket() as peer, connected(ws(peer.url, headers=lambda: secret)) as made:
        await made.client.call_tool("t", {"secret": "canary-8812"})
    ours = [record for record in caplog.records if record.name != "websockets.server"]
    assert not any("canary" in record.getMessage() for record in ours)


async def test_a_server_that_selects_no_subprotocol_is_used_with_a_warning() -> None:
    async with session(subprotocol=None) as (made, _):
        assert await made.client.ping() > 0
        assert any("subprotocol" in event.text for event in made.of(DiagnosticLine))


async def close_at_probe(connection: ServerConnection, message: dict[str, Any]) -> bool:
    if message.get("method") == "server/discover":
        await connection.close(1002)
        return True
    return False


async def test_a_connection_that_closes_at_the_probe_is_made_again_and_initialized() -> None:
    async with session(close_at_probe) as (made, peer):
        assert made.connected.era == "legacy"
        assert peer.methods()[:2] == ["server/discover", "initialize"]
        assert len(peer.connections) == 2


async def failed_call(on_message: OnMessage) -> tuple[McpError, WsPeer]:
    async with session(on_message) as (made, peer):
        with pytest.raises(McpError) as caught:
            await made.client.call_tool("t", {})
        assert made.client.in_flight == 0
        await asyncio.wait_for(asyncio.shield(made.client.closed), 10)
        assert made.client.state is State.DISCONNECTED
        with pytest.raises(NotReady):
            await made.client.ping()
    assert peer.methods().count("tools/call") == 1
    return caught.value, peer


def at_call(act: Any) -> OnMessage:
    async def on_message(connection: ServerConnection, message: dict[str, Any]) -> bool:
        if message.get("method") != "tools/call":
            return False
        await act(connection, message)
        return True

    return on_message


async def binary(connection: ServerConnection, message: dict[str, Any]) -> None:
    await connection.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": OK}).encode())


async def oversize(connection: ServerConnection, message: dict[str, Any]) -> None:
    await connection.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"text": "x" * 100_000}}))


async def endless_fragments(connection: ServerConnection, message: dict[str, Any]) -> None:
    async def parts() -> AsyncIterator[str]:
        while True:
            yield "x" * 8192

    await connection.send(parts())


async def not_utf8(connection: ServerConnection, message: dict[str, Any]) -> None:
    connection.transport.write(b"\x81\x02\xff\xfe")


async def masked_rubbish(connection: ServerConnection, message: dict[str, Any]) -> None:
    connection.transport.write(b"\xff\xff" + b"\x00" * 20)


@pytest.mark.parametrize(
    ("act", "fault"),
    [
        (binary, Fault.INVALID_MESSAGE),
        (oversize, Fault.MESSAGE_LIMIT),
        (endless_fragments, Fault.MESSAGE_LIMIT),
        (not_utf8, Fault.INVALID_MESSAGE),
        (masked_rubbish, Fault.INVALID_MESSAGE),
    ],
)
async def test_a_frame_that_is_no_message_ends_the_call_by_name_and_the_connection(act: Any, fault: Fault) -> None:
    error, _ = await failed_call(at_call(act))
    assert (error.fault, error.may_have_run) == (fault, True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1000, "it is finished"),
        (1001, "going away"),
        (1008, "policy"),
        (1011, "internal error"),
        (4999, "unknown reason"),
    ],
)
async def test_a_close_code_is_reported_in_words_and_its_reason_is_not_trusted(code: int, words: str) -> None:
    async def close(connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.close(code, "\x1b[31mhostile")

    error, _ = await failed_call(at_call(close))
    assert isinstance(error, TransportError)
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert words in error.detail
    assert str(code) in error.detail
    assert "hostile" not in error.detail


async def test_a_connection_that_breaks_without_a_close_is_lost() -> None:
    async def abort(connection: ServerConnection, message: dict[str, Any]) -> None:
        connection.transport.abort()

    error, _ = await failed_call(at_call(abort))
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)


async def test_a_text_frame_that_cannot_be_an_answer_is_reported_and_harms_no_call() -> None:
    async def noisy(connection: ServerConnection, message: dict[str, Any]) -> bool:
        if message.get("method") == "tools/call":
            for frame in frames:
                await connection.send(frame)
        return False

    frames = [*NO_ANSWERS_OF_A_STREAM, ""]
    async with session(noisy) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK
        assert len(made.of(ProtocolViolation)) == len(frames)


async def test_an_answer_that_is_no_json_ends_the_session_as_no_one_can_tell_whose_it_was() -> None:
    async def rubbish(connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send('{"jsonrpc": "2.0", "result": nothing}')

    error, _ = await failed_call(at_call(rubbish))
    assert error.fault is Fault.INVALID_MESSAGE


async def refused(on_handshake: Any, **more: Any) -> tuple[McpError, WsPeer]:
    async with scripted_websocket(on_handshake=on_handshake) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(ws(peer.url, **more)).connect()
    assert not caught.value.may_have_run or isinstance(caught.value, HttpError)
    return caught.value, peer


@pytest.mark.parametrize(
    ("status", "fault"),
    [(401, Fault.UNAUTHORIZED), (403, Fault.ACCESS_REFUSED), (429, Fault.RATE_LIMITED), (404, Fault.HTTP_STATUS)],
)
async def test_a_refused_handshake_tells_the_status_and_its_challenges(status: int, fault: Fault) -> None:
    headers = {"WWW-Authenticate": 'Bearer resource_metadata="x"', "Retry-After": "4"}
    error, peer = await refused(lambda request: (status, headers))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status, error.retry_after) == (fault, status, 4.0)
    assert error.challenges == ('Bearer resource_metadata="x"',)
    assert len(peer.handshakes) == 1


@pytest.mark.parametrize("location", ["/other", "ws://{host}/other", "http://{host}/other"])
async def test_a_redirect_of_the_same_origin_is_followed_and_the_last_url_kept(location: str) -> None:
    def moved(request: Any) -> tuple[int, dict[str, str]] | None:
        if request.path == "/other":
            return None
        return 307, {"Location": location.format(host=request.headers["Host"])}

    async with scripted_websocket(on_handshake=moved) as peer, connected(ws(peer.url)) as made:
        assert made.connected.url == peer.url.replace("/mcp", "/other")
        assert made.connected.remember is not None
        assert made.connected.remember.url == made.connected.url


@pytest.mark.parametrize("location", ["ws://127.0.0.1:1/mcp", "wss://{host}/mcp", "http://127.0.0.2:{port}/", "/mcp"])
async def test_a_redirect_to_another_origin_or_in_a_circle_is_refused(location: str) -> None:
    def moved(request: Any) -> tuple[int, dict[str, str]]:
        host = request.headers["Host"]
        return 307, {"Location": location.format(host=host, port=host.rpartition(":")[2])}

    error, _ = await refused(moved)
    assert error.fault is Fault.REDIRECTED


async def test_a_peer_that_never_answers_the_handshake_is_given_up_in_time() -> None:
    hung_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        hung_up.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TransportError) as caught:
        await unconnected(ws(f"ws://127.0.0.1:{port}/", connect_timeout=0.2)).connect()
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)
    await asyncio.wait_for(hung_up.wait(), 10)
    server.close()


async def test_a_peer_that_is_no_websocket_server_is_no_mcp_endpoint() -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(ssh, "127.0.0.1", 0)
    with pytest.raises(McpError) as caught:
        await unconnected(ws(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")).connect()
    assert caught.value.fault is Fault.NOT_MCP
    server.close()


async def test_each_address_of_a_name_is_tried_until_one_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(url: Any, policy: Any, timeout: float) -> list[Any]:
        port = url.port
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)) for host in ("127.0.0.3", "127.0.0.1")]

    async with scripted_websocket() as peer:
        monkeypatch.setattr(dialing, "_infos", two)
        async with connected(ws(peer.url)) as made:
            assert await made.client.ping() > 0


def leading_to(*places: tuple[str, int]) -> Callable[..., Awaitable[list[Any]]]:
    async def infos(url: Any, policy: Any, timeout: float) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

    return infos


async def test_an_address_that_is_silent_does_not_delay_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_websocket() as peer:
        with silent_address() as silent:
            port = int(peer.url.split(":")[2].partition("/")[0])
            monkeypatch.setattr(dialing, "_infos", leading_to(silent, silent, ("127.0.0.1", port)))
            async with asyncio.timeout(5), connected(ws(peer.url)) as made:
                assert await made.client.ping() > 0


async def test_where_all_addresses_are_silent_the_time_is_that_of_one_and_all_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_address() as one, silent_address() as other:
        monkeypatch.setattr(dialing, "_infos", leading_to(one, other))
        with pytest.raises(TransportError) as caught:
            await unconnected(ws("ws://silent.test/", connect_timeout=0.5)).connect()
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)
    assert caught.value.detail == "127.0.0.1, 127.0.0.1 did not accept a connection within 0.5 s."


async def test_no_attempt_to_connect_leaves_its_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_HEAD_START", 0.0)
    url = httpx.URL("http://many.test/")
    with socket.create_server(("127.0.0.1", 0)) as listener, silent_address() as silent, closed_place() as closed:
        here = listener.getsockname()
        before = os.listdir("/proc/self/fd")
        for places in ((here,) * 5, (silent, here, here), (closed, silent, here)):
            monkeypatch.setattr(dialing, "_infos", leading_to(*places))
            (await dialing.connected_socket(url, LOCAL, 20)).close()
        monkeypatch.setattr(dialing, "_infos", leading_to(silent, closed))
        attempt = asyncio.create_task(dialing.connected_socket(url, LOCAL, 20))
        await asyncio.sleep(0.05)
        attempt.cancel()
        await asyncio.wait({attempt})
        await asyncio.sleep(0.05)
        assert os.listdir("/proc/self/fd") == before


@contextmanager
def closed_place() -> Iterator[tuple[str, int]]:
    """Bound, so that nothing else listens there meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


async def test_a_refused_connection_is_certain_not_to_have_run() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(TransportError) as caught:
            await unconnected(ws(f"ws://127.0.0.1:{bound.getsockname()[1]}/")).connect()
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_REFUSED, False)


async def test_the_proxy_environment_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with session() as (made, _):
        assert await made.client.ping() > 0


@pytest.mark.parametrize("url", ["http://a/", "ws://", "a", "ws://u:p@a/", "wss:a"])
async def test_what_is_no_plain_websocket_url_is_refused(url: str) -> None:
    with pytest.raises(McpError) as caught:
        await unconnected(ws(url)).connect()
    assert caught.value.fault is Fault.INVALID_REQUEST


@pytest.mark.parametrize("url", ["ws://a:1/b?c=d", "wss://[::1]:4/x"])
def test_the_http_twin_of_a_url_leads_back_to_it(url: str) -> None:
    assert websocket_url(http_twin(url)) == url


async def test_sending_on_a_connection_that_was_never_made_is_an_error_of_ours() -> None:
    transport = await open_transport(ws("ws://a/"))
    with pytest.raises(NotReady):
        await transport.send(Outgoing(b"{}"))
    await transport.close()


async def test_small_messages_leave_without_the_delay_of_nagle() -> None:
    async with scripted_websocket() as peer:
        spec = ws(peer.url)
        transport = await open_transport(spec)
        assert isinstance(transport, WebSocketTransport)
        try:
            await transport.connect(unconnected(spec)._pump)
            assert transport._connection is not None
            opened = transport._connection.transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        finally:
            await transport.close()


async def test_a_message_in_endless_empty_pieces_ends_the_call_by_name() -> None:
    async def pieces(connection: ServerConnection, message: dict[str, Any]) -> None:
        connection.transport.write(b"\x01\x01{" + b"\x00\x00" * 20_000)

    error, _ = await failed_call(at_call(pieces))
    assert error.fault is Fault.MESSAGE_LIMIT


async def test_a_peer_that_pings_without_end_and_reads_no_pong_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_UNREAD", 64 * 1024)

    async def ping(connection: ServerConnection, message: dict[str, Any]) -> None:
        connection.transport.pause_reading()
        while not connection.transport.is_closing():
            connection.transport.write((b"\x89\x7d" + b"x" * 125) * 512)
            await asyncio.sleep(0)

    error, _ = await failed_call(at_call(ping))
    assert error.fault is Fault.CONNECTION_LOST


class Slow:
    """A receiver that works on each message for a while, and notes how many others wait in `frames`."""

    shedding = False

    def __init__(self) -> None:
        self.frames: Any = ()
        self.waited: list[int] = []
        self.last = asyncio.Event()

    def message(self, data: bytes) -> None:
        time.sleep(0.01)
        self.waited.append(len(self.frames))
        if len(data) < 100:
            self.last.set()

    def line(self, stream: str, text: str) -> None:
        pass


async def test_of_a_peer_that_sends_more_than_is_handled_no_more_than_two_messages_wait() -> None:
    async def flood(connection: ServerConnection, message: dict[str, Any]) -> bool:
        for _ in range(30):
            await connection.send("x" * 2**20)
        await connection.send("x")
        return True

    slow: Any = Slow()
    async with scripted_websocket(flood) as peer:
        transport: Any = await open_transport(ws(peer.url, limits=Limits()))
        try:
            await transport.connect(slow)
            slow.frames = transport._connection.recv_messages.frames
            await transport.send(Outgoing(b"{}"))
            await asyncio.wait_for(slow.last.wait(), 30)
        finally:
            await transport.close()
    assert len(slow.waited) == 31
    assert max(slow.waited) <= 2


async def test_a_peer_that_is_busy_with_a_call_need_not_answer_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PING", 0.02)

    async def busy(connection: ServerConnection, message: dict[str, Any]) -> None:
        connection.transport.pause_reading()
        await asyncio.sleep(0.3)
        connection.transport.resume_reading()
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": OK}))

    async with session(at_call(busy)) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK


async def test_a_peer_that_never_says_goodbye_is_left() -> None:
    async with scripted_websocket() as peer:
        async with connected(ws(peer.url)):
            peer.connections[0].transport.pause_reading()
        peer.connections[0].transport.abort()


def own_authority(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(server's, client's) contexts of a certificate for 127.0.0.1 that only these two trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(pem + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_a_secure_connection_needs_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    server, client = own_authority(tmp_path)
    async with scripted_websocket(tls=server) as peer:
        with pytest.raises(TransportError) as caught:
            await unconnected(ws(peer.url)).connect()
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TLS_FAILED, False)
        async with connected(ws(peer.url, tls=client)) as made:
            assert made.connected.url.startswith("wss://127.0.0.1")
            assert await made.client.ping() > 0
