"""A server that is reached by a URL: where it is, and on what terms."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..protocol.limits import Limits
from .authorizing import Authorizer
from .egress import Policy
from .engine import shared_tls


def nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`headers` is called each time that they are sent: for a request, or for a WebSocket handshake. `tls`: a context
    of the server's own (private CA, client certificate); None: the one shared by the process. `connect_timeout`:
    seconds, for the lookup of the name and for each address tried."""

    url: str = field(repr=False)  # a reference may have put a secret into its path or query
    headers: Callable[[], Mapping[str, str]] = field(default=nothing, repr=False)
    policy: Policy = Policy()
    limits: Limits = Limits()
    connect_timeout: float = 10.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    #: gives each request its token, and decides what a 401 or 403 means; None: `headers` is all that there is
    authorization: Authorizer | None = field(default=None, repr=False)

    @property
    def tls_in_use(self) -> ssl.SSLContext:
        return self.tls or shared_tls()
