"""The egress policy judges every address at the moment its socket would open."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from sessions.mcp.core.errors import AddressRefused, Fault, McpError
from sessions.mcp.transports import lookups
from sessions.mcp.transports.base import NameNotResolved
from sessions.mcp.transports.egress import (
    REFUSED,
    Allow,
    GuardedResolver,
    OutboundPolicy,
    RefusedByPolicy,
    refusal_reason,
    socket_factory,
)
from sessions.mcp.transports.registry import Spec, WebSocketSpec

from .making import LOCAL, http, unconnected

OPEN = OutboundPolicy(allow_loopback=True, allow_private=True)

REFUSED_ALWAYS = [
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254",
    "::ffff:169.254.169.254", "169.254.1.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.88.99.1", "192.0.0.1",
    "::", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::",
    "2001:0:7f00:1::", "2001:db8::1", "3fff::1", "fe80::1", "fe80::1%eth0", "ff02::1", "100::1", "fec0::1", "5f00::1",
    "64:ff9b::10.0.0.5", "64:ff9b::100.64.0.1", "64:ff9b::192.168.0.1", "64:ff9b::0.0.0.0", "64:ff9b::169.254.1.1",
    "64:ff9b::224.0.0.1", "64:ff9b::255.255.255.255", "64:ff9b::203.0.113.1", "64:ff9b::168.63.129.16",
    "64:ff9b:1::8.8.8.8", "64:ff9b::1:0:8.8.8.8", "64:ff9b:0:1::8.8.8.8", "64:ff9a::8.8.8.8", "2002:808:808::",
    "::8.8.8.8", "::ffff:0:8.8.8.8",
]  # fmt: skip
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.0.1", "100.64.0.1", "100.127.255.254", "fc00::1", "fd12::1",
           "::ffff:10.0.0.1"]  # fmt: skip
PUBLIC = ["1.1.1.1", "100.63.255.254", "100.128.0.1", "172.32.0.1", "11.0.0.1", "2606:4700::1111", "::ffff:8.8.8.8",
          "64:ff9b::8.8.8.8", "64:ff9b::8c52:7906", "64:ff9b::100.128.0.1"]  # fmt: skip
NO_ADDRESS = ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "localhost", "", "①②⑦.0.0.1", "1.2.3.4/8"]


@pytest.mark.parametrize("address", REFUSED_ALWAYS + NO_ADDRESS)
def test_what_is_no_public_address_is_refused_under_every_policy(address: str) -> None:
    assert refusal_reason(address, 443, OutboundPolicy()) is not None
    assert refusal_reason(address, 443, OPEN) is not None


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_its_own_permission(address: str) -> None:
    assert refusal_reason(address, 80, OutboundPolicy()) is not None
    assert refusal_reason(address, 80, OutboundPolicy(allow_private=True)) is not None
    assert refusal_reason(address, 80, OutboundPolicy(allow_loopback=True)) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_networks_need_their_own_permission(address: str) -> None:
    assert refusal_reason(address, 80, OutboundPolicy()) is not None
    assert refusal_reason(address, 80, OutboundPolicy(allow_loopback=True)) is not None
    assert refusal_reason(address, 80, OutboundPolicy(allow_private=True)) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal_reason(address, 443, OutboundPolicy()) is None


def test_an_exception_opens_its_network_and_port_and_nothing_else() -> None:
    policy = OutboundPolicy(allow=(Allow(ipaddress.ip_network("192.168.0.120/32"), 8080),))
    assert refusal_reason("192.168.0.120", 8080, policy) is None
    assert refusal_reason("192.168.0.120", 8081, policy) is not None
    assert refusal_reason("192.168.0.121", 8080, policy) is not None


@pytest.mark.parametrize(
    ("text", "network", "port"),
    [
        ("10.1.0.0/16", "10.1.0.0/16", None),
        (" 10.1.2.3/16 ", "10.1.0.0/16", None),
        ("10.1.0.5:8080", "10.1.0.5/32", 8080),
        ("10.1.0.0/16:443", "10.1.0.0/16", 443),
        ("fd00::/8", "fd00::/8", None),
        ("fd00::1:8080", "fd00::1:8080/128", None),
        ("[fd00::5]:8080", "fd00::5/128", 8080),
        ("[fd00::/8]:65535", "fd00::/8", 65535),
    ],
)
def test_an_entry_of_the_operator_is_a_network_with_or_without_a_port(
    text: str, network: str, port: int | None
) -> None:
    assert Allow.parsed(text) == Allow(ipaddress.ip_network(network), port)


@pytest.mark.parametrize(
    "text", ["", "internal.test", "internal.test:80", "10.1.0.5:0", "10.1.0.5:65536", "10.1.0.5:", ":80"]
)
def test_an_entry_that_is_no_network_opens_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Allow.parsed(text)


VERDICTS = {
    "169.254.169.254": "it is a cloud metadata service",
    "fd00:ec2::254": "it is a cloud metadata service",
    "::ffff:169.254.169.254": "it is a cloud metadata service",
    "127.255.255.254": "it is this machine itself (loopback)",
    "::ffff:127.0.0.1": "it is this machine itself (loopback)",
    "100.64.0.1": "it is a private network address",
    "::ffff:10.0.0.1": "it is a private network address",
    "64:ff9b:1::7f00:1": "it is not a public internet address",
    "64:ff9b::10.0.0.5": "it is not a public internet address",
    "64:ff9b::8.8.8.8": None,
    "2002:7f00:1::": "it is not a public internet address",
    "::127.0.0.1": "it is not a public internet address",
    "224.0.0.1": "it is not a public internet address",
    "168.63.129.16": "it is a cloud metadata service",
    "0x7f.1": "it is not a plain IP address",
    "100.63.255.254": None,
    "2606:4700::1111": None,
}


@pytest.mark.parametrize(("address", "verdict"), VERDICTS.items())
def test_a_verdict_says_why(address: str, verdict: str | None) -> None:
    assert refusal_reason(address, 443, OutboundPolicy()) == verdict


def test_no_exception_opens_a_metadata_service() -> None:
    policy = OutboundPolicy(True, True, (Allow(ipaddress.ip_network("0.0.0.0/0")), Allow(ipaddress.ip_network("::/0"))))
    assert refusal_reason("169.254.169.254", 80, policy) is not None
    assert refusal_reason("fd00:ec2::254", 80, policy) is not None
    for through_a_gateway in ("64:ff9b::a9fe:a9fe", "64:ff9b:1::169.254.169.254", "2002:a9fe:a9fe::1"):
        assert refusal_reason(through_a_gateway, 80, policy) == "it is a cloud metadata service"
    assert refusal_reason("64:ff9b::8.8.8.8", 80, policy) is None


@pytest.mark.parametrize("whole", ["64:ff9b::/96", "64:ff9b::/32", "::/0"])
def test_an_exception_for_all_that_nat64_reaches_opens_no_private_network_behind_it(whole: str) -> None:
    gateway = Allow(ipaddress.ip_network(whole))
    for address in ("64:ff9b::10.0.0.5", "64:ff9b::127.0.0.1", "64:ff9b::169.254.1.1", "64:ff9b::224.0.0.1"):
        assert refusal_reason(address, 443, OutboundPolicy(allow=(gateway,))) is not None
    both = OutboundPolicy(allow=(gateway, Allow.parsed("10.0.0.0/8:443")))
    assert refusal_reason("64:ff9b::10.0.0.5", 443, both) is None
    assert refusal_reason("64:ff9b::10.0.0.5", 80, both) is not None
    assert refusal_reason("64:ff9b::10.0.0.5", 443, OutboundPolicy(allow=(Allow.parsed("10.0.0.0/8"),))) is not None


def test_an_exception_for_a_part_of_what_nat64_reaches_opens_that_part() -> None:
    policy = OutboundPolicy(allow=(Allow.parsed("64:ff9b::10.0.0.0/104"),))
    assert refusal_reason("64:ff9b::10.0.0.5", 443, policy) is None
    assert refusal_reason("64:ff9b::192.168.0.1", 443, policy) is not None


def test_the_socket_factory_judges_what_it_is_given() -> None:
    info: Any = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.5", 80))
    with pytest.raises(RefusedByPolicy):
        socket_factory(OutboundPolicy())(info)
    socket_factory(OPEN)(info).close()


async def test_one_bad_address_refuses_the_whole_answer_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(*args: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("1.2.3.4", "10.0.0.5")]

    monkeypatch.setattr(socket, "getaddrinfo", mixed)
    with pytest.raises(RefusedByPolicy):
        await GuardedResolver(OutboundPolicy(), 5).resolve("mixed.test", 80)


@dataclass
class Resolver:
    """The system's. Names that begin with `silent` get no answer before `ended`."""

    asked: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, host: str, port: int, *args: object) -> list[Any]:
        self.asked.append(host)
        if host.startswith("silent"):
            self.ended.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.2.3.4", port))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.ended.set()


