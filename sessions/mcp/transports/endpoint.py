"""A server that is reached by URL: its address and the parameters of the connection."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..core.limits import Limits
from .authorizing import Authorizer
from .egress import OutboundPolicy
from .engine import shared_tls
from .recording import UNRECORDED, Recorder


def nothing() -> Mapping[str, str]:
    return {}


def _ignore(token: bool) -> None:
    """The default for `Endpoint.sent`: no observer."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`headers` is called each time headers are sent: for a request, or for a WebSocket handshake. `tls`: the server's
    own context (private CA, client certificate); None: the context shared by the process. `connect_timeout`: seconds,
    for the lookup of the name and for each address tried."""

    url: str = field(repr=False)  # a reference may have put a secret into its path or query
    headers: Callable[[], Mapping[str, str]] = field(default=nothing, repr=False)
    policy: OutboundPolicy = OutboundPolicy()
    limits: Limits = Limits()
    connect_timeout: float = 10.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    #: whether the headers, the URL or the TLS context carry a credential
    credential: bool = False
    #: called when headers were sent to the server; the argument: whether they included a token of `authorization`
    sent: Callable[[bool], None] = field(default=_ignore, repr=False)
    #: supplies the token of each request, and decides what a 401 or 403 means; None: only `headers` apply
    authorization: Authorizer | None = field(default=None, repr=False)
    recorder: Recorder = field(default=UNRECORDED, repr=False)
    #: whether a legacy session keeps a stream open for messages that the server sends unprompted
    feed: bool = True

    @property
    def tls_in_use(self) -> ssl.SSLContext:
        return self.tls or shared_tls()
