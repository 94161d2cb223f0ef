"""Fixtures of the tests in the namespace: DNS names, the wall that accepts every other connection, and certificates
of a private authority."""

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..test_client_certificates import AUTHORITY, made
from .names import Names, name_server
from .namespace import INSIDE
from .wall import PUBLIC, Wall, standing_wall


@pytest.fixture(autouse=True)
def _inside() -> None:
    if INSIDE not in os.environ:
        pytest.skip("runs inside of test_own_network.py")


@pytest.fixture(scope="session")
def _names() -> Iterator[Names]:
    with name_server() as names:
        yield names


@pytest.fixture
def names(_names: Names) -> Names:
    """`mcp.here.test` and `as.here.test` are public, `internal.test` is not."""
    _names.asked.clear()
    _names.zone = {"mcp.here.test": [[PUBLIC]], "as.here.test": [[PUBLIC]], "internal.test": [["10.0.0.5"]]}
    return _names


@pytest.fixture
async def wall() -> AsyncIterator[Wall]:
    async with standing_wall() as wall:
        yield wall


@dataclass(frozen=True)
class Tls:
    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate for all names under here.test."""
    own, file = made("server", AUTHORITY, "*.here.test"), tmp_path_factory.mktemp("tls") / "server.pem"
    Path(file).write_text(own.pem + own.key_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return Tls(server, ssl.create_default_context(cadata=AUTHORITY.pem))
