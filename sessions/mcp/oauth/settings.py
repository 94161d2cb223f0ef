"""The operator's authorization settings for one server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from .grant import Registration

#: code: a user signs in. The other flows need no user (MCP extensions: client credentials, enterprise-managed
#: authorization, workload identity).
Flow = Literal["code", "client_credentials", "enterprise", "workload"]
#: Returns a JSON Web Token that another party signed; called each time one is needed.
TokenSource = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """Enterprise-managed authorization: where to exchange the identity token, and our client there."""

    token_endpoint: str
    client_id: str
    id_token: TokenSource = field(repr=False)
    client_secret: str = field(default="", repr=False)
    #: receives each assertion from the provider before it is sent
    on_assertion: Callable[[str], None] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectedIssuer:
    """An operator's exception: the authorization server that the server calls `named` has another `issuer` in its
    metadata. It applies to this pair only."""

    named: str
    issuer: str


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """`client_*`: a client registered by hand at `client_issuer` (empty: the first issuer encountered). `issuer`: which
    authorization server to use if several are named. `private_key`: PEM, for `private_key_jwt` with `algorithm`."""

    server_url: str
    flow: Flow = "code"
    redirect_uri: str = ""
    client_name: str = "mcpadmin"
    #: https URL of our own client ID metadata document, if this instance serves one
    metadata_document: str = ""
    #: authorization servers probably cannot fetch it: dynamic registration goes first
    document_last: bool = False
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_issuer: str = ""
    #: the user no longer wants the client ID that was entered for an earlier sign-in
    forget_client: bool = False
    #: registered by hand for everyone who signs in to the server. Used at its issuer if the user entered none
    shared_client: Registration | None = None
    private_key: str = field(default="", repr=False)
    algorithm: str = "ES256"
    issuer: str = ""
    #: scopes to request if the server's challenge names none; empty: those listed in its metadata
    scopes: tuple[str, ...] = ()
    #: the operator vouches for PKCE with S256 at a server that does not list it (some OpenID providers do not)
    pkce_vouched: bool = False
    #: workload identity: the platform's token, whose audience is the authorization server
    workload_token: TokenSource | None = field(default=None, repr=False)
    identity_provider: IdentityProvider | None = None
    expected: ExpectedIssuer | None = None
    #: bind tokens to a key if the server asks for it (RFC 9449)
    dpop: bool = True

    @property
    def entered(self) -> tuple[str, ...]:
        """The addresses that an operator named. Servers name all others."""
        named = (self.server_url, self.issuer, self.expected.named if self.expected else "")
        return (*named, self.identity_provider.token_endpoint) if self.identity_provider else named

    def expected_at(self, named: str) -> str:
        """The issuer that the metadata of the authorization server `named` must contain."""
        return self.expected.issuer if self.expected is not None and self.expected.named == named else named
