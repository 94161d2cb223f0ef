"""The whole table of addresses and spellings with real sockets, and what the operator may allow (R1, R2, R6, R9)."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.core.errors import McpError
from sessions.mcp.oauth.exchange import get
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import Allow, OutboundPolicy
from sessions.mcp.transports.registry import HttpSpec, Spec, WebSocketSpec

from ..making import unconnected
from ..scripted_http import Asked, Line, scripted_http
from ..test_egress import LOOPBACK, NO_ADDRESS, PRIVATE, PUBLIC, REFUSED_ALWAYS
from .conftest import Tls
from .inside_names import KINDS, NAME, attempt, message, public_server, spec, use
from .names import Names
from .wall import PUBLIC as HERE
from .wall import Wall

KIND = pytest.mark.parametrize("kind", ["http", "http_sse", "websocket"])
#: as hosts of a URL, which excludes networks
SPELLINGS = [one for one in NO_ADDRESS if one and "/" not in one]
EVERYTHING = [*REFUSED_ALWAYS, *LOOPBACK, *PRIVATE, *PUBLIC, *SPELLINGS]


def plain(kind: str, host: str, policy: OutboundPolicy, port: int = 80) -> Spec:
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if kind == "websocket":
        return WebSocketSpec(f"ws://{at}/mcp", policy=policy)
    return HttpSpec(f"http://{at}/mcp", policy=policy, kind="http_sse" if kind == "http_sse" else "auto")


async def knock(one: Spec) -> None:
    client = unconnected(one)
    with pytest.raises(McpError):
        await client.connect()
    await client.close()


def plainly(address: str) -> str:
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


@KIND
async def test_of_the_whole_table_only_public_addresses_are_reached(kind: str, wall: Wall, names: Names) -> None:
    for address in EVERYTHING:
        await knock(plain(kind, address, OutboundPolicy()))
    assert await wall.reached() == {f"{plainly(address)} 80" for address in PUBLIC}


@KIND
async def test_with_every_permission_what_is_no_network_of_anyone_stays_closed(
    kind: str, wall: Wall, names: Names
) -> None:
    for address in [*REFUSED_ALWAYS, *SPELLINGS]:
        await knock(plain(kind, address, OutboundPolicy(allow_private=True)))
    assert await wall.reached() == set()


@KIND
async def test_an_entry_of_the_operator_opens_its_address_and_port_only(kind: str, wall: Wall) -> None:
    policy = OutboundPolicy(allow=(Allow(ipaddress.ip_network("192.168.0.120/32"), 8080),))
    for address in ("192.168.0.121", "169.254.169.254", "127.0.0.1", "::ffff:192.168.0.121", "192.168.0.120"):
        for port in (80, 8080):
            await knock(plain(kind, address, policy, port))
    assert await wall.reached() == {"192.168.0.120 8080"}


@KIND
async def test_no_entry_opens_a_metadata_service(kind: str, wall: Wall) -> None:
    policy = OutboundPolicy(True, True, (Allow(ipaddress.ip_network("0.0.0.0/0")), Allow(ipaddress.ip_network("::/0"))))
    for address in ("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"):
        await knock(plain(kind, address, policy))
    assert await wall.reached() == set()


PROXIES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY", "SOCKS_PROXY"]


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A proxy for every scheme and a password for every host, as a shell may export them."""
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    (tmp_path / ".netrc").write_text("default login someone password of-the-netrc\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_of_the_environment_is_not_used_by_a_transport(
    kind: str, names: Names, wall: Wall, tls: Tls, proxied: None
) -> None:
    names.zone[NAME] = [[HERE]]
    async with public_server(kind, tls):
        assert await use(spec(kind, tls.client), look_first=True) is None
    assert await wall.reached() == set()


async def test_a_proxy_of_the_environment_is_not_used_by_a_webhook_or_a_sign_in(
    names: Names, wall: Wall, tls: Tls, proxied: None, settings: Any
) -> None:
    settings.ALLOW_LOOPBACK, settings.ALLOWED_NETWORKS = False, []

    async def script(asked: Asked, line: Line) -> None:
        await line.json({})

    where: dict[str, Any] = {"host": HERE, "reuse_port": True}
    async with scripted_http(script, port=8080, **where) as hook:
        assert (await attempt(message("http://mcp.here.test:8080/hook"))).delivered
    async with scripted_http(script, port=443, ssl=tls.server, **where) as signs_in:
        assert (await AuthorizationHttp(OutboundPolicy(), tls.client)(get("https://as.here.test/"))).status == 200
    assert len(hook.asked) == len(signs_in.asked) == 1
    assert not any("authorization" in one.headers for one in (*hook.asked, *signs_in.asked))
    assert await wall.reached() == set()
