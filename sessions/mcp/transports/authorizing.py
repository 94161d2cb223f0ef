"""The authorization interface of HTTP transports, which know nothing of flows, tokens or authorization servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 401 or 403 answer: its WWW-Authenticate lines and its DPoP nonce."""

    status: int
    challenges: Sequence[str] = ()
    dpop_nonce: str = ""


class Trial(Protocol):
    """One request that may need several attempts. Create one for each request and consult it before every attempt."""

    async def headers(self, verb: str, url: str) -> Mapping[str, str]:
        """The headers that authorize this attempt. McpError if no token can be obtained."""

    async def refused(self, refusal: Refusal) -> bool:
        """True: something changed, repeat the request. False: the refusal is final. McpError (such as SignInNeeded) if
        the reason for the missing token is known."""

    def answered(self, dpop_nonce: str) -> None:
        """Report any other answer. Use a nonce in it from now on (RFC 9449 section 8.2)."""


class Authorizer(Protocol):
    def trial(self, operation: str, *, interactive: bool = True) -> Trial:
        """`operation`: a method's name. Without `interactive`, the request is never a reason to ask a user to sign
        in."""

    async def settle(self) -> None:
        """Wait until no token request is pending: a token that was issued and not saved is lost."""
