"""Signed proofs and assertions match the specifications and never contain the private key."""

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from sessions.mcp.client.authorization_signing import Signing
from sessions.mcp.core.errors import InvalidRequest
from sessions.mcp.oauth.settings import AuthorizationSettings

NOW = 1_800_000_000.5


def signing(key: str = "", algorithm: str = "ES256") -> Signing:
    return Signing(AuthorizationSettings("https://mcp.example/mcp", private_key=key, algorithm=algorithm), lambda: NOW)


def pem(key: Any) -> str:
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return str(key.private_bytes(*kinds).decode())


def test_a_proof_names_the_request_and_the_token_and_shows_the_public_key_only() -> None:
    one = signing()
    key = one.new_key()
    proof = one.proof(key, "POST", "https://mcp.example/mcp?q=1#f", nonce="n", token="access")
    read = jwt.decode(proof, ECKey.import_key(json.loads(key)), algorithms=["ES256"])
    assert read.header["typ"] == "dpop+jwt"
    assert set(read.header["jwk"]) == {"kty", "crv", "x", "y"}
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"access").digest()).rstrip(b"=").decode()
    expected = {"htm": "POST", "htu": "https://mcp.example/mcp", "iat": int(NOW), "nonce": "n", "ath": digest}
    assert {name: value for name, value in read.claims.items() if name != "jti"} == expected


def test_no_proof_is_used_twice() -> None:
    one = signing()
    key = one.new_key()
    proofs = [one.proof(key, "POST", "https://mcp.example/mcp") for _ in range(50)]
    read = [jwt.decode(proof, ECKey.import_key(json.loads(key)), algorithms=["ES256"]) for proof in proofs]
    assert len({each.claims["jti"] for each in read}) == 50
    assert "ath" not in read[0].claims
    assert "nonce" not in read[0].claims


@pytest.mark.parametrize(
    ("make", "kind", "algorithm"),
    [
        (lambda: ec.generate_private_key(ec.SECP256R1()), ECKey, "ES256"),
        (lambda: ec.generate_private_key(ec.SECP384R1()), ECKey, "ES384"),
        (lambda: rsa.generate_private_key(65537, 2048), RSAKey, "RS256"),
        (lambda: rsa.generate_private_key(65537, 2048), RSAKey, "PS256"),
        (ed25519.Ed25519PrivateKey.generate, OKPKey, "Ed25519"),
    ],
    ids=["ES256", "ES384", "RS256", "PS256", "Ed25519"],
)
def test_an_assertion_says_who_we_are_to_one_issuer_for_five_minutes(make: Any, kind: Any, algorithm: str) -> None:
    private = pem(make())
    made = signing(private, algorithm).assertion("me", "https://as.example")
    read = jwt.decode(made, kind.import_key(private), algorithms=[algorithm])
    claims = dict(read.claims)
    assert len(claims.pop("jti")) >= 16
    now = int(NOW)
    assert claims == {"iss": "me", "sub": "me", "aud": "https://as.example", "iat": now, "exp": now + 300}


@pytest.mark.parametrize("algorithm", ["none", "HS256", "", "RS256", "XX999", "ES384"])
def test_a_key_that_does_not_fit_is_refused_in_words_that_hold_nothing_of_it(algorithm: str) -> None:
    private = pem(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(InvalidRequest, match="cannot sign with") as refused:
        signing(private, algorithm).assertion("me", "https://as.example")
    assert private[40:60] not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("key", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot sign with"):
        signing(key).assertion("me", "https://as.example")


def test_nonces_are_kept_by_origin_and_only_the_last_few() -> None:
    one = signing()
    for number in range(20):
        one.keep_nonce(f"https://as{number}.example/token", f"n{number}")
    one.keep_nonce("https://as19.example/token", "")
    assert one.nonce_for("https://as19.example/other") == "n19"
    assert one.nonce_for("https://as0.example/token") == ""
