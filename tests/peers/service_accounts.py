"""The token endpoint for a service account, which the official SDK's endpoint does not support (RFC 6749 section 4.4).

`PROTECTED_ACCOUNT` is "id:secret". With `PROTECTED_ACCOUNT_KEY`, a public key as PEM, the endpoint requires an
assertion signed with the private key instead of the secret (RFC 7523 section 3). `PROTECTED_METHOD` names the only
method of authentication that it accepts.
"""

import base64
import os
from urllib.parse import unquote_plus

import jwt
from starlette.datastructures import FormData
from starlette.requests import Request

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ALGORITHMS = ["RS256", "ES256", "ES384", "ES512"]
_NEEDED = ["iss", "sub", "aud", "exp", "jti"]


class Account:
    def __init__(self, issuer: str) -> None:
        self.identity, _, self._secret = os.environ["PROTECTED_ACCOUNT"].partition(":")
        self._key = os.environ.get("PROTECTED_ACCOUNT_KEY", "")
        self._wanted = os.environ.get("PROTECTED_METHOD", "")
        self._audiences = [issuer, f"{issuer}/token"]
        self._used: set[str] = set()

    def shown(self, request: Request, form: FormData) -> tuple[str, bool]:
        """(the client's authentication method, whether the client is the account)"""
        how, right = self._looked_at(request.headers.get("authorization", ""), form)
        return how, right and self._wanted in ("", how)

    def _looked_at(self, header: str, form: FormData) -> tuple[str, bool]:
        if "client_assertion" in form:
            return "private_key_jwt", self._signed(form)
        if header.startswith("Basic "):
            pair = base64.b64decode(header.removeprefix("Basic ")).decode().split(":")
            return "client_secret_basic", self._known(*map(unquote_plus, pair))
        return "client_secret_post", self._known(str(form.get("client_id")), str(form.get("client_secret")))

    def _known(self, identity: str, secret: str) -> bool:
        return not self._key and (identity, secret) == (self.identity, self._secret)

    def _signed(self, form: FormData) -> bool:
        """Each assertion is valid once, and only for this server."""
        if not self._key or form.get("client_assertion_type") != _ASSERTION:
            return False
        try:
            said = jwt.decode(
                str(form["client_assertion"]), self._key, algorithms=_ALGORITHMS, audience=self._audiences,
                issuer=self.identity, subject=self.identity, options={"require": _NEEDED},
            )  # fmt: skip
        except jwt.PyJWTError:
            return False
        fresh = said["jti"] not in self._used
        self._used.add(said["jti"])
        return fresh
