"""What an HTTP transport asks about authorization, and tells: it knows no flow, no token and no server of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer 401 or 403: its WWW-Authenticate lines and the DPoP nonce that it gives."""

    status: int
    challenges: Sequence[str] = ()
    dpop_nonce: str = ""


class Trial(Protocol):
    """One request that may need several tries: made for each, and asked before every one."""

    async def headers(self, verb: str, url: str) -> Mapping[str, str]:
        """The headers that authorize this try. McpError when a token cannot be had."""

    async def refused(self, refusal: Refusal) -> bool:
        """True: something changed, send it once more. False: the refusal stands. McpError (SignInNeeded among them)
        when it is known why no token can be had."""

    def answered(self, dpop_nonce: str) -> None:
        """Any other answer; a nonce in it is to be used from now on (RFC 9449 section 8.2)."""


class Authorizer(Protocol):
    def trial(self, operation: str, *, interactive: bool = True) -> Trial:
        """`operation`: a method's name. Not `interactive`: never a reason to send a person somewhere."""
