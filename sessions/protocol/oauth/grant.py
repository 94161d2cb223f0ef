"""What is kept of an authorization: plain data, so that a store can seal it as JSON. Every value in it is a secret or
decides where a secret is sent."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

Source = Literal["registered_by_hand", "metadata_document", "dynamic"]
EndpointAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class _Data:
    """To JSON and back. A member that an older version did not write keeps its default."""

    __slots__ = ()

    def to_data(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # each heir is a dataclass

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]  # each heir is a dataclass
        given = {name: _value(name, value) for name, value in data.items() if name in known}
        return cls(**given)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        kind: type[_Data] = Grant if name == "grant" else Registration
        return kind.from_data(value)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Registration(_Data):
    """Who we are to one authorization server, and never to another one."""

    issuer: str
    client_id: str
    source: Source
    secret: str = field(default="", repr=False)
    #: how we prove it at the token endpoint
    endpoint_auth: EndpointAuth = "none"
    redirect_uri: str = ""


@dataclass(frozen=True, slots=True)
class Grant(_Data):
    """A token for one server, and all that is needed to renew it. Without a token: only the way to one.

    Moments are seconds of the epoch (`expires_at` None: the server did not say); `generation` goes up with each token.
    """

    issuer: str
    registration: Registration | None = None
    resource: str = ""
    token_endpoint: str = ""
    access_token: str = field(default="", repr=False)
    token_type: str = "Bearer"  # noqa: S105  the name of a scheme
    refresh_token: str = field(default="", repr=False)
    obtained_at: float = 0.0
    expires_at: float | None = None
    scopes_requested: tuple[str, ...] = ()
    scopes_granted: tuple[str, ...] = ()
    #: private JWK as JSON, when tokens are bound to a key (RFC 9449)
    dpop_key: str = field(default="", repr=False)
    generation: int = 0

    @property
    def signed_in(self) -> bool:
        return bool(self.access_token)

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def stale(self, now: float) -> bool:
        """Soon no good: a minute before its end, or the last tenth of a life that is shorter than ten minutes."""
        if self.expires_at is None:
            return False
        return self.expires_at - min(60.0, (self.expires_at - self.obtained_at) / 10) <= now


@dataclass(frozen=True, slots=True)
class Pending(_Data):
    """A sign-in that was begun: rests sealed, found again by its `state`, until the redirect comes back.

    `url` is where the browser is sent; `grant` is what it leads to, still without a token."""

    state: str = field(repr=False)
    url: str = field(repr=False)
    verifier: str = field(repr=False)
    grant: Grant
    created_at: float
    #: the server promises `iss` in its answer (RFC 9207)
    iss_promised: bool = False

    @property
    def issuer(self) -> str:
        return self.grant.issuer
