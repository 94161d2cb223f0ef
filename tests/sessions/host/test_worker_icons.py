"""A real worker fetches icons of tools over TLS: guarded, bounded, images only. Pages show our stored copies."""

import base64
import gzip
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.agents.oauth import clients
from servers.audit.record import Actor
from servers.enums import DocumentState
from servers.models import Icon, OAuthClient
from sessions.connections import icons
from sessions.models import McpSession
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import await_ready, ended, eventually, wake
from tests.sessions.host.make import make_call, make_session
from tests.sessions.mcp.transports.test_client_certificates import AUTHORITY, made

pytestmark = pytest.mark.integration
SHELF = Path(__file__).with_name("shelf_server.py")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
GIF = b"GIF89a" + b"\0" * 20
INLINE = "data:image/gif;base64," + base64.b64encode(GIF).decode()
PATHS: dict[str, tuple[int, bytes]] = {
    "/good.png": (200, PNG),
    "/big.png": (200, PNG + b"\0" * 200_000),
    "/page.png": (200, b"<svg onload=alert(1)>"),
    "/moved.png": (302, b""),
}


class Gallery(BaseHTTPRequestHandler):
    """Compresses what may be compressed, as the hosts of static files do; `/packed.json` even what may not."""

    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        type(self).asked.append((self.path, dict(self.headers)))
        status, body = PATHS[self.path] if self.path in PATHS else (200, self._document())
        self.send_response(status)
        if "gzip" in self.headers.get("Accept-Encoding", "") or self.path == "/packed.json":
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Location", "/good.png")
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _document(self) -> bytes:
        """The metadata document of a client."""
        found = {"client_id": f"https://{self.headers['Host']}{self.path}", "redirect_uris": ["http://127.0.0.1/cb"]}
        return json.dumps(found).encode()

    def log_message(self, *words: Any) -> None: ...


@pytest.fixture
def gallery(tmp_path: Path) -> Iterator[tuple[str, type[Gallery]]]:
    """(address, handler): an https server whose certificate the worker trusts through SSL_CERT_FILE."""
    own = made("gallery", AUTHORITY)
    (tmp_path / "gallery.pem").write_text(own.pem + own.key_pem)
    (tmp_path / "authority.pem").write_text(AUTHORITY.pem)
    handler = type("OwnGallery", (Gallery,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "gallery.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


def put_tools(session: McpSession, sources: dict[str, str]) -> None:
    """List these tools with their icons, besides `put` itself."""
    given = [
        {"name": name, "icons": [{"src": src}], "inputSchema": {"type": "object"}} for name, src in sources.items()
    ]
    call = make_call(session, "put", tools=[{"name": "put", "inputSchema": {"type": "object"}}, *given], tell=["tools"])
    wake(call)
    ended(call)


def test_icons_are_fetched_by_the_worker_within_bounds_and_shown_from_our_own_address(
    start_worker: StartWorker, gallery: tuple[str, type[Gallery]], tmp_path: Path
) -> None:
    address, handler = gallery
    start_worker(SSL_CERT_FILE=str(tmp_path / "authority.pem"))
    session = make_session("shelf", command=sys.executable, arguments=[str(SHELF)])
    await_ready(session)
    sources = {name: f"{address}/{name}.png" for name in ("good", "big", "page", "moved")}
    sources |= {"inline": INLINE, "metadata": "https://169.254.169.254/icon.png", "script": "javascript:alert(1)"}
    put_tools(session, sources)
    eventually(lambda: Icon.objects.count() == 6, 30, "the icons were never kept")

    kept = {icon.digest: icon for icon in Icon.objects.all()}
    rows = {name: kept[icons.digest(src)] for name, src in sources.items() if name != "script"}
    assert {name: row.mime for name, row in rows.items() if row.data} == {"good": "image/png", "inline": "image/gif"}
    assert bytes(rows["good"].data or b"") == PNG
    assert rows["big"].problem == "It is larger than 128 KiB."
    assert rows["page"].problem == "It is not a PNG, JPEG, WebP, GIF or AVIF picture."
    assert rows["moved"].problem == "Its address answered with HTTP 302."
    assert "guard" in rows["metadata"].problem
    assert sorted(path for path, _ in handler.asked) == ["/big.png", "/good.png", "/moved.png", "/page.png"]
    assert not any({"cookie", "authorization"} & {name.lower() for name in headers} for _, headers in handler.asked)

    ada = Client()
    ada.force_login(get_user_model().objects.create_superuser("ada", password="correct horse battery"))
    page = ada.get("/servers/shelf/tools/").content.decode()
    assert page.count("/servers/shelf/icons/") == 2
    assert address not in page[page.index('id="tool-list"') : page.index('id="tool-form"')]
    answer = ada.get(f"/servers/shelf/icons/{rows['good'].digest}/")
    assert (answer.content, answer["Content-Type"], answer["X-Content-Type-Options"]) == (PNG, "image/png", "nosniff")
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert ada.get(f"/servers/shelf/icons/{rows['page'].digest}/").status_code == 404
    assert Client().get(f"/servers/shelf/icons/{rows['good'].digest}/").status_code in (302, 403, 404)

    before = len(handler.asked)
    Icon.objects.filter(pk=rows["good"].pk).update(expires_at=timezone.now() - timedelta(hours=1))
    put_tools(session, {"good": sources["good"]})
    eventually(lambda: Icon.objects.get(pk=rows["good"].pk).expires_at > timezone.now(), 30, "it was never renewed")
    assert [path for path, _ in handler.asked[before:]] == ["/good.png"]


def test_the_document_of_a_client_is_read_from_a_host_that_compresses(
    start_worker: StartWorker, gallery: tuple[str, type[Gallery]], tmp_path: Path
) -> None:
    address, handler = gallery
    start_worker(SSL_CERT_FILE=str(tmp_path / "authority.pem"))
    ada = get_user_model().objects.create_superuser("ada", password="correct horse battery")

    def read(path: str) -> OAuthClient:
        row = clients.of_document(Actor.of_user(ada), ada, f"{address}{path}")
        assert clients.ask(row)
        rows = OAuthClient.objects.filter(pk=row.pk, document__in=[DocumentState.READ, DocumentState.FAILED])
        return eventually(rows.first, 30, "the document was never read")

    kept = read("/client.json")
    assert (kept.document, kept.document_problem) == (DocumentState.READ, "")
    assert kept.redirect_uris == ["http://127.0.0.1/cb"]
    assert read("/packed.json").document_problem == "Its address compressed the answer, which was not requested."
    assert [path for path, _ in handler.asked] == ["/client.json", "/packed.json"]
