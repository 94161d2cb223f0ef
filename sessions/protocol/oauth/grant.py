"""What is kept of an authorization: plain data, so that a store can seal it as JSON. Every value in it is a secret or
decides where a secret is sent."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

Source = Literal["registered_by_hand", "metadata_document", "dynamic"]
EndpointAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class _Data:
    """To JSON and back; a member that an older version did not write keeps its default."""

    def to_data(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # each heir is a dataclass

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        known = {one.name for one in fields(cls)}  # type: ignore[arg-type]  # each heir is a dataclass
        given = {name: value for name, value in data.items() if name in known}
        given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        if isinstance(given.get("registration"), Mapping):
            given["registration"] = Registration.from_data(given["registration"])
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Registration(_Data):
    """Who we are to one authorization server. Never used at another one."""

    issuer: str
    client_id: str
    source: Source
    secret: str = field(default="", repr=False)
    #: as the server said when it registered us; empty: chosen by its metadata
    endpoint_auth: EndpointAuth | Literal[""] = ""
    redirect_uri: str = ""


@dataclass(frozen=True, slots=True)
class Grant(_Data):
    """A token for one server, and all that is needed to renew it. Without a token: only the registration is left.

    `expires_at` is seconds of the epoch (None: the server did not say), `generation` goes up with each new token.
    """

    issuer: str
    registration: Registration | None = None
    resource: str = ""
    token_endpoint: str = ""
    access_token: str = field(default="", repr=False)
    token_type: str = "Bearer"
    refresh_token: str = field(default="", repr=False)
    obtained_at: float = 0.0
    expires_at: float | None = None
    scopes_requested: tuple[str, ...] = ()
    scopes_granted: tuple[str, ...] = ()
    #: private JWK as JSON, when the token is bound to a key (RFC 9449)
    dpop_key: str = field(default="", repr=False)
    generation: int = 0

    @property
    def signed_in(self) -> bool:
        return bool(self.access_token)


@dataclass(frozen=True, slots=True)
class Pending(_Data):
    """A sign-in that a person has begun: goes to rest sealed under its `state`, until the redirect comes back.

    `url` is where the browser is sent; `issuer` says whom it will meet there. `created_at`: seconds of the epoch."""

    state: str = field(repr=False)
    url: str = field(repr=False)
    issuer: str
    token_endpoint: str
    redirect_uri: str
    registration: Registration
    verifier: str = field(repr=False)
    created_at: float
    #: the server promises `iss` in its answer (RFC 9207)
    iss_promised: bool = False
    resource: str = ""
    scopes: tuple[str, ...] = ()
    endpoint_auth: EndpointAuth = "none"
    dpop_key: str = field(default="", repr=False)
