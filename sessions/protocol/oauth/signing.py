"""What the flows need signed or made up; done by `client/authorization_signing.py`, because nothing here is random,
reads a clock or knows a key."""

from typing import Protocol


class Signer(Protocol):
    def new_key(self) -> str:
        """A private key for one grant: a JWK as JSON."""

    def proof(self, key: str, verb: str, url: str, *, nonce: str = "", token: str = "") -> str:
        """A DPoP proof, a new one for each request (RFC 9449 section 4.2)."""

    def assertion(self, client_id: str, audience: str) -> str:
        """Who we are, signed with the private key of the settings (RFC 7523 section 2.2)."""

    def nonce_for(self, url: str) -> str:
        """The DPoP nonce last given by the origin of this address; empty: none."""

    def keep_nonce(self, url: str, nonce: str) -> None:
        """Remember a nonce for the origin of this address; an empty one changes nothing."""
