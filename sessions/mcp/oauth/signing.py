"""The interface for keys, signatures and nonces. `client/authorization_signing.py` implements it, because this package
uses no randomness, clock or key."""

from typing import Protocol


class Signer(Protocol):
    def new_key(self) -> str:
        """A private key for one grant: a JWK as JSON."""

    def proof(self, key: str, verb: str, url: str, *, nonce: str = "", token: str = "") -> str:
        """A DPoP proof; each request needs a new one (RFC 9449 section 4.2)."""

    def assertion(self, client_id: str, audience: str) -> str:
        """A client assertion, signed with the private key of the settings (RFC 7523 section 2.2)."""

    def nonce_for(self, url: str) -> str:
        """The last DPoP nonce from the origin of this address, or an empty string."""

    def keep_nonce(self, url: str, nonce: str) -> None:
        """Remember a nonce for the origin of this address. An empty one changes nothing."""
