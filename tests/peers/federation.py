"""The trust relations for `PROTECTED_ISSUER_KEY`, a public key as PEM of a platform and an identity provider.

The token endpoint accepts the platform's token as an assertion (RFC 7523). It also accepts an assertion of the identity
provider, which issues it for an ID token at `/provider/token` (RFC 8693, ID-JAG). Every client is `robot`; at the
provider it is `robot-there`, with the secret in `PROTECTED_PROVIDER_SECRET`.
"""

import base64
import os
import secrets
import time
from typing import Any
from urllib.parse import quote_plus

import jwt
from starlette.datastructures import FormData
from starlette.requests import Request

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
_CLIENT, _CLIENT_THERE = "robot", "robot-there"


class Federation:
    def __init__(self, issuer: str) -> None:
        self._issuer, self._key = issuer, os.environ["PROTECTED_ISSUER_KEY"]
        self._provider_key = secrets.token_hex(32)
        #: the assertions that the provider issued
        self.given: list[str] = []
        # RFC 6749 section 2.3.1: both are encoded as form fields first
        pair = f"{_CLIENT_THERE}:{quote_plus(os.environ.get('PROTECTED_PROVIDER_SECRET', ''))}"
        self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def asserted(self, form: FormData) -> str:
        """The subject of the assertion, or "" when it is invalid."""
        assertion = str(form.get("assertion"))
        found = self._read(assertion, self._key, "ES256", self._issuer)
        if not found and (found := self._read(assertion, self._provider_key, "HS256", self._issuer)):
            found = found if found["client_id"] == _CLIENT else {}
        known = form.get("grant_type") == JWT_BEARER and form.get("client_id") == _CLIENT
        return str(found["sub"]) if found and known else ""

    def exchanged(self, request: Request, form: FormData) -> str:
        """The assertion for the authorization server in exchange for an ID token, or "" when the token is invalid."""
        said = self._read(str(form.get("subject_token")), self._key, "ES256", _CLIENT_THERE)
        asked = (form.get("grant_type"), form.get("requested_token_type"), form.get("subject_token_type"))
        right = request.headers.get("authorization") == self._authorization and form.get("audience") == self._issuer
        if not said or not right or asked != (_EXCHANGE, ID_JAG, _ID_TOKEN):
            return ""
        now = int(time.time())
        told = {"sub": said["sub"], "aud": self._issuer, "client_id": _CLIENT, "iat": now, "exp": now + 60}
        self.given.append(jwt.encode(told, self._provider_key, "HS256", {"typ": "oauth-id-jag+jwt"}))
        return self.given[-1]

    @staticmethod
    def _read(token: str, key: str, algorithm: str, audience: str) -> dict[str, Any]:
        needed: Any = {"require": ["sub", "aud", "exp"]}
        try:
            return jwt.decode(token, key, algorithms=[algorithm], audience=audience, options=needed)
        except jwt.PyJWTError:
            return {}
