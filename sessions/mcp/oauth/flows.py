"""The complete flows: from a refused request to a sign-in page, from the redirect to a token, or without a user.

Sources: MCP *Authorization* 2025-03-26 to 2026-07-28; extensions *OAuth Client Credentials* (SEP-1046),
*Enterprise-Managed Authorization* (SEP-990), *Workload Identity Federation* (SEP-1933), *DPoP* (SEP-1932).
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from ..core.errors import AuthorizationError
from . import registration, resource_metadata, server_metadata, tokens
from .callback import code_of
from .challenges import Demand
from .exchange import Exchange
from .grant import EndpointAuth, Grant, Pending, Registration
from .scopes import OFFLINE, scopes_to_request, with_offline
from .server_metadata import AuthorizationServer
from .settings import AuthorizationSettings
from .signing import Signer
from .urls import canonical, demand_elsewhere, demand_secure, is_local

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """The authorization server that issues tokens for a server, and the resource and scopes to request. `dpop`: the
    server says that it accepts tokens that are bound to a key."""

    server: AuthorizationServer
    resource: str
    scopes: tuple[str, ...] = ()
    dpop: bool = False


def discover(settings: AuthorizationSettings, demand: Demand, known: Grant | None) -> Exchange[TokenIssuer]:
    metadata = yield from resource_metadata.find(settings.server_url, demand.metadata_urls)
    if metadata is None:
        beside = yield from server_metadata.find_beside(settings.server_url, settings.expected_at)
        return TokenIssuer(beside, canonical(settings.server_url))
    named = _chosen(metadata.issuers, settings, known)
    server = yield from server_metadata.find(named, settings.expected_at(named))
    return TokenIssuer(server, metadata.resource, metadata.scopes, metadata.dpop)


def _chosen(issuers: tuple[str, ...], settings: AuthorizationSettings, known: Grant | None) -> str:
    """The operator's choice, or else the issuer we already know, or else the first; as the server spells its name."""
    issuer = settings.issuer
    chosen = next((one for one in issuers if issuer in (one, settings.expected_at(one))), "") if issuer else ""
    if issuer and not chosen:
        raise AuthorizationError(
            f"The server does not name the authorization server {issuer}, which was chosen for it."
        )
    if chosen:
        return chosen
    return next((one for one in issuers if known is not None and settings.expected_at(one) == known.issuer), issuers[0])


def _blank(
    settings: AuthorizationSettings, demand: Demand, known: Grant | None, found: TokenIssuer, signer: Signer
) -> Grant:
    """A grant without a token: where to get one and for what. Nothing granted by another issuer is carried over."""
    server = found.server
    before = known if known is not None and known.issuer == server.issuer else None
    # A sign-in that never succeeded says nothing: its scopes may be the reason.
    asked = (*before.scopes_requested, *before.scopes_granted) if before and before.scopes_granted else ()
    # The authorization server's support says nothing about the server itself, and most accept only bearer tokens.
    asks = found.dpop or demand.scheme == "dpop" or (not demand.scheme and before is not None and before.dpop_key)
    bound = settings.dpop and asks
    return Grant(
        issuer=server.issuer,
        resource=found.resource,
        token_endpoint=server.token_endpoint,
        scopes_requested=scopes_to_request(demand.scopes, settings.scopes, found.scopes, asked),
        dpop_key=((before.dpop_key if before else "") or signer.new_key()) if bound else "",
        generation=known.generation if known else 0,
    )


# -- flow with a user


@dataclass(frozen=True, slots=True)
class FlowSecrets:
    """Random values for one sign-in, 256 bits each, and the current time in seconds since the epoch."""

    state: str
    verifier: str
    now: float


