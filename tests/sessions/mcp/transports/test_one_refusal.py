"""A refused address reveals nothing else from any source: neither where a name resolves to nor what listens there.
The operator's log has both."""

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from servers.secret import Secret
from sessions.host.subscriptions import webhook_sender
from sessions.mcp.core.errors import AddressRefused, Fault
from sessions.mcp.oauth.exchange import get
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import REFUSED, OutboundPolicy
from sessions.subscriptions.webhooks import Claimed
from tests.peers.peers import closed_port

from .making import unconnected
from .test_egress import MAKERS, Listener, Maker, listener

__all__ = ["listener"]
pytestmark = pytest.mark.integration
NAMES = {"inside.test": ["10.0.0.5"], "here.test": ["127.0.0.1"], "mixed.test": ["93.184.215.14", "192.168.0.9"]}
ODD = ["2130706433", "0x7f.1", "0177.1", "127。0。0。1", "[::ffff:127.0.0.1]"]


def a_delivery(url: str) -> Claimed:
    return Claimed(1, uuid4(), 1, url, b"{}", Secret("whsec_MDEyMzQ1Njc4OWFiY2RlZg=="))


@pytest.fixture
async def places(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Open, closed and filtered ports on every kind of refused address, by number and by name."""
    looked_up = socket.getaddrinfo

    def named(host: Any, port: Any, *how: Any, **more: Any) -> Any:
        if host not in NAMES:
            return looked_up(host, port, *how, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in NAMES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", named)
    here = [f"{host}:{port}" for host in ("127.0.0.1", "[::1]") for port in (listener.port, closed_port())]
    numbers = [f"{host}:80" for host in ("10.255.255.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fd00::1]")]
    return [*here, *numbers, *(f"{host}:{listener.port}" for host in NAMES)]


async def said_of_each(places: list[str], tried: Callable[[str], Awaitable[object]]) -> set[str]:
    found = set()
    for place in places:
        with pytest.raises(AddressRefused) as caught:
            await tried(place)
        found.add(f"{caught.value.fault}: {caught.value.detail}")
    return found


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("look_first", [True, False])
async def test_a_registered_address_is_refused_in_the_same_words(
    make: Maker, look_first: bool, places: list[str], listener: Listener
) -> None:
    step = (lambda _: None) if look_first else None
    odd = [f"{host}:{listener.port}" for host in ODD]
    said = await said_of_each([*places, *odd], lambda place: unconnected(make(place, OutboundPolicy())).connect(step))
    assert said == {f"{Fault.ADDRESS_REFUSED}: {REFUSED}"}
    assert await listener.reached_only_by_us()


async def test_an_address_of_an_authorization_flow_is_refused_in_the_same_words(
    places: list[str], listener: Listener
) -> None:
    """Metadata documents, registration and token endpoint all use this client."""
    said = await said_of_each(places, lambda place: AuthorizationHttp(OutboundPolicy())(get(f"https://{place}/x")))
    assert said == {f"{Fault.ADDRESS_REFUSED}: {REFUSED}"}
    assert await listener.reached_only_by_us()


async def test_an_address_of_a_webhook_is_refused_in_the_same_words(
    places: list[str], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_sender, "egress_policy", OutboundPolicy)
    said = set()
    for place in places:
        attempted = await webhook_sender.attempt(a_delivery(f"https://{place}/hook"))
        said.add((attempted.status, attempted.detail))
    assert len(said) == 1
    assert await listener.reached_only_by_us()


async def test_the_log_of_the_operator_says_which_address_it_was_and_why(
    places: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sessions.mcp.transports.egress"):
        await said_of_each(
            ["inside.test:8443"], lambda place: AuthorizationHttp(OutboundPolicy())(get(f"https://{place}/x"))
        )
    (line,) = caplog.messages
    assert all(part in line for part in ("inside.test", "10.0.0.5", "8443", "private network"))
