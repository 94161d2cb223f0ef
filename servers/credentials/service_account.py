"""A service account: how the authorization server of a server knows this installation, without a person.

MCP extension OAuth Client Credentials (SEP-1046): a client secret, or a private key that signs assertions (RFC 7523).
"""

import re

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django.core.exceptions import ValidationError

from servers.credentials.binding import require_encrypted
from servers.validators import validate_url

MAX_PEM = 64 * 1024
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS = 2048
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749 section 3.3


def check(client: str, issuer: str, secret: str, key: str, scopes: str = "") -> None:
    """Raises ValidationError with messages by part."""
    check_client(client, issuer, scopes)
    if bool(secret) == bool(key):
        words = "Enter either a client secret or a private key."
        raise ValidationError({"secret": ValidationError(words, code="required")})
    if key:
        try:
            algorithm(key)
        except ValueError as problem:
            raise ValidationError({"key": ValidationError(str(problem), code="key")}) from problem


def check_client(client: str, issuer: str, scopes: str) -> None:
    """Check who we are at which authorization server, and what to ask for."""
    if not client:
        raise ValidationError({"client": ValidationError("Enter the client ID.", code="required")})
    check_address("issuer", issuer)
    if any(not _SCOPE.fullmatch(scope) for scope in scopes.split()):
        words = "Separate scopes with spaces. Use ASCII characters without quotes and backslashes."
        raise ValidationError({"scopes": ValidationError(words, code="scopes")})


def check_address(part: str, url: str) -> None:
    """Check the address of a party that receives secrets."""
    try:
        validate_url(url)
        require_encrypted(url)
    except ValidationError as problem:
        raise ValidationError({part: problem.messages}) from problem


def algorithm(key: str) -> str:
    """The key's signing algorithm (RFC 7518 section 3.1). Raises ValueError with a message for a page."""
    try:
        found = load_pem_private_key(key[:MAX_PEM].encode(), password=None)
    except (ValueError, TypeError):
        raise ValueError("This is not a PEM private key without a passphrase.") from None
    if isinstance(found, rsa.RSAPrivateKey) and found.key_size >= _RSA_BITS:
        return "RS256"
    if isinstance(found, ec.EllipticCurvePrivateKey) and found.curve.name in _CURVES:
        return _CURVES[found.curve.name]
    raise ValueError("Use a key of P-256, P-384 or P-521, or RSA with at least 2,048 bits.")
