"""Authorization of one server: holds the token, renews it, and asks for a new one when the server wants that.

`Authorization` is what transports ask (transports/authorizing.py). Above it stand two things that it is given: a
`TokenStore` (rows in the host, memory in tests) and a `Consent` (a person). Neither sees how a token is got.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..protocol.errors import SignInNeeded
from ..protocol.oauth.exchange import HttpRequest, HttpResponse
from ..protocol.oauth.grant import Grant, Pending, Registration
from ..protocol.oauth.settings import AuthorizationSettings, IdentityProvider
from ..transports.authorizing import Trial

__all__ = [
    "Authorization",
    "AuthorizationSettings",
    "Consent",
    "Grant",
    "IdentityProvider",
    "Pending",
    "Registration",
    "SignInNeeded",
    "TokenStore",
]


class Http(Protocol):
    """Sends one request of a flow through the outbound guard, within its bounds. McpError when no answer came."""

    async def __call__(self, request: HttpRequest) -> HttpResponse: ...


class TokenStore(Protocol):
    """Where the grant of one server (and one identity) rests."""

    async def load(self) -> Grant | None:
        """The grant as it is now, whoever wrote it last."""

    async def save(self, grant: Grant) -> None:
        """Replace it, durably, before it returns: the token before may be worthless already. Never leaves half."""

    def refreshing(self) -> AbstractAsyncContextManager[None]:
        """Held by one at a time in all processes, for as long as one request to a token endpoint takes. Raises
        TransportError when it cannot be had in time."""


class Consent(Protocol):
    """A person who is sent to the authorization server and comes back."""

    async def __call__(self, pending: Pending) -> Mapping[str, str]:
        """The parameters of the redirect. Raises SignInNeeded when nobody is here to be asked."""


class Authorization:
    """One for each server and identity in a process; belongs to one event loop. Raises McpError only."""

    def __init__(
        self,
        settings: AuthorizationSettings,
        store: TokenStore,
        http: Http,
        *,
        consent: Consent | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`http` is the guarded engine (transports/authorization_http.py). Without `consent` every request that
        needs a person ends with SignInNeeded."""
        raise NotImplementedError

    def trial(self, operation: str, *, interactive: bool = True) -> Trial:
        """What a transport asks for each request (transports/authorizing.py)."""
        raise NotImplementedError

    async def begin(self, *, metadata_url: str = "", scopes: tuple[str, ...] = ()) -> Pending:
        """Find the authorization server, register there if needed, and make the URL to send a person to."""
        raise NotImplementedError

    async def finish(self, pending: Pending, parameters: Mapping[str, str]) -> Grant:
        """Check the redirect's parameters (`iss`, error), exchange the code, save and return the grant."""
        raise NotImplementedError
