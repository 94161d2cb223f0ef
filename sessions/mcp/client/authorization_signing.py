"""Signatures for authorization, made with joserfc: DPoP proofs and client assertions. Keys are parsed once."""

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from ..core.errors import InvalidRequest
from ..oauth.settings import AuthorizationSettings
from ..oauth.urls import origin

#: seconds that a client assertion is valid
_ASSERTION: Final = 300
#: by the prefix of an algorithm's name; symmetric ones are not offered
_KINDS: Final[dict[str, type[RSAKey | ECKey | OKPKey]]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}
#: origins whose nonces are kept: the server, its authorization server, an identity provider
_NONCES: Final = 8


class Signing:
    """Implements sessions/mcp/oauth/signing.py for one server."""

    def __init__(self, settings: AuthorizationSettings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._nonces: dict[str, str] = {}
        self._known: tuple[str, ECKey] | None = None

    def new_key(self) -> str:
        return json.dumps(ECKey.generate_key("P-256").as_dict(private=True))

    def proof(self, key: str, verb: str, url: str, *, nonce: str = "", token: str = "") -> str:
        private = self._key(key)
        header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": private.as_dict(private=False)}
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": verb,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(self._clock()),
        }
        if nonce:
            claims["nonce"] = nonce
        if token:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return jwt.encode(header, claims, private, algorithms=["ES256"])

    def assertion(self, client_id: str, audience: str) -> str:
        algorithm, now = self._settings.algorithm, int(self._clock())
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "iat": now,
            "exp": now + _ASSERTION,
            "jti": secrets.token_urlsafe(16),
        }
        try:
            header = {"alg": algorithm, "typ": "JWT"}
            return jwt.encode(header, claims, self._private_key(algorithm), algorithms=[algorithm])
        except (JoseError, ValueError, TypeError):  # no part of the key may leak
            raise InvalidRequest(f"The private key of this server cannot sign with {algorithm[:20]!r}.") from None

    def nonce_for(self, url: str) -> str:
        return self._nonces.get(origin(url), "")

    def keep_nonce(self, url: str, nonce: str) -> None:
        if nonce and len(nonce) <= 1024:
            self._nonces.pop(origin(url), None)
            self._nonces[origin(url)] = nonce
            while len(self._nonces) > _NONCES:
                del self._nonces[next(iter(self._nonces))]

    def _private_key(self, algorithm: str) -> RSAKey | ECKey | OKPKey:
        kind = _KINDS.get(algorithm[:2])
        if kind is None:
            raise ValueError(algorithm)
        return kind.import_key(self._settings.private_key)

    def _key(self, text: str) -> ECKey:
        if self._known is None or self._known[0] != text:
            self._known = (text, ECKey.import_key(json.loads(text)))
        return self._known[1]
