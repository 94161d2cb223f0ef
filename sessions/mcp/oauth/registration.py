"""Client registration (MCP *Client Registration*): entered by hand, with our metadata document, or dynamic."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from ..core.errors import AuthorizationError
from .exchange import Exchange, HttpResponse, post_json
from .grant import EndpointAuth, Registration, is_sendable
from .resource_metadata import check_transient
from .scopes import scopes_in, usable
from .server_metadata import AuthorizationServer
from .settings import AuthorizationSettings
from .urls import is_loopback
from .words import server_said

#: in order of preference
_WITH_SECRET: Final[tuple[EndpointAuth, ...]] = ("client_secret_basic", "client_secret_post")
_GRANTS: Final = ["authorization_code", "refresh_token"]


def register(
    settings: AuthorizationSettings, server: AuthorizationServer, known: Registration | None, scopes: tuple[str, ...]
) -> Exchange[Registration]:
    """Use the first method that is possible. `known`: the previous registration; useless at another issuer. `scopes`:
    those that the client will request."""
    if (entered := _entered(settings, server, known)) is not None:
        return by_hand(entered, server, known)
    if known is not None and _fits(known, settings, server, scopes):
        return known
    document = settings.metadata_document
    other = settings.document_last and bool(server.registration_endpoint)
    if server.takes_metadata_documents and document and not other:
        return Registration(server.issuer, document, "metadata_document", redirect_uri=settings.redirect_uri)
    if server.registration_endpoint:
        return (yield from _dynamic(settings, server, scopes))
    raise AuthorizationError(
        f"The authorization server {server.issuer} does not support automatic client registration. Register a client there manually with the redirect address of this instance, and enter its client ID."
    )


def _entered(
    settings: AuthorizationSettings, server: AuthorizationServer, known: Registration | None
) -> AuthorizationSettings | None:
    """The settings with the client ID that a person entered: for this sign-in, for an earlier one, or for everyone."""
    if settings.client_id:
        return settings
    shared = settings.shared_client
    if shared is not None and shared.issuer != server.issuer:
        shared = None
    before = known is not None and known.source == "registered_by_hand" and not settings.forget_client
    # If both are for the same client, the shared registration has the newer secret.
    if known is not None and before and not (shared is not None and shared.client_id == known.client_id):
        return replace(settings, client_id=known.client_id, client_secret=known.secret)
    if shared is None:
        return None
    return replace(settings, client_id=shared.client_id, client_secret=shared.secret, client_issuer=shared.issuer)


def by_hand(settings: AuthorizationSettings, server: AuthorizationServer, known: Registration | None) -> Registration:
    """A client id entered by hand belongs to one issuer: the one entered with it, or the first one encountered."""
    bound = settings.client_issuer
    if not bound and known is not None and known.client_id == settings.client_id:
        bound = known.issuer
    if bound and bound != server.issuer:
        raise AuthorizationError(
            f"The server now names the authorization server {server.issuer}, but the client ID was entered for "
            f"{bound}. Enter the client ID for the new one if you trust it."
        )
    return Registration(
        server.issuer,
        settings.client_id,
        "registered_by_hand",
        settings.client_secret,
        _endpoint_auth(server, secret=settings.client_secret, key=settings.private_key),
        settings.redirect_uri,
    )


def metadata_document(url: str, name: str, redirect_uri: str) -> dict[str, Any]:
    """The content of our client ID metadata document. `url` serves it and is, byte for byte, the client id."""
    return {
        "client_id": url,
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": _GRANTS,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


def _fits(
    known: Registration, settings: AuthorizationSettings, server: AuthorizationServer, scopes: tuple[str, ...]
) -> bool:
    same = known.issuer == server.issuer and known.redirect_uri == settings.redirect_uri
    return same and known.source == "dynamic" and (not known.scopes or set(scopes) <= set(known.scopes))


def _endpoint_auth(server: AuthorizationServer, *, secret: str, key: str) -> EndpointAuth:
    """RFC 8414: a server that names no method accepts client_secret_basic."""
    if key:
        return "private_key_jwt"
    if not secret:
        return "none"
    offered = server.endpoint_auth or ()
    return next((one for one in _WITH_SECRET if one in offered), "client_secret_basic")


# -- dynamic registration (RFC 7591)


def _dynamic(
    settings: AuthorizationSettings, server: AuthorizationServer, scopes: tuple[str, ...]
) -> Exchange[Registration]:
    """Names the scopes, because some servers, such as the one in the official SDK, refuse a client all other scopes.
    Retries without them, because others refuse clients that name any."""
    request = _request(settings, server)
    response = yield post_json(server.registration_endpoint, request | ({"scope": " ".join(scopes)} if scopes else {}))
    check_transient(response, "registration endpoint")
    if scopes and not response.ok:
        response = yield post_json(server.registration_endpoint, request)
        check_transient(response, "registration endpoint")
    said = response.json() or {}
    identity, secret = said.get("client_id"), said.get("client_secret")
    if not response.ok or not isinstance(identity, str) or not identity:
        raise _refused(response)
    kept = secret if isinstance(secret, str) else ""
    if not (is_sendable(identity) and is_sendable(kept)):
        raise AuthorizationError(
            "The authorization server issued a client ID or secret with characters that cannot be sent."
        )
    method = _method_given(said.get("token_endpoint_auth_method"), server, kept)
    listed = scopes_in(said.get("scope"))
    # A server that granted fewer would do so again, so the requested scopes count too.
    allowed = usable((*listed, *scopes)) if listed else ()
    return Registration(server.issuer, identity, "dynamic", kept, method, settings.redirect_uri, allowed)


def _request(settings: AuthorizationSettings, server: AuthorizationServer) -> dict[str, Any]:
    request: dict[str, Any] = {
        "client_name": settings.client_name,
        "redirect_uris": [settings.redirect_uri],
        "grant_types": _GRANTS,
        "response_types": ["code"],
        "application_type": application_type(settings.redirect_uri),
    }
    methods = [one for one in (*_WITH_SECRET, "none") if one in (server.endpoint_auth or ())]
    return request | {"token_endpoint_auth_method": methods[0]} if methods else request


def application_type(redirect_uri: str) -> str:
    """OpenID Connect Registration: the redirect URI of a web client must be https and must not be a loopback."""
    parts = urlsplit(redirect_uri)
    return "web" if parts.scheme == "https" and not is_loopback(parts.hostname or "") else "native"


def _method_given(named: object, server: AuthorizationServer, secret: str) -> EndpointAuth:
    for method in (*_WITH_SECRET, "none"):
        if named == method and (secret or method == "none"):
            return "none" if method == "none" else method
    return _endpoint_auth(server, secret=secret, key="")


def _refused(response: HttpResponse) -> AuthorizationError:
    return AuthorizationError(f"The authorization server did not register this instance. {server_said(response)}")