async def test_a_lookup_that_never_ends_is_ended(resolver: Resolver) -> None:
    with pytest.raises(OSError, match="took longer"):
        await GuardedResolver(OutboundPolicy(), 0.05).resolve("silent.test", 80)


async def test_names_whose_servers_do_not_answer_do_not_delay_the_lookup_of_another(resolver: Resolver) -> None:
    silent = [asyncio.create_task(addresses_of(f"silent{number}.test")) for number in range(40)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await addresses_of("good.test") == ["1.2.3.4"]
    assert not any(one.done() for one in silent)
    resolver.ended.set()
    assert await asyncio.gather(*silent) == [["1.2.3.4"]] * 40


async def test_a_name_that_hangs_is_looked_up_once_at_a_time_however_many_ask_and_give_up(resolver: Resolver) -> None:
    for _ in range(3):
        tried = (GuardedResolver(OutboundPolicy(), 0.05).resolve("silent-for-many.test", 80) for _ in range(50))
        assert {type(one) for one in await asyncio.gather(*tried, return_exceptions=True)} == {NameNotResolved}
    waiting = asyncio.create_task(addresses_of("silent-for-many.test"))
    await asyncio.sleep(0)
    assert resolver.asked == ["silent-for-many.test"]
    resolver.ended.set()
    assert await waiting == ["1.2.3.4"], "a caller that gave up does not take the answer from one that waits"
    assert await addresses_of("silent-for-many.test") == ["1.2.3.4"]
    assert resolver.asked == ["silent-for-many.test"] * 2, "an answer is for those who waited for it"


async def test_a_lookup_that_no_one_waits_for_any_more_is_not_begun(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as one_thread:
        monkeypatch.setattr(lookups, "_threads", one_thread)
        waiting = asyncio.create_task(addresses_of("silent-alone.test"))
        await asyncio.sleep(0)
        with pytest.raises(NameNotResolved):
            await GuardedResolver(OutboundPolicy(), 0.05).resolve("late.test", 80)
        resolver.ended.set()
        await waiting
        assert await addresses_of("good.test") == ["1.2.3.4"]
    assert resolver.asked == ["silent-alone.test", "good.test"]


async def addresses_of(name: str) -> list[str]:
    return [one["host"] for one in await GuardedResolver(OutboundPolicy(), 20).resolve(name, 80)]


SPELLINGS = [
    "127.0.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.1",
    "127.1",
    "127。0。0。1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0",
]
Maker = Callable[[str, OutboundPolicy], Spec]
#: one for each transport that opens sockets
MAKERS = [
    pytest.param(lambda at, policy: http(f"http://{at}/mcp", policy=policy), id="http"),
    pytest.param(lambda at, policy: http(f"http://{at}/sse", policy=policy, kind="http_sse"), id="sse"),
    pytest.param(lambda at, policy: WebSocketSpec(f"ws://{at}/mcp", policy=policy), id="websocket"),
    pytest.param(lambda at, policy: http(f"https://{at}/mcp", policy=policy), id="https"),
    pytest.param(lambda at, policy: WebSocketSpec(f"wss://{at}/mcp", policy=policy), id="wss"),
]


@dataclass
class Listener:
    port: int
    #: connections that arrived, in order
    peers: "asyncio.Queue[str]"

    async def reached_only_by_us(self) -> bool:
        """Connections are accepted in order, so if ours arrives first, there was no earlier one."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        ours = writer.get_extra_info("sockname")[1]
        first = await asyncio.wait_for(self.peers.get(), 10)
        writer.close()
        return first == str(ours) and self.peers.empty()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    """An internal service on every address of this machine."""
    peers: asyncio.Queue[str] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.put_nowait(str(writer.get_extra_info("peername")[1]))
        writer.close()

    dual = socket.has_dualstack_ipv6()
    bound = socket.create_server(("", 0), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual)
    server = await asyncio.start_server(serve, sock=bound)
    try:
        yield Listener(bound.getsockname()[1], peers)
    finally:
        server.close()


@pytest.mark.integration
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("host", SPELLINGS)
@pytest.mark.parametrize("look_first", [True, False])
async def test_no_spelling_of_loopback_reaches_a_listener(
    host: str, look_first: bool, make: Maker, listener: Listener
) -> None:
    client = unconnected(make(f"{host}:{listener.port}", OutboundPolicy()))
    with pytest.raises(McpError) as caught:
        await client.connect((lambda step: None) if look_first else None)
    assert caught.value.fault in (Fault.ADDRESS_REFUSED, Fault.DNS_FAILED, Fault.INVALID_REQUEST)
    assert not caught.value.may_have_run
    assert await listener.reached_only_by_us()


@pytest.mark.integration
@pytest.mark.parametrize("make", MAKERS)
async def test_the_listener_counts_what_the_policy_allows(make: Maker, listener: Listener) -> None:
    client = unconnected(make(f"localhost:{listener.port}", LOCAL))
    with pytest.raises(McpError):
        await client.connect()
    assert not await listener.reached_only_by_us()


@pytest.mark.integration
@pytest.mark.parametrize("make", MAKERS)
async def test_a_name_that_turns_to_loopback_between_two_lookups_reaches_nothing(
    make: Maker, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["93.184.215.14", "127.0.0.1"]
    asked: list[str] = []

    def rebinding(host: str, port: int, *args: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[min(len(asked), 2) - 1], port))]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", rebinding)
        with pytest.raises(AddressRefused):
            await unconnected(make(f"rebinding.test:{listener.port}", OutboundPolicy())).connect(lambda step: None)
    assert asked == ["rebinding.test"] * 2
    assert await listener.reached_only_by_us()


@pytest.mark.parametrize(
    "url", ["http://ok@127.0.0.1/", "ftp://a/b", "http://", "nonsense", "http://a:b@c/", "file:///etc/passwd"]
)
async def test_a_url_that_is_no_plain_http_url_is_refused_before_any_lookup(url: str) -> None:
    with pytest.raises(McpError) as caught:
        await unconnected(http(url)).connect()
    assert caught.value.fault is Fault.INVALID_REQUEST


async def test_the_refusal_of_an_address_is_a_local_error_and_certain() -> None:
    with pytest.raises(AddressRefused) as caught:
        await unconnected(http("http://10.1.2.3/mcp", policy=OutboundPolicy())).connect()
    assert not caught.value.may_have_run
    assert caught.value.detail == REFUSED
