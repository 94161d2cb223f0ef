"""Authorization server metadata (RFC 8414, OpenID Connect Discovery), and the substitute that 2025-03-26 defines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..core.errors import AuthorizationError
from .exchange import Exchange, get
from .resource_metadata import check_transient
from .scopes import scopes_of
from .urls import base, demand_endpoint, demand_secure

_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """`issuer` is always compared byte for byte. Endpoints are checked addresses, or empty."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    #: None: not stated
    endpoint_auth: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()
    pkce: bool = False
    takes_metadata_documents: bool = False
    iss_promised: bool = False


def find(issuer: str, expected: str = "") -> Exchange[AuthorizationServer]:
    """Look up the issuer that the server's metadata names. `expected`: the issuer that an operator expects in that
    document instead. AuthorizationError if no document is usable."""
    demand_secure(issuer, "The authorization server's address")
    other = ""
    for url in candidates(issuer):
        document = yield from _document(url)
        if document is None:
            continue
        if document.get("issuer") == (expected or issuer):
            return read(document)
        other = other or str(document.get("issuer"))
    if other:
        raise AuthorizationError(
            f"The metadata of the authorization server {issuer[:200]!r} names another issuer ({other[:200]!r}). "
            "An administrator who knows that this is right can set that issuer as expected on the server's settings page, under Credentials."
        )
    raise AuthorizationError(f"The authorization server {issuer[:200]!r} has no readable metadata.")


def _same(issuer: str) -> str:
    return issuer


def find_beside(server_url: str, expected_at: Callable[[str], str] = _same) -> Exchange[AuthorizationServer]:
    """2025-03-26: the server is its own authorization server. Without metadata, its endpoints have fixed paths."""
    issuer = base(server_url)
    demand_secure(issuer, "The server's address")
    document = yield from _document(issuer + _OAUTH)
    if document is None:
        return AuthorizationServer(issuer, f"{issuer}/token", f"{issuer}/authorize", f"{issuer}/register", pkce=True)
    if document.get("issuer") != expected_at(issuer):
        raise AuthorizationError(f"The metadata at {issuer} names another issuer.")
    return read(document)


def candidates(issuer: str) -> list[str]:
    """URLs in the order to try them. An issuer with a path never leads to the documents of its host."""
    root, path = base(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [root + _OAUTH, root + _OPENID]
    return [root + _OAUTH + path, root + _OPENID + path, root + path + _OPENID]


def _document(url: str) -> Exchange[dict[str, Any] | None]:
    response = yield get(url)
    check_transient(response, "authorization server's metadata")
    return response.json() if response.status == 200 else None


def read(document: dict[str, Any]) -> AuthorizationServer:
    """Reads a document whose issuer was already checked. A missing optional endpoint fails later, where it is used."""
    methods = document.get("token_endpoint_auth_methods_supported")
    return AuthorizationServer(
        issuer=document["issuer"],
        token_endpoint=demand_endpoint(document.get("token_endpoint"), "token endpoint"),
        authorization_endpoint=_endpoint(document, "authorization_endpoint", "authorization endpoint"),
        registration_endpoint=_endpoint(document, "registration_endpoint", "registration endpoint"),
        endpoint_auth=tuple(map(str, methods)) if isinstance(methods, list) else None,
        scopes=scopes_of(document.get("scopes_supported")),
        pkce="S256" in _listed(document, "code_challenge_methods_supported"),
        takes_metadata_documents=document.get("client_id_metadata_document_supported") is True,
        iss_promised=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(document: dict[str, Any], name: str, what: str) -> str:
    return demand_endpoint(document[name], what) if document.get(name) else ""


def _listed(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    return value if isinstance(value, list) else []