def sign_in(
    settings: AuthorizationSettings, demand: Demand, known: Grant | None, signer: Signer, made: FlowSecrets
) -> Exchange[Pending]:
    """The flow up to the URL that the user is sent to."""
    found = yield from discover(settings, demand, known)
    server = found.server
    if not server.authorization_endpoint:
        raise AuthorizationError(f"The authorization server {server.issuer} offers no sign-in page.")
    if not (server.pkce or settings.pkce_vouched):
        raise AuthorizationError(
            f"The authorization server {server.issuer} does not advertise support for PKCE with S256. Without it, sign-ins could be intercepted, so the sign-in was not started."
        )
    if not any(map(is_local, settings.entered)):
        demand_elsewhere(server.authorization_endpoint, "The address of the authorization endpoint")
    blank = _blank(settings, demand, known, found, signer)
    scopes = with_offline(blank.scopes_requested, server.scopes)
    client = yield from registration.register(settings, server, known.registration if known else None, scopes)
    grant = replace(blank, registration=client, scopes_requested=scopes)
    url = _address(server.authorization_endpoint, grant, client, made)
    return Pending(made.state, url, made.verifier, grant, made.now, server.iss_promised)


def _address(endpoint: str, grant: Grant, client: Registration, made: FlowSecrets) -> str:
    digest = hashlib.sha256(made.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "state": made.state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "resource": grant.resource,
    }
    if grant.scopes_requested:
        query["scope"] = " ".join(grant.scopes_requested)
    if OFFLINE in grant.scopes_requested:
        query["prompt"] = "consent"
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, urlencode(query))))))


def redeem(pending: Pending, parameters: Mapping[str, str], signer: Signer, now: float) -> Exchange[Grant]:
    """The flow from the redirect's parameters to a token."""
    fields = {
        "grant_type": "authorization_code",
        "code": code_of(pending, parameters),
        "code_verifier": pending.verifier,
        "redirect_uri": pending.grant.registration.redirect_uri if pending.grant.registration else "",
    }
    answer = yield from tokens.ask(pending.grant, fields, signer)
    return tokens.taken(pending.grant, answer, now)


# -- flows without a user


def prepare(settings: AuthorizationSettings, demand: Demand, known: Grant | None, signer: Signer) -> Exchange[Grant]:
    """For a flow without a user: find the authorization server, and return a grant without a token."""
    found = yield from discover(settings, demand, known)
    if not settings.client_id:
        raise AuthorizationError("This way of signing in needs a client ID, but none has been entered for this server.")
    client = registration.by_hand(settings, found.server, known.registration if known else None)
    return replace(_blank(settings, demand, known, found, signer), registration=client)


def renewable(settings: AuthorizationSettings, grant: Grant) -> bool:
    return bool(grant.token_endpoint and (settings.flow != "code" or grant.refresh_token))


def renew(settings: AuthorizationSettings, grant: Grant, signer: Signer, given: str, now: float) -> Exchange[Grant]:
    """The next token from the same server. `given`: the token from the source in the settings (enterprise,
    workload)."""
    if settings.flow == "code":
        fields = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    elif settings.flow == "client_credentials":
        fields = {"grant_type": "client_credentials"}
    elif settings.flow == "workload":
        fields = {"grant_type": JWT_BEARER, "assertion": given}
    else:
        identity = yield from _exchanged(settings, grant, signer, given)
        fields = {"grant_type": JWT_BEARER, "assertion": identity}
    if grant.scopes_requested and settings.flow != "code":
        fields["scope"] = " ".join(grant.scopes_requested)
    answer = yield from tokens.ask(grant, fields, signer)
    return tokens.taken(grant, answer, now)


def _exchanged(settings: AuthorizationSettings, grant: Grant, signer: Signer, id_token: str) -> Exchange[str]:
    """Exchange a user's identity token at the identity provider for an assertion for this server (RFC 8693, ID-JAG)."""
    provider = settings.identity_provider
    if provider is None:
        raise AuthorizationError("No identity provider is set up for this server.")
    demand_secure(provider.token_endpoint, "The identity provider's address")
    fields = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": ID_JAG,
        "subject_token": id_token,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": grant.issuer,
    }
    if grant.scopes_requested:
        fields["scope"] = " ".join(grant.scopes_requested)
    how: EndpointAuth = "client_secret_basic" if provider.client_secret else "none"
    client = Registration(
        provider.token_endpoint, provider.client_id, "registered_by_hand", provider.client_secret, how
    )
    there = Grant(client.issuer, client, grant.resource, provider.token_endpoint)
    answer = yield from tokens.ask(there, fields, signer)
    if answer.issued not in ("", ID_JAG):
        raise AuthorizationError("The identity provider issued a different kind of token than the one requested.")
    if provider.on_assertion is not None:
        provider.on_assertion(answer.access_token)
    return answer.access_token
