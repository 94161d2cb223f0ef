"""The token endpoint: client authentication, token requests, and the meaning of the answers."""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote_plus

from ..core.errors import AuthorizationError, Fault, TransportError
from .exchange import Exchange, HttpRequest, HttpResponse, form
from .grant import Grant, Registration, is_sendable
from .resource_metadata import check_transient
from .scopes import scopes_in
from .signing import Signer
from .words import error_code, server_said

ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,32768}\Z")
#: error codes that some token endpoints use where others use HTTP 503 or 429
_FOR_THE_MOMENT: Final = ("temporarily_unavailable", "server_error", "slow_down")
_SCHEMES: Final = {"bearer": "Bearer", "dpop": "DPoP"}
#: seconds; a longer lifetime is capped
_LONGEST: Final = 10 * 365 * 86_400


class TokenRefused(AuthorizationError):
    """The token endpoint answered with an error; `error` is its code."""

    def __init__(self, detail: str, error: str) -> None:
        super().__init__(detail)
        self.error = error


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    access_token: str
    token_type: str
    expires_in: float | None
    refresh_token: str
    #: None: as requested
    scopes: tuple[str, ...] | None
    #: the type of a token that was exchanged for another (RFC 8693)
    issued: str = ""


def ask(grant: Grant, fields: Mapping[str, str], signer: Signer) -> Exchange[TokenAnswer]:
    """One token request. It is repeated only if the server demands a nonce in the proof (RFC 9449 section 8)."""
    registration = grant.registration
    if registration is None:
        raise AuthorizationError("This instance is not registered with the authorization server.")
    headers, added = authentication(registration, grant.issuer, signer)
    sent = {**fields, **added}
    if grant.resource:
        sent["resource"] = grant.resource
    response = yield _request(grant, sent, headers, signer)
    if _wants_nonce(response):
        signer.keep_nonce(grant.token_endpoint, response.headers.get("dpop-nonce", ""))
        response = yield _request(grant, sent, headers, signer)
    signer.keep_nonce(grant.token_endpoint, response.headers.get("dpop-nonce", ""))
    return read(response, (*sent.values(), *_sent_in(headers, registration)))


def _sent_in(headers: Mapping[str, str], registration: Registration) -> tuple[str, ...]:
    """Our secrets in the headers, longest first."""
    credentials = (value.partition(" ")[2] for value in headers.values())
    return (*credentials, quote_plus(registration.secret), registration.secret)


def _request(grant: Grant, fields: Mapping[str, str], headers: Mapping[str, str], signer: Signer) -> HttpRequest:
    url = grant.token_endpoint
    if not grant.dpop_key:
        return form(url, fields, headers)
    proof = signer.proof(grant.dpop_key, "POST", url, nonce=signer.nonce_for(url))
    return form(url, fields, {**headers, "DPoP": proof})


def _wants_nonce(response: HttpResponse) -> bool:
    named = bool(response.headers.get("dpop-nonce")) and response.status in (400, 401)
    return named and (response.json() or {}).get("error") == "use_dpop_nonce"


def authentication(registration: Registration, audience: str, signer: Signer) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and form fields that authenticate the client (RFC 6749 section 2.3, RFC 7523 section 2.2)."""
    identity, secret = registration.client_id, registration.secret
    if registration.endpoint_auth == "client_secret_basic":
        pair = f"{quote_plus(identity)}:{quote_plus(secret)}".encode()
        # RFC 6749 section 3.2.1: the official SDK's authorization server rejects the form without client_id.
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}, {"client_id": identity}
    if registration.endpoint_auth == "client_secret_post":
        return {}, {"client_id": identity, "client_secret": secret}
    if registration.endpoint_auth == "private_key_jwt":
        signed = signer.assertion(identity, audience)
        return {}, {"client_id": identity, "client_assertion_type": ASSERTION, "client_assertion": signed}
    return {}, {"client_id": identity}


def read(response: HttpResponse, sent: Iterable[str] = ()) -> TokenAnswer:
    """The parsed answer. TokenRefused for an error of the endpoint, TransportError for a temporary one."""
    check_transient(response, "token endpoint")
    said = response.json()
    if not response.ok or said is None or "error" in said:
        code = error_code((said or {}).get("error"))
        if code in _FOR_THE_MOMENT:
            detail = f"The authorization server cannot issue a token right now. {server_said(response, sent)}"
            raise TransportError(Fault.HTTP_STATUS, detail, may_have_run=False)
        raise TokenRefused(f"The authorization server did not issue a token. {server_said(response, sent)}", code)
    token, kind = said.get("access_token"), _SCHEMES.get(str(said.get("token_type", "")).lower(), "")
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise AuthorizationError("The response of the authorization server contains no token that can be sent.")
    renewal, scope = said.get("refresh_token"), said.get("scope")
    if isinstance(renewal, str) and not is_sendable(renewal):
        raise AuthorizationError(
            "The response of the authorization server contains a refresh token that cannot be sent."
        )
    return TokenAnswer(
        token,
        kind or str(said.get("token_type", ""))[:40],
        _lifetime(said.get("expires_in")),
        renewal if isinstance(renewal, str) else "",
        scopes_in(scope) if isinstance(scope, str) else None,
        str(said.get("issued_token_type") or ""),
    )


def _lifetime(value: object) -> float | None:
    """Some servers write the number as text. Any other value counts as missing."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return min(seconds, _LONGEST) if seconds > 0 else None


def taken(grant: Grant, answer: TokenAnswer, now: float) -> Grant:
    """The grant with this token. What the answer omits stays unchanged (RFC 6749 section 6)."""
    if answer.token_type not in _SCHEMES.values():
        raise AuthorizationError(f"The authorization server issued a token of an unknown type ({answer.token_type!r}).")
    if answer.token_type == "DPoP" and not grant.dpop_key:  # noqa: S105  the name of a scheme
        raise AuthorizationError(
            "The authorization server issued a token that is bound to a key that this client did not present."
        )
    granted = answer.scopes if answer.scopes is not None else grant.scopes_granted or grant.scopes_requested
    return replace(
        grant,
        access_token=answer.access_token,
        token_type=answer.token_type,
        refresh_token=answer.refresh_token or grant.refresh_token,
        obtained_at=now,
        expires_at=None if answer.expires_in is None else now + answer.expires_in,
        scopes_granted=granted,
        generation=grant.generation + 1,
    )
