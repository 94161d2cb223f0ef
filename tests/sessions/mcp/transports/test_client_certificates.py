"""Client certificates with a private authority, against a real TLS server that requests one."""

import asyncio
import datetime as dt
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.oauth.exchange import get
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.engine import engine
from sessions.mcp.transports.tls import client_context, trusting
from tests.sessions.mcp.transports.making import LOCAL


@dataclass(frozen=True)
class Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def made(name: str, signed_by: Pair | None = None, host: str = "") -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    place = x509.DNSName(host) if host else x509.IPAddress(ip_address("127.0.0.1"))
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by.certificate.subject if signed_by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([place]), critical=False)
    )
    return Pair(builder.sign(signed_by.key if signed_by else key, hashes.SHA256()), key)


AUTHORITY = made("authority")


@asynccontextmanager
async def asking_server(folder: Path, mode: ssl.VerifyMode = ssl.CERT_REQUIRED) -> AsyncIterator[str]:
    """Answers with the name in the client's certificate; with CERT_REQUIRED the handshake fails without one."""
    own = made("server", AUTHORITY)
    (folder / "server.pem").write_text(own.pem + own.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.verify_mode = mode
    context.load_verify_locations(cadata=AUTHORITY.pem)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        shown = writer.get_extra_info("peercert") or {"subject": ((("commonName", "nobody"),),)}
        name = dict(pair[0] for pair in shown["subject"])["commonName"]
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\nConnection: close\r\n\r\n{name}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def asked(url: str, context: ssl.SSLContext) -> str:
    transport = engine(OutboundPolicy(allow_loopback=True), Limits(), context, timeout=5)
    try:
        response = await transport.handle_async_request(httpx.Request("GET", url))
        return (await response.aread()).decode()
    finally:
        await transport.aclose()


async def test_a_server_that_asks_for_a_certificate_gets_ours(tmp_path: Path) -> None:
    client = made("ada", AUTHORITY)
    async with asking_server(tmp_path) as url:
        assert await asked(url, client_context(client.pem, client.key_pem, AUTHORITY.pem)) == "ada"


async def test_where_no_file_is_in_memory_a_private_one_is_read_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delattr(os, "memfd_create")
    client = made("ada", AUTHORITY)
    async with asking_server(tmp_path) as url:
        assert await asked(url, client_context(client.pem, client.key_pem, AUTHORITY.pem)) == "ada"
    assert list(folder.iterdir()) == []


async def test_without_a_certificate_or_with_a_strangers_the_door_stays_shut(tmp_path: Path) -> None:
    stranger = made("ada")
    async with asking_server(tmp_path) as url:
        for context in (
            client_context("", "", AUTHORITY.pem),
            client_context(stranger.pem, stranger.key_pem, AUTHORITY.pem),
        ):
            with pytest.raises(httpx.TransportError):
                await asked(url, context)


async def test_a_private_authority_is_trusted_for_its_own_server_only(tmp_path: Path) -> None:
    client = made("ada", AUTHORITY)
    async with asking_server(tmp_path) as url:
        with pytest.raises(httpx.TransportError):
            await asked(url, client_context(client.pem, client.key_pem))
    assert len(client_context("", "", AUTHORITY.pem).get_ca_certs()) == 1


async def test_a_private_authority_alone_opens_its_server_and_shows_no_certificate(tmp_path: Path) -> None:
    async with asking_server(tmp_path, ssl.CERT_OPTIONAL) as url:
        assert await asked(url, client_context("", "", AUTHORITY.pem)) == "nobody"


async def test_a_sign_in_presents_the_certificate_to_the_server_only_and_trusts_its_authority_elsewhere_too(
    tmp_path: Path,
) -> None:
    client = made("ada", AUTHORITY)
    own, elsewhere = client_context(client.pem, client.key_pem, AUTHORITY.pem), trusting(AUTHORITY.pem)
    async with asking_server(tmp_path) as server, asking_server(tmp_path, ssl.CERT_OPTIONAL) as other:
        http = AuthorizationHttp(LOCAL, own, server_url=f"{server}mcp", elsewhere=elsewhere)
        said = [(await http(get(f"{url}.well-known/x"))).body for url in (server, other)]
        assert said == [b"ada", b"nobody"]
        with pytest.raises(McpError) as caught:
            await AuthorizationHttp(LOCAL, own, server_url=server)(get(other))
    assert caught.value.fault is Fault.TLS_FAILED


async def test_a_private_authority_without_key_identifiers_is_accepted_where_python_is_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.13 and later are."""
    usual = ssl.create_default_context

    def strict(*args: Any, **more: Any) -> ssl.SSLContext:
        context = usual(*args, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    refusing = strict(cadata=AUTHORITY.pem)
    ours = (client_context.__wrapped__("", "", AUTHORITY.pem), trusting.__wrapped__(AUTHORITY.pem))
    async with asking_server(tmp_path, ssl.CERT_OPTIONAL) as url:
        with pytest.raises(httpx.TransportError, match=r"(?i)key identifier"):
            await asked(url, refusing)
        assert [await asked(url, context) for context in ours] == ["nobody", "nobody"]
        with pytest.raises(httpx.TransportError, match=r"mismatch|not valid for"):
            await asked(url.replace("127.0.0.1", "localhost"), ours[0])
    assert client_context.__wrapped__("", "").verify_flags & ssl.VERIFY_X509_STRICT


def test_the_private_authority_of_a_server_is_trusted_besides_the_public_ones() -> None:
    assert len(trusting(AUTHORITY.pem).get_ca_certs()) == len(ssl.create_default_context().get_ca_certs()) + 1


def test_a_key_leaves_neither_a_file_nor_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = made("bob", AUTHORITY)
    before = len(os.listdir("/proc/self/fd"))  # some may be those of earlier tests, about to close
    client_context(client.pem, client.key_pem, AUTHORITY.pem)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert list(tmp_path.iterdir()) == []


def test_a_key_with_a_passphrase_is_refused_and_no_one_is_asked_for_it() -> None:
    """In a separate process: OpenSSL would ask at the terminal, or wait for its standard input."""
    client = made("eve", AUTHORITY)
    key = client.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase")).decode()
    program = f"from sessions.mcp.transports.tls import client_context\nclient_context({client.pem!r}, {key!r})"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        timer = threading.Timer(30, child.kill)
        timer.start()
        try:
            assert "ssl.SSLError" in child.stderr.read()
        finally:
            timer.cancel()


def test_equal_certificates_share_a_context() -> None:
    client = made("eve", AUTHORITY)
    assert client_context(client.pem, client.key_pem) is client_context(client.pem, client.key_pem)
