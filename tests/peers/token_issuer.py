"""Signs the tokens that `protected_server.py` trusts, as a platform or an identity provider."""

import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import ECKey


def environment(key: ECKey, log: Path, provider_secret: str) -> dict[str, str]:
    """The environment that makes the server trust `key`."""
    public = key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    trusted = {"PROTECTED_ISSUER_KEY": public, "PROTECTED_PROVIDER_SECRET": provider_secret}
    return {"PROTECTED_LOG": str(log)} | trusted


def signed(key: ECKey, audience: str, seconds: int = 600, **more: str) -> str:
    """A token that expires in `seconds`. `more`: claims, such as another `sub`."""
    now = int(time.time())
    claims: dict[str, Any] = {"iss": "https://platform", "sub": "orders", "aud": audience, "iat": now, **more}
    return jwt.encode({"alg": "ES256"}, claims | {"exp": now + seconds}, key)
