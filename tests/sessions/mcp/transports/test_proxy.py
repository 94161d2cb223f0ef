"""With an outbound proxy, the guard judges the destination, the proxy receives the address, and TLS names the
server."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.core.errors import AddressRefused, Fault, McpError, TransportError
from sessions.mcp.transports.egress import Allow, OutboundPolicy
from sessions.mcp.transports.proxy import Proxy
from sessions.mcp.transports.registry import HttpSpec, Spec, WebSocketSpec
from sessions.mcp.transports.tls import client_context

from .making import connected, unconnected
from .scripted_http import legacy, scripted_http
from .scripted_sse import SseServer
from .scripted_websocket import OK, scripted_websocket
from .test_client_certificates import AUTHORITY, made

pytestmark = pytest.mark.integration
#: this address is never reached: the scripted proxy connects to a server of the test instead
FAR, NAME = "203.0.113.7", "mcp.far.test"
FAR_ALLOWED = (Allow(ipaddress.ip_network("203.0.113.0/24")),)


@dataclass
class Tunnels:
    port: int
    heads: list[str] = field(default_factory=list)

    @property
    def targets(self) -> set[str]:
        return {head.split(" ")[1] for head in self.heads}

    def proxy(self, exceptions: tuple[str, ...] = (), user: str = "") -> Proxy:
        found = Proxy.parsed(f"http://{user}127.0.0.1:{self.port}", exceptions)
        assert found is not None
        return found

    def policy(self, **more: Any) -> OutboundPolicy:
        return OutboundPolicy(allow=FAR_ALLOWED, **{"proxy": self.proxy(), **more})


@asynccontextmanager
async def tunnels(port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> AsyncIterator[Tunnels]:
    """A proxy that connects every tunnel to this port of the machine."""
    writers: list[asyncio.StreamWriter] = []
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass  # one side has disconnected
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        found.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer)
        if b" 200 " not in answer:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writers.append(back)
        for one in (pump(reader, back), pump(there, writer)):
            task = asyncio.create_task(one)
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found = Tunnels(server.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        server.close()
        for writer in writers:
            writer.close()
        for task in list(pumps):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


@pytest.fixture
def far_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve a name of the network behind the proxy."""
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        return real(FAR if host == NAME else host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


@asynccontextmanager
async def served(kind: str) -> AsyncIterator[int]:
    """The port of a server that speaks this transport."""
    if kind == "websocket":
        async with scripted_websocket() as socket_peer:
            yield port_of(socket_peer.url)
    else:
        script = SseServer().script if kind == "http_sse" else legacy(lambda asked, line: line.result(asked, OK))
        async with scripted_http(script) as peer:
            yield port_of(peer.url)


def spec(kind: str, policy: OutboundPolicy, host: str = NAME, secure: str = "", **more: Any) -> Spec:
    if kind == "websocket":
        return WebSocketSpec(f"ws{secure}://{host}:8080/mcp", policy=policy, **more)
    return HttpSpec(f"http{secure}://{host}:8080/mcp", policy=policy, kind=kind, **more)  # type: ignore[arg-type]  # its fields by name


@pytest.mark.parametrize("kind", ["streamable_http", "http_sse", "websocket"])
async def test_every_transport_goes_through_the_proxy_to_the_judged_address(kind: str, far_name: None) -> None:
    async with served(kind) as port, tunnels(port) as found, connected(spec(kind, found.policy())) as one:
        assert (await one.client.call_tool("t", {})).raw == OK
    assert found.targets == {f"{FAR}:8080"}, "the proxy is never asked to look a name up"


async def test_the_host_header_names_the_server_and_not_the_address(far_name: None) -> None:
    answer = legacy(lambda asked, line: line.result(asked, OK))
    async with (
        scripted_http(answer) as peer,
        tunnels(port_of(peer.url)) as found,
        connected(spec("streamable_http", found.policy())),
    ):
        assert {one.headers["host"] for one in peer.asked} == {f"{NAME}:8080"}


@pytest.mark.parametrize("kind", ["streamable_http", "websocket"])
async def test_tls_names_the_server_inside_of_the_tunnel(kind: str, far_name: None, tmp_path: Path) -> None:
    own = made("server", AUTHORITY, NAME)
    (tmp_path / "server.pem").write_text(own.pem + own.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    trusted = client_context("", "", AUTHORITY.pem)
    answer = legacy(lambda asked, line: line.result(asked, OK))
    async with AsyncExitStack() as life:
        if kind == "websocket":
            url = (await life.enter_async_context(scripted_websocket(tls=context))).url
        else:
            url = (await life.enter_async_context(scripted_http(answer, ssl=context))).url
        found = await life.enter_async_context(tunnels(port_of(url)))
        await life.enter_async_context(connected(spec(kind, found.policy(), secure="s", tls=trusted)))
    assert set(names) == {NAME}
    assert found.targets == {f"{FAR}:8080"}


@pytest.mark.parametrize("kind", ["streamable_http", "http_sse", "websocket"])
@pytest.mark.parametrize("host", [FAR, NAME, "169.254.169.254", "10.1.2.3"])
async def test_a_destination_that_the_guard_refuses_is_never_named_to_the_proxy(
    kind: str, host: str, far_name: None
) -> None:
    async with tunnels(1) as found:
        with pytest.raises(AddressRefused):
            await unconnected(spec(kind, OutboundPolicy(proxy=found.proxy()), host)).connect()
    assert found.heads == []


@pytest.mark.parametrize("kind", ["streamable_http", "http_sse", "websocket"])
async def test_this_machine_is_reached_without_the_proxy(kind: str) -> None:
    async with served(kind) as port, tunnels(1) as found:
        local = replace(spec(kind, OutboundPolicy(allow_loopback=True, proxy=found.proxy())))
        here = replace(local, url=local.url.replace(f"{NAME}:8080", f"127.0.0.1:{port}"))
        async with connected(here):
            pass
    assert found.heads == []


@pytest.mark.parametrize(
    ("exceptions", "through"),
    [((), True), (("far.test",), False), ((".far.test",), False), (("*.far.test",), False), (("ar.test",), True),
     (("203.0.113.0/24",), False), (("203.0.113.7",), False), (("203.0.114.0/24", "other.test"), True)],
)  # fmt: skip
def test_exceptions_are_names_with_all_below_them_and_networks(exceptions: tuple[str, ...], through: bool) -> None:
    proxy = Proxy.parsed("http://proxy.test:3128", exceptions)
    assert proxy is not None
    assert proxy.serves(NAME, FAR) is through


@pytest.mark.parametrize("kind", ["streamable_http", "http_sse", "websocket"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "(HTTP 403). It must allow CONNECT"),
        (b"HTTP/1.1 407 Authenticate\r\n\r\n", "refuses the username and password"),
        (b"SSH-2.0-OpenSSH\r\n", "did not respond like an HTTP proxy"),
        (b"", "did not respond like an HTTP proxy"),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_named_as_what_failed(
    kind: str, answer: bytes, words: str, far_name: None
) -> None:
    async with tunnels(1, answer) as found:
        with pytest.raises(McpError) as caught:
            await unconnected(spec(kind, found.policy())).connect()
    assert isinstance(caught.value, TransportError)
    assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_REFUSED, False)
    assert words in caught.value.detail


async def test_a_proxy_that_is_away_is_named_as_what_failed(far_name: None) -> None:
    async with tunnels(1) as found:
        policy = found.policy()
    with pytest.raises(TransportError, match="outbound proxy"):
        await unconnected(spec("streamable_http", policy)).connect()


async def test_the_proxy_gets_its_password_and_the_server_does_not(far_name: None) -> None:
    answer = legacy(lambda asked, line: line.result(asked, OK))
    async with scripted_http(answer) as peer, tunnels(port_of(peer.url)) as found:
        policy = found.policy(proxy=found.proxy(user="ada:p%40ss@"))
        async with connected(spec("streamable_http", policy)):
            pass
    assert all("Proxy-Authorization: Basic YWRhOnBAc3M=" in head for head in found.heads)
    assert all("proxy-authorization" not in one.headers for one in peer.asked)
    assert "p@ss" not in repr(policy)
    assert "YWRhOnBAc3M" not in repr(policy)


@pytest.mark.parametrize(
    "text", ["proxy.test:3128", "https://proxy.test", "http://", "http://proxy.test/path", "socks5://a"]
)
def test_what_is_no_http_proxy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="outbound proxy"):
        Proxy.parsed(text)
