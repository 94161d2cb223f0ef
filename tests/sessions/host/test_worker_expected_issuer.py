"""A sign-in is refused if the authorization server's metadata has a wrong issuer, until an admin expects that
issuer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.credentials import authorizations, issuers
from servers.enums import AuthorizationState, TransportKind
from servers.models import Server, ServerAuthorization
from servers.registration import registering
from tests.sessions.host.harness import WorkerProcess, eventually

pytestmark = pytest.mark.integration
ENDS = [AuthorizationState.READY, AuthorizationState.FAILED]


class Wrong(BaseHTTPRequestHandler):
    """The resource metadata names the issuer with a trailing slash; the issuer's own metadata omits it."""

    def do_GET(self) -> None:
        origin = f"http://127.0.0.1:{self.server.server_address[1]}"
        ours: dict[str, Any] = {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "code_challenge_methods_supported": ["S256"],
        }
        known = {
            "/.well-known/oauth-protected-resource/mcp": {
                "resource": f"{origin}/mcp",
                "authorization_servers": [f"{origin}/"],
            },
            "/.well-known/oauth-authorization-server": ours,
        }
        body = json.dumps(known.get(self.path, {})).encode()
        self.send_response(200 if self.path in known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def wrong() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wrong)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def journey(user: Any, server: Server) -> ServerAuthorization:
    row = authorizations.begin(Actor.of_user(user), user, server, "browser", authorizations.ChosenClient("client-1"))
    return eventually(ServerAuthorization.objects.filter(pk=row.pk, state__in=ENDS).first, 30, "nobody prepared it")


def test_a_wrong_issuer_is_refused_until_an_admin_expects_it(
    transactional_db: None, shared_worker: WorkerProcess, wrong: str
) -> None:
    user = get_user_model().objects.create_superuser("ada")
    data = Registration(name="Wrong", transport=TransportKind.STREAMABLE_HTTP, url=f"{wrong}/mcp")
    server = registering.register(Actor.of_user(user), user, data, enabled=False)
    refused = journey(user, server)
    assert refused.state == AuthorizationState.FAILED
    assert f"{wrong}/" in refused.detail
    issuers.expect(Actor.of_user(user), user, server, f"{wrong}/", wrong)
    begun = journey(user, server)
    assert (begun.state, begun.issuer, begun.detail) == (AuthorizationState.READY, wrong, "")
    assert authorizations.address(begun).startswith(f"{wrong}/authorize?")
