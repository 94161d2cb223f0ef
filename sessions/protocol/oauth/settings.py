"""What an operator decides about the authorization of one server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

#: code: a person signs in; the others need nobody (MCP extensions: client credentials, enterprise-managed
#: authorization, workload identity)
Flow = Literal["code", "client_credentials", "enterprise", "workload"]
#: Gives a JSON Web Token that somebody else signed; called each time that one is needed.
TokenSource = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """Enterprise-managed authorization: who exchanges the identity token, and who we are there."""

    token_endpoint: str
    client_id: str
    id_token: TokenSource = field(repr=False)
    client_secret: str = field(default="", repr=False)
    #: hears each assertion that the provider gives, before it is sent
    on_assertion: Callable[[str], None] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectedIssuer:
    """An operator's word for an authorization server that carries another issuer in its metadata than the one by which
    the server `named` it. Of this pair only."""

    named: str
    issuer: str


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """`client_*`: as registered by hand at `client_issuer` (empty: whoever is met first). `issuer`: which server to
    take where several are named. `private_key`: PEM, for `private_key_jwt` with `algorithm`."""

    server_url: str
    flow: Flow = "code"
    redirect_uri: str = ""
    client_name: str = "mcpadmin"
    #: https URL of our own client ID metadata document, where this instance serves one
    metadata_document: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_issuer: str = ""
    private_key: str = field(default="", repr=False)
    algorithm: str = "ES256"
    issuer: str = ""
    #: what to ask for where the server's challenge names nothing; empty: what its metadata lists
    scopes: tuple[str, ...] = ()
    #: an operator vouches for PKCE with S256 at a server that does not list it (some OpenID providers do not)
    pkce_vouched: bool = False
    #: workload identity: the platform's token, whose audience is the authorization server
    workload_token: TokenSource | None = field(default=None, repr=False)
    identity_provider: IdentityProvider | None = None
    expected: ExpectedIssuer | None = None
    #: bind tokens to a key where the authorization server can (RFC 9449)
    dpop: bool = True

    def expected_at(self, named: str) -> str:
        """The issuer that has to stand in the metadata of the authorization server of this name."""
        return self.expected.issuer if self.expected is not None and self.expected.named == named else named
