"""From a description of a server to a transport: the only place that knows all kinds."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..protocol.limits import Limits
from .base import Transport
from .egress import Policy
from .stdio import StdioTransport
from .streamable_http import StreamableHttpTransport


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A command to run. `env` is called at each start and gives what was declared for this server; PATH, HOME,
    LANG and TZ are added where not declared. Its values never appear in a repr."""

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: Callable[[], Mapping[str, str]] = field(default=_nothing, repr=False)
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """A Streamable HTTP endpoint. `headers` is called for each request. `tls`: a context of the server's own
    (private CA, client certificate); None: the one shared by the process. `connect_timeout`: seconds, for the
    lookup of the name and for each address tried."""

    url: str
    headers: Callable[[], Mapping[str, str]] = field(default=_nothing, repr=False)
    policy: Policy = Policy()
    limits: Limits = Limits()
    connect_timeout: float = 10.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)


Spec = StdioSpec | HttpSpec


async def open_transport(spec: Spec) -> Transport:
    """A new, not yet connected transport; `functools.partial(open_transport, spec)` is what Client takes."""
    if isinstance(spec, StdioSpec):
        return StdioTransport(command=spec.command, args=spec.args, cwd=spec.cwd, env=spec.env, limits=spec.limits)
    return StreamableHttpTransport(
        url=spec.url,
        headers=spec.headers,
        policy=spec.policy,
        limits=spec.limits,
        connect_timeout=spec.connect_timeout,
        tls=spec.tls,
    )
