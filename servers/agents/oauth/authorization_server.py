"""The authorization code grant with PKCE and refresh tokens, by oauthlib (OAuth 2.1, RFC 6749, 7009, 7636, 8707, 9207).

oauthlib decides what each request needs; `_Rows` answers its queries from our tables. Nothing of a request is kept
between the page that asks for consent and the answer to it: both validate the whole request.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from django.db import transaction
from oauthlib.common import Request, add_params_to_uri
from oauthlib.oauth2 import (
    AuthorizationCodeGrant,
    AuthorizationEndpoint,
    BearerToken,
    FatalClientError,
    InvalidClientIdError,
    MismatchingRedirectURIError,
    OAuth2Error,
    RefreshTokenGrant,
    RequestValidator,
    RevocationEndpoint,
    TokenEndpoint,
)
from oauthlib.oauth2.rfc6749.errors import InvalidRequestError, UnsupportedCodeChallengeMethodError

from servers.agents.addresses import address_of, slug_of
from servers.agents.oauth import clients, grants
from servers.agents.oauth.metadata import DEFAULT_SCOPES, SCOPES, issuer
from servers.models import AgentToken, OAuthClient, OAuthCode

CODE: Final = "code"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_JSON: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}


class CannotReturn(Exception):
    """The client cannot be sent an answer: it, or its redirect URI, is unknown. Only a page can say so."""


class InvalidTarget(OAuth2Error):
    """`invalid_target` of RFC 8707, section 2."""

    error = "invalid_target"


class Refused(Exception):
    """The message is for the person. `url` leads back to the client and tells it why."""

    def __init__(self, words: str, client: OAuthClient, url: str) -> None:
        super().__init__(words)
        self.client = client
        self.url = url


@dataclass(frozen=True)
class AuthorizationRequest:
    """A valid authorization request. `slug` of the endpoint, "" where the client names none (before MCP 2025-06-18)."""

    client: OAuthClient
    redirect_uri: str
    state: str | None
    scopes: list[str]
    slug: str
    challenge: str

    def url(self, **parameters: str) -> str:
        """Back to the client, with `state` and `iss` (RFC 9207)."""
        found = {**parameters, "iss": issuer()} | ({} if self.state is None else {"state": self.state})
        return str(add_params_to_uri(self.redirect_uri, list(found.items())))


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: str


def authorization_request(query: str) -> AuthorizationRequest:
    """`query`: urlencoded. Raises CannotReturn and Refused."""
    try:
        scopes, found = _authorization.validate_authorization_request(f"{issuer()}?{query}")
    except FatalClientError as error:
        raise CannotReturn(_words(error)) from error
    except OAuth2Error as error:
        client = clients.usable(error.client_id)
        if client is None:  # blocked or deleted in this moment
            raise CannotReturn(_words(InvalidClientIdError())) from error
        parameters = [*error.twotuples, ("iss", issuer())]
        raise Refused(_words(error), client, str(add_params_to_uri(error.redirect_uri, parameters))) from error
    request: Request = found["request"]
    asked = AuthorizationRequest(
        client=request.client,
        redirect_uri=found["redirect_uri"],
        state=found["state"],
        scopes=[scope for scope in SCOPES if scope in scopes] or list(DEFAULT_SCOPES),
        slug=slug_of(request.resource) if request.resource else "",
        challenge=found["code_challenge"],
    )
    if (request.resource and not asked.slug) or "resource" in request.duplicate_params:
        words = f"The resource parameter must name one endpoint of {issuer()}."
        raise Refused(words, asked.client, asked.url(error="invalid_target", error_description=words))
    return asked


def token_response(headers: Mapping[str, str], form: str) -> Reply:
    """`form`: urlencoded. Runs in one transaction: a code or token stays used up even if the request fails
    afterwards."""
    with transaction.atomic():
        try:
            found, body, status = _token.create_token_response(issuer(), "POST", form, dict(headers))
        except OAuth2Error as error:  # some malformed requests raise instead of getting an answer
            found, body, status = error.headers, error.json, error.status_code
    return Reply(status, _JSON | found, body)


def revocation_response(headers: Mapping[str, str], form: str) -> Reply:
    with transaction.atomic():
        found, body, status = _revocation.create_revocation_response(issuer(), "POST", form, dict(headers))
    return Reply(status, _JSON | found, body or "")


class _Rows(RequestValidator):
    """What oauthlib requires of an application. Stores on the request what later queries need."""

    # --- clients -------------------------------------------------------------------------------------------------
    def validate_client_id(self, client_id: str, request: Request, *_: Any, **__: Any) -> bool:
        request.client = clients.usable(client_id)
        return request.client is not None

    def client_authentication_required(self, request: Request, *_: Any, **__: Any) -> bool:
        client_id, _secret = _credentials(request)
        client = clients.usable(client_id)
        return client is None or client.confidential

    def authenticate_client(self, request: Request, *_: Any, **__: Any) -> bool:
        client_id, secret = _credentials(request)
        client = clients.usable(client_id)
        genuine = client is not None and clients.has_secret(client, secret)
        request.client = client if genuine else None
        return genuine

    def authenticate_client_id(self, client_id: str | None, request: Request, *_: Any, **__: Any) -> bool:
        """oauthlib gives the id of the form; a client without a secret may also name itself in the header."""
        client_id, _secret = _credentials(request)
        request.client = clients.usable(client_id)
        return request.client is not None and not request.client.confidential

    # --- authorization -------------------------------------------------------------------------------------------
    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: Request, *_: Any, **__: Any) -> bool:
        return clients.matches(request.client, redirect_uri)

    def get_default_redirect_uri(self, client_id: str, request: Request, *_: Any, **__: Any) -> str | None:
        if (code := _noted(request, "code_row")) is not None:  # OAuth 2.1 wants it of the authorization request only
            return str(code.redirect_uri)
        only: list[str] = request.client.redirect_uris
        return only[0] if len(only) == 1 else None

    def validate_response_type(self, client_id: str, response_type: str, *_: Any, **__: Any) -> bool:
        return response_type == CODE

    def is_pkce_required(self, client_id: str, request: Request) -> bool:
        return True

    def get_default_scopes(self, client_id: str, request: Request, *_: Any, **__: Any) -> list[str]:
        return list(DEFAULT_SCOPES)

    def validate_scopes(self, *_: Any, **__: Any) -> bool:
        """Unknown ones are left out (RFC 6749 section 3.3): clients ask for what other servers need."""
        return True

    # --- codes ---------------------------------------------------------------------------------------------------
    def validate_grant_type(self, client_id: str, grant_type: str, *_: Any, **__: Any) -> bool:
        return True  # oauthlib has already rejected all that are not offered

    def validate_code(
        self, client_id: str, code: str, client: OAuthClient, request: Request, *_: Any, **__: Any
    ) -> bool:
        row = grants.take_code(client, code)
        if row is None:
            return False
        _require_resource(request, row.grant)
        request.code_row, request.user, request.scopes = row, row.grant.user, row.grant.scopes
        return True

    def confirm_redirect_uri(
        self, client_id: str, code: str, redirect_uri: str, client: OAuthClient, request: Request, *_: Any, **__: Any
    ) -> bool:
        row: OAuthCode = request.code_row
        return redirect_uri == row.redirect_uri

    def get_code_challenge(self, code: str, request: Request) -> str:
        return str(request.code_row.challenge)

    def get_code_challenge_method(self, code: str, request: Request) -> str:
        return "S256"

    def invalidate_authorization_code(self, *_: Any, **__: Any) -> None:
        """It is used up since `validate_code`."""

    # --- tokens --------------------------------------------------------------------------------------------------
    def validate_refresh_token(
        self, refresh_token: str, client: OAuthClient, request: Request, *_: Any, **__: Any
    ) -> bool:
        # before its one use: the client may ask again, and a second use would end the grant
        _require_resource(request, grants.of_refresh(client, refresh_token))
        grant = grants.take_refresh(client, refresh_token)
        if grant is None:
            return False
        _require_resource(request, grant)
        request.grant, request.user, request.scopes = grant, grant.user, grant.scopes
        return True

    def get_original_scopes(self, refresh_token: str, request: Request, *_: Any, **__: Any) -> list[str]:
        return list(request.grant.scopes)

    def is_within_original_scope(self, *_: Any, **__: Any) -> bool:
        """The answer names the scopes of the grant, whatever was asked for (RFC 6749 section 3.3)."""
        return True

    def rotate_refresh_token(self, request: Request) -> bool:
        return True

    def save_token(self, token: dict[str, Any], request: Request, *_: Any, **__: Any) -> None:
        """Replaces oauthlib's token texts with our own, which name their grant."""
        code: OAuthCode | None = _noted(request, "code_row")
        grant: AgentToken = _noted(request, "grant") if code is None else code.grant
        pair = grants.refresh(grant) if code is None else grants.redeem(code)
        token["access_token"], token["refresh_token"] = pair.access, pair.refresh
        token["expires_in"] = pair.seconds  # less than usual at the end of the grant
        token["scope"] = " ".join(grant.scopes)

    def revoke_token(self, token: str, token_type_hint: str, request: Request, *_: Any, **__: Any) -> None:
        grants.revoke_by_client(request.client, token)


