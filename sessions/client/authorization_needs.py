"""What an Authorization is given by the layers above and below it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..protocol.oauth.exchange import HttpRequest, HttpResponse
from ..protocol.oauth.grant import Grant, Pending


class Http(Protocol):
    """Sends one request of a flow through the outbound guard, within its bounds. McpError when no answer came."""

    async def __call__(self, request: HttpRequest) -> HttpResponse: ...


class TokenStore(Protocol):
    """Where the grant of one server (and one identity) rests. Raises McpError only."""

    async def load(self) -> Grant | None:
        """The grant as it is now, whoever wrote it last."""

    async def save(self, grant: Grant) -> None:
        """Replace it, durably, before it returns: the token before may be worthless already. Never leaves half."""

    def refreshing(self) -> AbstractAsyncContextManager[None]:
        """Held by one at a time in all processes, for as long as the requests to a token endpoint take. Raises
        TransportError when it cannot be had in time."""


class Consent(Protocol):
    """A person who is sent to the authorization server and comes back."""

    async def __call__(self, pending: Pending) -> Mapping[str, str]:
        """The parameters of the redirect. Raises SignInNeeded when nobody is here to be asked."""
