"""What an Authorization needs from the layers above and below it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..oauth.exchange import HttpRequest, HttpResponse
from ..oauth.grant import Grant, Pending


class Http(Protocol):
    """Sends one request of a flow through the outbound guard, within its limits. Raises McpError if no answer came."""

    async def __call__(self, request: HttpRequest) -> HttpResponse: ...


class TokenStore(Protocol):
    """Stores the grant of one server (and one identity). Raises McpError only."""

    async def load(self) -> Grant | None:
        """The current grant; another process may have written it."""

    async def save(self, grant: Grant) -> None:
        """Replace it durably before returning, because the old token may be invalid already. Never writes it
        partially."""

    def refreshing(self) -> AbstractAsyncContextManager[None]:
        """A lock across all processes, held for as long as the token endpoint requests take. Raises TransportError
        when it cannot be acquired in time."""


class Consent(Protocol):
    """A person who is sent to the authorization server and comes back."""

    async def __call__(self, pending: Pending) -> Mapping[str, str]:
        """The parameters of the redirect. Raises SignInNeeded when no one is available to ask."""