def _credentials(request: Request) -> tuple[str, str]:
    """Client id and secret: of the header (RFC 6749 section 2.3.1), else of the form."""
    scheme, _, given = str(request.headers.get("Authorization") or "").partition(" ")
    if scheme.lower() != "basic":
        return str(request.client_id or ""), str(request.client_secret or "")
    try:
        client_id, _, secret = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return unquote(client_id.replace("+", " ")), unquote(secret.replace("+", " "))


def _noted(request: Request, name: str) -> Any:
    """A value that we stored there. Attributes of oauthlib's request that are not set read the client's parameters."""
    return vars(request).get(name)


def _require_resource(request: Request, grant: AgentToken | None) -> None:
    """A resource that is named must be the grant's (RFC 8707 section 2.2). Raises InvalidTarget."""
    if grant is None or not request.resource:
        return
    if address_of(slug_of(request.resource)) != grant.resource or "resource" in request.duplicate_params:
        words = "The resource parameter must name the endpoint that the person allowed."
        raise InvalidTarget(description=words, request=request)


def _words(error: OAuth2Error) -> str:
    if isinstance(error, InvalidClientIdError):
        return "This client is not known here, or an administrator blocked it."
    if isinstance(error, MismatchingRedirectURIError):
        return "The client did not register this redirect URI."
    return error.description or "The request is not valid."


def _require_s256(request: Request) -> dict[str, Any]:
    """oauthlib also accepts `plain`, uses it as the default, and accepts any challenge (RFC 7636, section 4.2)."""
    if request.code_challenge is None:
        return {}
    if request.code_challenge_method != "S256":
        raise UnsupportedCodeChallengeMethodError(request=request)
    if not _CHALLENGE.fullmatch(request.code_challenge):
        words = "code_challenge must be 43 to 128 characters: letters, digits and -._~."
        raise InvalidRequestError(description=words, request=request)
    return {}


_rows = _Rows()
_bearer = BearerToken(_rows, expires_in=grants.ACCESS_SECONDS)
_code_grant = AuthorizationCodeGrant(_rows, pre_auth=[_require_s256])
_authorization = AuthorizationEndpoint(CODE, _bearer, {CODE: _code_grant})
_token = TokenEndpoint(
    "authorization_code",
    _bearer,
    {"authorization_code": _code_grant, "refresh_token": RefreshTokenGrant(_rows)},
)
_revocation = RevocationEndpoint(_rows, supported_token_types=["access_token", "refresh_token"])
