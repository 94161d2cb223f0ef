"""The stored data of an authorization: plain data that a store can encrypt as JSON. Every value is a secret or decides
where a secret is sent."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, Self

Source = Literal["registered_by_hand", "metadata_document", "dynamic"]
EndpointAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
#: RFC 6749 appendix A: client ids, client secrets and refresh tokens. JSON allows more characters than requests.
_SENDABLE: Final = re.compile(r"[\x20-\x7e]{0,32768}\Z")


def is_sendable(value: str) -> bool:
    return _SENDABLE.match(value) is not None


class _Data:
    """Conversion to JSON and back. A member that an older version did not write keeps its default."""

    __slots__ = ()

    def to_data(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # each subclass is a dataclass

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]  # each subclass is a dataclass
        given = {name: _value(name, value) for name, value in data.items() if name in known}
        return cls(**given)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        kind: type[_Data] = Grant if name == "grant" else Registration
        return kind.from_data(value)
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Registration(_Data):
    """Our client registration at one authorization server; never used at another one."""

    issuer: str
    client_id: str
    source: Source
    secret: str = field(default="", repr=False)
    #: how we authenticate at the token endpoint
    endpoint_auth: EndpointAuth = "none"
    redirect_uri: str = ""
    #: the scopes that a dynamic client may request, if the authorization server restricts them; empty: any
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant(_Data):
    """A token for one server, and everything needed to renew it. Without a token: only how to get one.

    Times are seconds since the epoch (`expires_at` None: the server did not say; `begun_at`: the start of
    the first sign-in with this registration that was never completed, 0 if there is none). `generation` increases with
    each token.
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
    begun_at: float = 0.0

    @property
    def signed_in(self) -> bool:
        return bool(self.access_token)

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def stale(self, now: float) -> bool:
        """About to expire: within a minute of its end, or in the last tenth of a lifetime shorter than ten minutes."""
        if self.expires_at is None:
            return False
        return self.expires_at - min(60.0, (self.expires_at - self.obtained_at) / 10) <= now


@dataclass(frozen=True, slots=True)
class Pending(_Data):
    """A sign-in in progress. It is stored encrypted and looked up by `state` when the redirect arrives.

    `url` is the address for the browser; `grant` is the resulting grant, still without a token."""

    state: str = field(repr=False)
    url: str = field(repr=False)
    verifier: str = field(repr=False)
    grant: Grant
    created_at: float
    #: the authorization server promises `iss` in its response (RFC 9207)
    iss_promised: bool = False

    @property
    def issuer(self) -> str:
        return self.grant.issuer
